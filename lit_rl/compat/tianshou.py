"""Tianshou's trainer functions (0.2 to 0.4): ``offpolicy_trainer(policy, train_collector, test_collector, ...)``.

``policy`` is a :class:`lit_rl.LitPolicy`; collectors and buffers only say what the datamodule is to be made of.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np

from lit_rl.compat.tianshou_collector import (
    Collector,
    DummyVectorEnv,
    ReplayBuffer,
    SubprocVectorEnv,
    VectorEnv,
    VectorReplayBuffer,
    counted,
)
from lit_rl.compat.tianshou_run import Calls, EpochFn, StopFn, train
from lit_rl.data.config import MOST
from lit_rl.datamodule import ExperienceDataModule
from lit_rl.envs.make import name_of
from lit_rl.errors import UsageError
from lit_rl.lit_policy import LitPolicy

__all__ = [
    "Collector",
    "DummyVectorEnv",
    "ReplayBuffer",
    "SubprocVectorEnv",
    "VectorEnv",
    "VectorReplayBuffer",
    "offline_trainer",
    "offpolicy_trainer",
    "onpolicy_trainer",
    "trainer",
]

ITERATION = 200  # env steps between two looks at the training return, about


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
    counts = {"step_per_epoch": step_per_epoch, "episode_per_test": episode_per_test, "batch_size": batch_size}
    _check(policy, {"train_collector": train_collector, "test_collector": test_collector}, counts, seed)
    if (
        isinstance(update_per_step, bool)
        or not isinstance(update_per_step, int | float)
        or not 0 < update_per_step <= MOST
    ):
        raise UsageError(f"update_per_step {update_per_step!r} is not allowed: give a number above 0")
    collect = _one("collect_per_step", collect_per_step, "step_per_collect", step_per_collect)
    known = {field.name for field in dataclasses.fields(policy.algorithm.config)}
    if "collect_per_step" not in known:
        raise UsageError(f"offpolicy_trainer: {_algo(policy)} keeps no replay buffer: use onpolicy_trainer")
    if not train_collector.exploration_noise:
        raise UsageError(
            "offpolicy_trainer: exploration_noise False is not allowed: learning from replay needs exploration"
        )
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
    calls = Calls(train_fn, test_fn, stop_fn, save_best_fn or save_fn, save_checkpoint_fn, test_in_train, reward_metric)
    return train(policy, data, max_epoch, calls, writer, log_interval, verbose, resume_from_log)


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
    counts = {"step_per_epoch": step_per_epoch, "episode_per_test": episode_per_test, "batch_size": batch_size}
    counts["repeat_per_collect"] = repeat_per_collect
    _check(policy, {"train_collector": train_collector, "test_collector": test_collector}, counts, seed)
    known = {field.name for field in dataclasses.fields(policy.algorithm.config)}
    if "rollout_length" not in known:
        raise UsageError(f"onpolicy_trainer: {_algo(policy)} learns from no rollouts: use offpolicy_trainer")
    envs = train_collector.num_envs
    if episode_per_collect is not None:
        if step_per_collect is not None or collect_per_step is not None:
            raise UsageError("step_per_collect and episode_per_collect say the same: give one of them")
        length = -(-counted("episode_per_collect", episode_per_collect) // envs) * _longest(train_collector)
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
    calls = Calls(train_fn, test_fn, stop_fn, save_best_fn or save_fn, save_checkpoint_fn, test_in_train, reward_metric)
    return train(policy, data, max_epoch, calls, writer, log_interval, verbose, resume_from_log)


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
    counts = {"update_per_epoch": update_per_epoch, "episode_per_test": episode_per_test, "batch_size": batch_size}
    _check(policy, {"test_collector": test_collector}, counts, seed)
    if "batch_size" not in {field.name for field in dataclasses.fields(policy.algorithm.config)}:
        raise UsageError(f"offline_trainer: {_algo(policy)} learns by acting alone: use onpolicy_trainer")
    _set(policy, {"batch_size": batch_size, "steps_per_iteration": _iteration(update_per_epoch, 1)})
    data = _data(test_collector, test_collector, update_per_epoch, episode_per_test, seed, buffer)
    calls = Calls(None, test_fn, stop_fn, save_best_fn, save_checkpoint_fn, False, reward_metric)
    return train(policy, data, max_epoch, calls, writer, log_interval, verbose, resume_from_log)


trainer = SimpleNamespace(
    offpolicy_trainer=offpolicy_trainer, onpolicy_trainer=onpolicy_trainer, offline_trainer=offline_trainer
)


def _one(name: str, value: int | None, other: str, again: int | None) -> int:
    """A number that has two names."""
    if value is not None and again is not None and value != again:
        raise UsageError(f"{name} {value} and {other} {again} say the same: give one of them")
    return counted(name, value if value is not None else again)


def _check(policy: Any, collectors: dict[str, Any], counts: dict[str, Any], seed: Any) -> None:
    """Refuse by name what is no policy, no collector or no count."""
    if not isinstance(policy, LitPolicy):
        raise UsageError(f"policy {policy!r} is not allowed: give LitPolicy(algo, datamodule.spaces)")
    for name, collector in collectors.items():
        if not isinstance(collector, Collector):
            raise UsageError(f"{name} {collector!r} is not allowed: give Collector(policy, env)")
    for name, count in counts.items():
        counted(name, count)
    counted("seed", seed, 0)


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
        eval_env=test.env,
        num_envs=train.num_envs,
        vector_env=train.vector_env,
        step_per_epoch=epoch,
        episode_per_test=episodes,
        num_test_envs=min(test.num_envs, episodes),
        test_episodes=episodes,
        seed=seed,
        input=recorded,
        validation_fraction=0.0,
    )
