"""Code of one's own that is told of every episode, step and batch of training (``--hooks my_pkg:MyHooks``)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import torch

from lit_rl.data.transitions import Steps
from lit_rl.envs.sync import SyncEnvs
from lit_rl.errors import OWN, AlgorithmError, own_traceback
from lit_rl.functional.tree import Tree, tree_map


class HookedEpisode:
    """An episode of training, as its hooks see it.

    Attributes:
        env_index: which of the training envs plays it.
        length: env steps so far.
        return_: undiscounted rewards so far.
        custom_metrics: numbers by name; their mean, smallest and largest over an epoch's episodes are logged as
            ``Train/<name>_mean``, ``_min`` and ``_max``.
        user_data: anything that the hooks want to keep until it ends.
        obs, action, reward, info: of the newest step; at the start there are only ``obs`` and ``info``.
        terminated, truncated: whether it has ended, and how.
    """

    def __init__(self, envs: gym.vector.VectorEnv, env_index: int, obs: Tree) -> None:
        self._envs = envs
        self.env_index, self.obs = env_index, obs
        self.action: Any = None
        self.reward, self.return_, self.length = 0.0, 0.0, 0
        self.terminated = self.truncated = False
        self.info: dict[str, Any] = {}
        self.custom_metrics: dict[str, float] = {}
        self.user_data: dict[str, Any] = {}

    @property
    def env(self) -> gym.Env[Any, Any]:
        """The environment itself, where it lives in this process (``vector_env sync``)."""
        env: gym.Env[Any, Any] = self._envs.envs[self.env_index]  # type: ignore[attr-defined]
        return env


class Hooks:
    """What a run tells: inherit, and override what you want to be told."""

    def before_collect(self, env_steps: int) -> None:
        """Env steps will be collected; the run has made ``env_steps``."""

    def on_episode_start(self, episode: HookedEpisode) -> None:
        """An env has been reset."""

    def on_episode_step(self, episode: HookedEpisode) -> None:
        """An env has made a step."""

    def on_episode_end(self, episode: HookedEpisode) -> None:
        """An episode has ended; its ``custom_metrics`` are taken after this."""

    def on_sample_end(self, steps: Steps) -> Steps | None:
        """A block of steps was collected. Change its arrays in place, or return another of the same shape."""

    def on_postprocess_traj(self, steps: Steps, batch: Any) -> Any:
        """A block is about to be learned from: a rollout as its RolloutBatch, with advantages; for replay the steps.

        Change what is in ``batch`` in place, or return another.
        """

    def on_train_result(self, result: dict[str, Any]) -> None:
        """An epoch is over; ``result``, the row of result.json, may be changed."""


def call(hook: Callable[..., Any], *arguments: Any) -> Any:
    """Call a user's hook, which may ask the policy for values without keeping what led to them.

    Raises:
        AlgorithmError: it raised; the message names it and holds its own part of the traceback.
    """
    try:
        with torch.no_grad():
            return hook(*arguments)
    except Exception as error:
        if isinstance(error, OWN):
            raise
        name = getattr(hook, "__qualname__", str(hook))
        raise AlgorithmError(
            f"--hooks: {name} raised {type(error).__name__}: {error}\n{own_traceback(error)}"
        ) from error


class EpisodeHooks:
    """Follows the episodes of a vector env for :class:`Hooks`."""

    def __init__(self, hooks: Hooks, envs: gym.vector.VectorEnv) -> None:
        self.hooks, self.envs = hooks, envs
        if isinstance(envs, SyncEnvs):
            envs.every_info = True
        self.episodes: list[HookedEpisode] = []

    def begin(self, obs: Tree, info: dict[str, Any]) -> None:
        """All envs have been reset."""
        self.episodes = [self._begun(i, obs, info) for i in range(self.envs.num_envs)]

    def _begun(self, i: int, obs: Tree, info: dict[str, Any]) -> HookedEpisode:
        episode = HookedEpisode(self.envs, i, _row(obs, i))
        episode.info = info_of(info, i)
        call(self.hooks.on_episode_start, episode)
        return episode

    def step(
        self,
        action: np.ndarray,
        obs: Tree,
        reward: np.ndarray,
        terminated: np.ndarray,
        truncated: np.ndarray,
        info: dict[str, Any],
        resetting: np.ndarray,
    ) -> dict[int, dict[str, float]]:
        """A vector step was made, ``resetting`` where it was a reset instead; the metrics of episodes that ended, by env."""
        ended = {}
        for i in range(self.envs.num_envs):
            if resetting[i]:
                self.episodes[i] = self._begun(i, obs, info)
                continue
            episode = self.episodes[i]
            over = bool(terminated[i] or truncated[i])
            reset_already = over and "final_obs" in info
            episode.obs = tree_map(np.array, info["final_obs"][i]) if reset_already else _row(obs, i)
            episode.info = info_of(info["final_info"] if reset_already and "final_info" in info else info, i)
            episode.action, episode.reward = np.array(action[i]), float(reward[i])
            episode.return_ += episode.reward
            episode.length += 1
            episode.terminated, episode.truncated = bool(terminated[i]), bool(truncated[i])
            call(self.hooks.on_episode_step, episode)
            if over:
                call(self.hooks.on_episode_end, episode)
                ended[i] = {name: float(value) for name, value in episode.custom_metrics.items()}
            if reset_already:
                self.episodes[i] = self._begun(i, obs, info)
        return ended


def info_of(info: dict[str, Any], i: int) -> dict[str, Any]:
    """The info of env ``i`` of those that a vector env has put together."""
    found = {}
    for name, values in info.items():
        if name.startswith("_") or name in ("final_obs", "final_info"):
            continue
        there = info.get(f"_{name}")
        if there is None or there[i]:
            found[name] = info_of(values, i) if isinstance(values, dict) else values[i]
    return found


def summarise(metrics: list[dict[str, float]]) -> dict[str, float]:
    """``<name>_mean``, ``_min`` and ``_max`` of each custom metric over the episodes that have it."""
    found: dict[str, float] = {}
    for name in dict.fromkeys(name for one in metrics for name in one):
        values = [one[name] for one in metrics if name in one]
        found |= {f"{name}_mean": float(np.mean(values)), f"{name}_min": min(values), f"{name}_max": max(values)}
    return found


def _row(obs: Tree, i: int) -> Tree:
    return tree_map(lambda x: np.array(x[i]), obs)
