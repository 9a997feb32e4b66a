"""Environments one after the other in this process, without what Gymnasium's own vector env spends on each step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.vector.utils import concatenate

if TYPE_CHECKING:  # it takes parameters only from Gymnasium 1.3 on
    _SyncVectorEnv = SyncVectorEnv[Any, Any]
else:
    _SyncVectorEnv = SyncVectorEnv


class SyncEnvs(_SyncVectorEnv):
    """A SyncVectorEnv that reports the infos of the steps that end an episode only (or, if told so, of all), and copies nothing.

    Every step writes into the same arrays: copy what is to be kept. Actions are arrays.

    Args:
        makers: make the environments.
        autoreset_mode: SAME_STEP, or DISABLED, where whoever steps resets what has ended first.
    """

    def __init__(self, makers: Sequence[Callable[[], gym.Env[Any, Any]]], autoreset_mode: AutoresetMode) -> None:
        super().__init__(makers, copy=False, autoreset_mode=autoreset_mode)
        self._resets = autoreset_mode == AutoresetMode.SAME_STEP
        self._plain = isinstance(self.single_observation_space, gym.spaces.Box)
        self.every_info = False  # merging infos costs as much as a step

    def step(self, actions: Any) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """As Gymnasium's."""
        infos: dict[str, Any] = {}
        seen: Any = self._env_obs
        observations: Any = self._observations
        plain, rewards, terminations, truncations = self._plain, self._rewards, self._terminations, self._truncations
        terminations.fill(False)
        truncations.fill(False)
        for i, (env, action) in enumerate(zip(self.envs, actions, strict=True)):
            obs, rewards[i], terminated, truncated, info = env.step(action)
            if terminated or truncated:
                terminations[i], truncations[i] = terminated, truncated
                if self._resets:
                    infos = self._add_info(infos, {"final_obs": obs, "final_info": info}, i)
                    obs, info = env.reset()
            if terminated or truncated or self.every_info:
                infos = self._add_info(infos, info, i)
            seen[i] = obs
            if plain:
                observations[i] = obs
        if not plain:
            self._observations = concatenate(self.single_observation_space, self._env_obs, self._observations)
        return self._observations, rewards, terminations, truncations, infos
