"""A fit as Tianshou's trainers run it: their functions called at their moments, their numbers at its end."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import Callback, Checkpoint

from lit_rl.callbacks.interrupt import interruptible
from lit_rl.callbacks.last import LastCheckpoint
from lit_rl.callbacks.progress import EnvStepsBar
from lit_rl.callbacks.stop import end_fit
from lit_rl.checkpoint import AtomicCheckpointIO, find_last
from lit_rl.compat.tianshou_collector import counted
from lit_rl.data.hooks import Hooks
from lit_rl.data.transitions import Episode, Steps
from lit_rl.datamodule import ExperienceDataModule
from lit_rl.envs.seeds import env_seed
from lit_rl.errors import UsageError
from lit_rl.lit_policy import LitPolicy

EpochFn = Callable[[int, int], Any]
StopFn = Callable[[float], bool]


@dataclasses.dataclass
class Calls:
    """The functions that a trainer was given."""

    train_fn: EpochFn | None
    test_fn: EpochFn | None
    stop_fn: StopFn | None
    save_best_fn: Callable[[LitPolicy], Any] | None
    save_checkpoint_fn: Callable[[int, int, int], Any] | None
    test_in_train: bool
    reward_metric: Callable[[np.ndarray], Any] | None

    def __post_init__(self) -> None:
        for name, given in vars(self).items():
            if name != "test_in_train" and given is not None and not callable(given):
                raise UsageError(f"{name} {given!r} is not allowed: give a function")


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

    def __init__(self, calls: Calls, data: ExperienceDataModule, clock: _Clock, writer: Any, log_interval: int) -> None:
        self.calls, self.data, self.clock, self.writer, self.log_interval = calls, data, clock, writer, log_interval
        self.best, self.best_std = -math.inf, 0.0
        self.best_weights: dict[str, torch.Tensor] = {}
        self.seconds, self.steps, self.episodes, self.trained_episodes = 0.0, 0, 0, 0
        self._returns: list[float] = []
        self._train_eps: float | None = None
        self._began = 0.0
        self._logged = self._seen = 0

    def state_dict(self) -> dict[str, Any]:
        weights = {"best_weights": self.best_weights, "episodes": self.trained_episodes}
        return {"best": self.best, "best_std": self.best_std} | weights

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.best, self.best_std = state_dict["best"], state_dict["best_std"]
        self.best_weights, self.trained_episodes = state_dict["best_weights"], state_dict["episodes"]

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
            seed = env_seed(self.data.seed, "eval", self.data.evaluation.episode_per_test)
            self._explore(torch.Generator().manual_seed(seed))
            best: Any = policy.best_policy
            best.set_eps(eps)

    def _explore(self, noise: torch.Generator | None) -> None:
        """Let the episodes of tests be explored with this from now on; None: played greedily."""
        assert self.data.played is not None
        self.data.played.noise = noise

    def _end(self, policy: LitPolicy, episodes: list[Episode]) -> float:
        """What a test was worth; the best one is kept, and told."""
        if hasattr(policy.policy, "fixed_eps"):
            acting: Any = policy.policy
            acting.fixed_eps = self._train_eps
        self._explore(None)
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
        finished: list[Episode] = pl_module.epoch_metrics.finished
        new, self._seen = finished[self._seen :], len(finished)
        self.trained_episodes += len(new)
        if self.writer is not None and pl_module.updates - self._logged >= self.log_interval:
            self._logged = pl_module.updates
            for name, value in pl_module.epoch_metrics.newest.items():
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


def train(
    policy: LitPolicy,
    data: ExperienceDataModule,
    max_epoch: int,
    calls: Calls,
    writer: Any,
    log_interval: int,
    verbose: bool,
    resume_from_log: bool,
) -> dict[str, Any]:
    """Fit, and leave the policy with the weights of its best test."""
    counted("max_epoch", max_epoch)
    counted("log_interval", log_interval)
    if writer is not None and not (hasattr(writer, "add_scalar") and hasattr(writer, "log_dir")):
        raise UsageError(f"writer {writer!r} is not allowed: give a SummaryWriter")
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
    began, before = time.perf_counter(), 0 if found is None else found[1]["progress"]["env_steps"]
    try:
        with interruptible():
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
        "train_speed": (steps - before) / learned,
        "test_step": tests.steps,
        "test_episode": tests.episodes,
        "test_time": tests.seconds,
        "test_speed": tests.steps / tests.seconds if tests.seconds else 0.0,
        "best_reward": tests.best,
        "best_result": (tests.best, tests.best_std),
        "duration": duration,
    }
