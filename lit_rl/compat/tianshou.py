"""Tianshou's trainer functions (0.2 to 0.4): ``offpolicy_trainer(policy, train_collector, test_collector, ...)``.

``policy`` is a :class:`lit_rl.LitPolicy`; collectors and buffers only say what the datamodule is to be made of.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium as gym
import numpy as np
import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import Callback, Checkpoint

from lit_rl.callbacks.last import LastCheckpoint
from lit_rl.callbacks.progress import EnvStepsBar
from lit_rl.callbacks.stop import end_fit
from lit_rl.checkpoint import AtomicCheckpointIO, find_last
from lit_rl.data.hooks import Hooks
from lit_rl.data.transitions import Episode, Steps
from lit_rl.datamodule import ExperienceDataModule
from lit_rl.envs.make import name_of
from lit_rl.envs.seeds import env_seed
from lit_rl.errors import UsageError
from lit_rl.lit_policy import LitPolicy

ITERATION = 200  # env steps between two looks at the training return, about

EpochFn = Callable[[int, int], Any]
StopFn = Callable[[float], bool]
Makers = Sequence[Callable[..., gym.Env[Any, Any]]]


@dataclasses.dataclass
class ReplayBuffer:
    """How many transitions are kept, over all envs."""

    size: int
    buffer_num: int = 1

    def __post_init__(self) -> None:
        if self.size < 1:
            raise UsageError(f"ReplayBuffer({self.size}): give at least 1 transition")


VectorReplayBuffer = ReplayBuffer


class VectorEnv:
    """Environments side by side, from functions that make one each; they are made when a trainer needs them."""

    kind = "sync"

    def __init__(self, env_fns: Makers) -> None:
        if not env_fns:
            raise UsageError(f"{type(self).__name__} needs a function for each env")
        self.env_fns = list(env_fns)

    def __len__(self) -> int:
        return len(self.env_fns)


DummyVectorEnv = VectorEnv


class SubprocVectorEnv(VectorEnv):
    """The same, with a process for each."""

    kind = "async"


class Collector:
    """Says which envs a policy acts in, and what is kept of it.

    Args:
        policy: a LitPolicy.
        env: an environment id, a function that makes one, a Gymnasium env that ``gymnasium.make`` made, or a VectorEnv.
        buffer: a ReplayBuffer; without one, as large as the policy's ``buffer_size``.
        exploration_noise: as Tianshou's; training always explores, tests only by what ``test_fn`` sets.
    """

    def __init__(
        self, policy: LitPolicy, env: Any, buffer: ReplayBuffer | None = None, exploration_noise: bool = True
    ) -> None:
        self.policy, self.buffer = policy, buffer
        self.first_steps = 0
        self.num_envs, self.vector_env = 1, "sync"
        self.env: Any = env
        if isinstance(env, VectorEnv):
            self.num_envs, self.vector_env = len(env), env.kind
            self.env = env.env_fns[0]  # one maker for all: they differ by their seed
        elif isinstance(env, gym.Env):
            if env.spec is None:
                raise UsageError("Collector: this env has no id; give a function that makes it")
            self.env = env.spec.id
            env.close()
        elif not (callable(env) or isinstance(env, str)):
            raise UsageError(
                f"Collector: {env!r} is no environment; give an id, a function, or a VectorEnv of functions"
            )

    def collect(self, n_step: int) -> dict[str, int]:
        """Collect before the first update: the trainer does it, ``n_step`` env steps by the policy itself."""
        self.first_steps += n_step
        return {"n/st": n_step, "n/ep": 0}


def offpolicy_trainer(
    policy: LitPolicy,
    train_collector: Collector,
    test_collector: Collector,
    max_epoch: int,
    step_per_epoch: int,
    collect_per_step: int | None = None,
    episode_per_test: int = 30,
    batch_size: int = 64,
    update_per_step: float = 1,
    train_fn: EpochFn | None = None,
    test_fn: EpochFn | None = None,
    stop_fn: StopFn | None = None,
    save_fn: Callable[[LitPolicy], Any] | None = None,
    writer: Any = None,
    log_interval: int = 1,
    verbose: bool = True,
    test_in_train: bool = True,
    *,
    step_per_collect: int | None = None,
    save_best_fn: Callable[[LitPolicy], Any] | None = None,
    save_checkpoint_fn: Callable[[int, int, int], Any] | None = None,
    resume_from_log: bool = False,
    reward_metric: Callable[[np.ndarray], Any] | None = None,
    seed: int = 0,
) -> dict[str, Any]:
    """Learn from replay: collect ``collect_per_step`` env steps, make ``update_per_step`` updates for each, and again.

    Args:
        policy: of an algorithm with a replay buffer.
        train_collector, test_collector: the envs to learn and to be tested in.
        max_epoch: epochs, each of ``step_per_epoch`` env steps (rounded up to whole collects) and one test.
        collect_per_step: env steps between two rounds of updates; ``step_per_collect`` is its later name.
        episode_per_test: episodes of a test, always the same.
        batch_size: transitions of an update.
        update_per_step: updates per env step; a fraction is carried over.
        train_fn, test_fn: called with epoch (from 1; 0 before the first) and env steps before every collect and every test.
            What ``policy.set_eps`` sets in ``test_fn`` holds in that test only; otherwise tests act greedily.
        stop_fn: ends training where it is true of a test's mean return.
        save_fn, save_best_fn: called with the policy after every test that was better than all before.
        save_checkpoint_fn: called with epoch, env steps and updates after every epoch.
        writer: a SummaryWriter, which gets train and test scalars over env steps; a full checkpoint lies in its folder.
        log_interval: updates between two scalars of their losses.
        verbose: show a progress bar.
        test_in_train: where the training return passes ``stop_fn``, test at once; stop only if that passes too.
        resume_from_log: go on, weights and buffer included, from the checkpoint in the writer's folder, if there is one.
        reward_metric: makes of a test's returns (episodes,) the numbers whose mean counts.
        seed: of envs and exploration.

    Returns:
        Numbers: ``train_step`` (env steps), ``train_episode``, ``train_time/collector`` and ``train_time/model`` (seconds),
        ``train_speed`` (env steps a second), ``test_step``, ``test_episode``, ``test_time`` (seconds), ``test_speed`` (env
        steps a second), ``best_reward``, ``best_result`` (mean and standard deviation of the best test), ``duration``
        (seconds).

    Raises:
        UsageError: arguments that cannot be used.
    """
    collect = _one("collect_per_step", collect_per_step, "step_per_collect", step_per_collect)
    known = {field.name for field in dataclasses.fields(policy.algorithm.config)}
    if "collect_per_step" not in known:
        raise UsageError(f"offpolicy_trainer: {_algo(policy)} keeps no replay buffer: use onpolicy_trainer")
    envs = train_collector.num_envs
    whole = math.lcm(collect, envs)
    epoch = -(-step_per_epoch // whole) * whole
    settings: dict[str, Any] = {
        "batch_size": batch_size,
        "collect_per_step": collect,
        "update_per_step": update_per_step,
        "steps_per_iteration": _iteration(epoch, whole),
    }
    if train_collector.buffer is not None:
        settings["buffer_size"] = train_collector.buffer.size
    if train_collector.first_steps:
        settings["learning_starts"] = train_collector.first_steps
    _set(policy, settings)
    data = _data(train_collector, test_collector, epoch, episode_per_test, seed)
    calls = _Calls(
        train_fn, test_fn, stop_fn, save_best_fn or save_fn, save_checkpoint_fn, test_in_train, reward_metric
    )
    return _train(policy, data, max_epoch, calls, writer, log_interval, verbose, resume_from_log)


def onpolicy_trainer(
    policy: LitPolicy,
    train_collector: Collector,
    test_collector: Collector,
    max_epoch: int,
    step_per_epoch: int,
    repeat_per_collect: int,
    episode_per_test: int = 30,
    batch_size: int = 64,
    step_per_collect: int | None = None,
    episode_per_collect: int | None = None,
    train_fn: EpochFn | None = None,
    test_fn: EpochFn | None = None,
    stop_fn: StopFn | None = None,
    save_fn: Callable[[LitPolicy], Any] | None = None,
    writer: Any = None,
    log_interval: int = 1,
    verbose: bool = True,
    test_in_train: bool = True,
    *,
    collect_per_step: int | None = None,
    save_best_fn: Callable[[LitPolicy], Any] | None = None,
    save_checkpoint_fn: Callable[[int, int, int], Any] | None = None,
    resume_from_log: bool = False,
    reward_metric: Callable[[np.ndarray], Any] | None = None,
    seed: int = 0,
) -> dict[str, Any]:
    """Learn from rollouts: collect one, go over it ``repeat_per_collect`` times in minibatches, and again.

    Args:
        repeat_per_collect: times that every transition is learned from; 1 for PG and A2C, which make one update of it.
        batch_size: transitions of a minibatch; PG and A2C take the whole rollout.
        step_per_collect: env steps of a rollout, over all envs.
        episode_per_collect: episodes of a rollout, at least: it is as long as they can be, so the env must have a limit.

    The others are those of :func:`offpolicy_trainer`, and so is the result.

    Raises:
        UsageError: arguments that cannot be used.
    """
    known = {field.name for field in dataclasses.fields(policy.algorithm.config)}
    if "rollout_length" not in known:
        raise UsageError(f"onpolicy_trainer: {_algo(policy)} learns from no rollouts: use offpolicy_trainer")
    envs = train_collector.num_envs
    if episode_per_collect is not None:
        if step_per_collect is not None or collect_per_step is not None:
            raise UsageError("step_per_collect and episode_per_collect say the same: give one of them")
        length = -(-episode_per_collect // envs) * _longest(train_collector)
    else:
        length = -(-_one("step_per_collect", step_per_collect, "collect_per_step", collect_per_step) // envs)
    rollout = length * envs
    settings: dict[str, Any] = {"rollout_length": length, "steps_per_iteration": rollout}
    if "epochs_per_rollout" in known:
        settings |= {"epochs_per_rollout": repeat_per_collect, "batch_size": min(batch_size, rollout)}
    elif repeat_per_collect != 1:
        raise UsageError(
            f"repeat_per_collect {repeat_per_collect}: {_algo(policy)} makes one update of a rollout: give 1"
        )
    _set(policy, settings)
    epoch = -(-step_per_epoch // rollout) * rollout
    data = _data(train_collector, test_collector, epoch, episode_per_test, seed)
    calls = _Calls(
        train_fn, test_fn, stop_fn, save_best_fn or save_fn, save_checkpoint_fn, test_in_train, reward_metric
    )
    return _train(policy, data, max_epoch, calls, writer, log_interval, verbose, resume_from_log)


def offline_trainer(
    policy: LitPolicy,
    buffer: Any,
    test_collector: Collector,
    max_epoch: int,
    update_per_epoch: int,
    episode_per_test: int = 30,
    batch_size: int = 64,
    test_fn: EpochFn | None = None,
    stop_fn: StopFn | None = None,
    save_best_fn: Callable[[LitPolicy], Any] | None = None,
    save_checkpoint_fn: Callable[[int, int, int], Any] | None = None,
    resume_from_log: bool = False,
    reward_metric: Callable[[np.ndarray], Any] | None = None,
    writer: Any = None,
    log_interval: int = 1,
    verbose: bool = True,
    *,
    seed: int = 0,
) -> dict[str, Any]:
    """Learn from recorded episodes; the test collector's env is for the tests.

    Args:
        policy: of an algorithm that learns from data.
        buffer: the data set, as ``--input`` names it: a .jsonl file, a glob, ``minari:<id>``, or {source: probability}.
        update_per_epoch: updates between two tests.

    The others are those of :func:`offpolicy_trainer`, and so is the result; nothing is collected.

    Raises:
        UsageError: arguments that cannot be used.
    """
    _set(policy, {"batch_size": batch_size, "steps_per_iteration": _iteration(update_per_epoch, 1)})
    data = _data(test_collector, test_collector, update_per_epoch, episode_per_test, seed, buffer)
    calls = _Calls(None, test_fn, stop_fn, save_best_fn, save_checkpoint_fn, False, reward_metric)
    return _train(policy, data, max_epoch, calls, writer, log_interval, verbose, resume_from_log)


trainer = SimpleNamespace(
    offpolicy_trainer=offpolicy_trainer, onpolicy_trainer=onpolicy_trainer, offline_trainer=offline_trainer
)


def _one(name: str, value: int | None, other: str, again: int | None) -> int:
    """A number that has two names."""
    if value is not None and again is not None and value != again:
        raise UsageError(f"{name} {value} and {other} {again} say the same: give one of them")
    found = value if value is not None else again
    if found is None or isinstance(found, bool) or found < 1:
        raise UsageError(f"{name} {found} is not allowed: give a whole number of at least 1")
    return found


def _algo(policy: LitPolicy) -> str:
    return type(policy.algorithm).__name__


def _iteration(epoch: int, whole: int) -> int:
    """Env steps of an iteration: whole collects, a divisor of the epoch, about ITERATION."""
    return max(n for n in range(whole, max(whole, min(ITERATION, epoch)) + 1, whole) if epoch % n == 0)


def _longest(collector: Collector) -> int:
    """The limit on the episodes of an environment."""
    from lit_rl.envs.make import make_env

    made = make_env(collector.env, {})
    limit = getattr(made.spec, "max_episode_steps", None)
    made.close()
    if limit is None:
        raise UsageError(
            f"episode_per_collect: {name_of(collector.env)} has no limit on its episodes: give step_per_collect"
        )
    return int(limit)


def _set(policy: LitPolicy, settings: dict[str, Any]) -> None:
    """Give the policy's algorithm these settings."""
    policy.algorithm.config = dataclasses.replace(policy.algorithm.config, **settings)
    policy.hparams["lit_rl"]["config"] |= settings


def _data(
    train: Collector, test: Collector, epoch: int, episodes: int, seed: int, recorded: Any = None
) -> ExperienceDataModule:
    return ExperienceDataModule(
        train.env,
        num_envs=train.num_envs,
        vector_env=train.vector_env,  # type: ignore[arg-type]
        step_per_epoch=epoch,
        episode_per_test=episodes,
        num_test_envs=min(test.num_envs, episodes),
        test_episodes=episodes,
        seed=seed,
        input=recorded,
        validation_fraction=0.0,
    )


@dataclasses.dataclass
class _Calls:
    """The functions that a trainer was given."""

    train_fn: EpochFn | None
    test_fn: EpochFn | None
    stop_fn: StopFn | None
    save_best_fn: Callable[[LitPolicy], Any] | None
    save_checkpoint_fn: Callable[[int, int, int], Any] | None
    test_in_train: bool
    reward_metric: Callable[[np.ndarray], Any] | None


class _Clock(Hooks):
    """Calls ``train_fn`` before every collect, and measures how long collects take."""

    def __init__(self, train_fn: EpochFn | None) -> None:
        self.train_fn, self.epoch, self.seconds = train_fn, 1, 0.0
        self._began = 0.0

    def before_collect(self, env_steps: int) -> None:
        if self.train_fn is not None:
            self.train_fn(self.epoch, env_steps)
        self._began = time.perf_counter()

    def on_sample_end(self, steps: Steps) -> None:
        self.seconds += time.perf_counter() - self._began


class _Tests(Checkpoint):
    """The tests of a fit: their epsilon, the best of them, and what is called after them.

    A Checkpoint, because only those run after the module's own end of an epoch.
    """

    def __init__(
        self, calls: _Calls, data: ExperienceDataModule, clock: _Clock, writer: Any, log_interval: int
    ) -> None:
        self.calls, self.data, self.clock, self.writer, self.log_interval = calls, data, clock, writer, log_interval
        self.best, self.best_std = -math.inf, 0.0
        self.best_weights: dict[str, torch.Tensor] = {}
        self.seconds, self.steps, self.episodes, self.trained_episodes = 0.0, 0, 0, 0
        self._returns: list[float] = []
        self._train_eps: float | None = None
        self._began = 0.0
        self._logged = self._seen = 0

    def state_dict(self) -> dict[str, Any]:
        return {"best": self.best, "best_std": self.best_std, "episodes": self.trained_episodes}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.best, self.best_std = state_dict["best"], state_dict["best_std"]
        self.trained_episodes = state_dict["episodes"]

    def _begin(self, policy: LitPolicy, epoch: int) -> None:
        """Let ``test_fn`` set the epsilon of this test."""
        self._began, self._returns = time.perf_counter(), []
        acting: Any = policy.policy
        self._train_eps = getattr(acting, "fixed_eps", None)
        if self.calls.test_fn is None:
            return
        if hasattr(acting, "fixed_eps"):
            acting.fixed_eps = None
        self.calls.test_fn(epoch, policy.env_steps)
        eps = getattr(acting, "fixed_eps", None)
        if eps:
            seed = env_seed(self.data.seed, "eval", self.data.episode_per_test)
            self.data.evaluation_noise = torch.Generator().manual_seed(seed)
            best: Any = policy.best_policy
            best.set_eps(eps)

    def _end(self, policy: LitPolicy, episodes: list[Episode]) -> float:
        """What a test was worth; the best one is kept, and told."""
        if hasattr(policy.policy, "fixed_eps"):
            acting: Any = policy.policy
            acting.fixed_eps = self._train_eps
        self.data.evaluation_noise = None
        returns = np.array([episode.return_ for episode in episodes])
        self.seconds += time.perf_counter() - self._began
        self.steps += sum(episode.length for episode in episodes)
        self.episodes += len(episodes)
        if self.calls.reward_metric is not None:
            returns = np.asarray(self.calls.reward_metric(returns))
        score = float(returns.mean())
        if self.writer is not None:
            lengths = np.mean([episode.length for episode in episodes])
            for name, value in (("reward", score), ("reward_std", float(returns.std())), ("length", float(lengths))):
                self.writer.add_scalar(f"test/{name}", value, global_step=policy.env_steps)
        if score > self.best:
            self.best, self.best_std = score, float(returns.std())
            self.best_weights = {name: weight.detach().clone() for name, weight in policy.state_dict().items()}
            if self.calls.save_best_fn is not None:
                self.calls.save_best_fn(policy)
        return score

    def _stops(self, score: float) -> bool:
        return self.calls.stop_fn is not None and bool(self.calls.stop_fn(score))

    def on_validation_start(self, trainer: pl.Trainer, pl_module: Any) -> None:
        self._begin(pl_module, trainer.current_epoch + 1 if trainer.state.fn == "fit" else 0)
        self._played: list[Episode] = []

    def on_validation_batch_end(self, trainer: pl.Trainer, pl_module: Any, outputs: Any, batch: Any, *_: Any) -> None:
        if isinstance(batch, Episode):  # recorded ones that are held out score nothing here
            self._played.append(batch)

    def on_validation_end(self, trainer: pl.Trainer, pl_module: Any) -> None:
        if self._stops(self._end(pl_module, self._played)):
            end_fit(trainer)

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: Any) -> None:
        self.clock.epoch, self._seen = trainer.current_epoch + 1, 0

    def on_train_batch_end(self, trainer: pl.Trainer, pl_module: Any, *_: Any) -> None:
        finished: list[Episode] = pl_module.finished
        new, self._seen = finished[self._seen :], len(finished)
        self.trained_episodes += len(new)
        if self.writer is not None and pl_module.updates - self._logged >= self.log_interval:
            self._logged = pl_module.updates
            for name, value in pl_module.newest_metrics.items():
                self.writer.add_scalar(f"update/{name}", value, global_step=pl_module.env_steps)
        if new and self.writer is not None:
            scalars = {"reward": np.mean([e.return_ for e in new]), "length": np.mean([e.length for e in new])}
            for name, value in scalars.items():
                self.writer.add_scalar(f"train/{name}", float(value), global_step=pl_module.env_steps)
        if new and self.calls.test_in_train and self._stops(float(np.mean([e.return_ for e in new]))):
            self._begin(pl_module, self.clock.epoch)
            if self._stops(self._end(pl_module, list(self.data.played_dataloader()))):
                end_fit(trainer)

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: Any) -> None:
        if self.calls.save_checkpoint_fn is not None:
            self.calls.save_checkpoint_fn(trainer.current_epoch + 1, pl_module.env_steps, pl_module.updates)


def _train(
    policy: LitPolicy,
    data: ExperienceDataModule,
    max_epoch: int,
    calls: _Calls,
    writer: Any,
    log_interval: int,
    verbose: bool,
    resume_from_log: bool,
) -> dict[str, Any]:
    """Fit, and leave the policy with the weights of its best test."""
    folder = None if writer is None else Path(writer.log_dir)
    if resume_from_log and folder is None:
        raise UsageError("resume_from_log needs a writer, whose folder holds the checkpoint")
    found = find_last(folder) if resume_from_log and folder is not None else None
    clock = _Clock(calls.train_fn)
    data.hooks = clock
    tests = _Tests(calls, data, clock, writer, log_interval)
    callbacks: list[Callback] = [tests, *([] if folder is None else [LastCheckpoint(folder)])]
    if verbose:
        callbacks.append(EnvStepsBar())
    lightning = pl.Trainer(
        max_epochs=max_epoch,
        callbacks=callbacks,
        plugins=[AtomicCheckpointIO()],
        logger=False,
        enable_progress_bar=verbose,
        enable_model_summary=False,
        num_sanity_val_steps=0,
        devices=1,
    )
    began = time.perf_counter()
    try:
        if found is None:
            lightning.validate(policy, datamodule=data, verbose=False)
        if found is not None or not tests._stops(tests.best):
            lightning.fit(policy, datamodule=data, ckpt_path=None if found is None else found[0])
        steps = policy.env_steps
    finally:
        data.close()
    duration = time.perf_counter() - began
    if tests.best_weights:
        policy.load_weights(tests.best_weights)
    learned = duration - tests.seconds
    return {
        "train_step": steps,
        "train_episode": tests.trained_episodes,
        "train_time/collector": clock.seconds,
        "train_time/model": max(0.0, learned - clock.seconds),
        "train_speed": steps / learned,
        "test_step": tests.steps,
        "test_episode": tests.episodes,
        "test_time": tests.seconds,
        "test_speed": tests.steps / tests.seconds if tests.seconds else 0.0,
        "best_reward": tests.best,
        "best_result": (tests.best, tests.best_std),
        "duration": duration,
    }
