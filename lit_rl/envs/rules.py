"""Where episodes end and what is paid, whatever the environment says."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np


@dataclass(frozen=True)
class Rules:
    """Changes to an environment's episodes and rewards; by default none (see EnvConfig)."""

    max_episode_steps: int | None = None
    soft_reset: bool = False
    no_termination: bool = False
    clip_rewards: bool = False

    def wrap(self, env: gym.Env[Any, Any]) -> gym.Env[Any, Any]:
        """The environment under these rules."""
        if self.clip_rewards:
            env = SignOfReward(env)
        if self.no_termination:
            env = NoTermination(env)
        if self.max_episode_steps is not None:
            env = Limit(env, self.max_episode_steps, self.soft_reset)
        return env


class SignOfReward(gym.Wrapper[Any, Any, Any, Any]):
    """Pays -1, 0 or 1: the sign of the reward."""

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """As Gymnasium's."""
        obs, reward, terminated, truncated, info = self.env.step(action)
        return obs, float(np.sign(float(reward))), terminated, truncated, info


class NoTermination(gym.Wrapper[Any, Any, Any, Any]):
    """Where an episode terminates it is truncated: the value of what would come next counts."""

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """As Gymnasium's."""
        obs, reward, terminated, truncated, info = self.env.step(action)
        return obs, reward, False, terminated or truncated, info


class Limit(gym.Wrapper[Any, Any, Any, Any]):
    """Truncates an episode after ``steps`` env steps.

    With ``soft`` the next episode goes on from there: the environment is reset only where it ended by itself, or by a
    reset with a seed.
    """

    def __init__(self, env: gym.Env[Any, Any], steps: int, soft: bool) -> None:
        super().__init__(env)
        self._limit, self._soft = steps, soft
        self._made = 0
        self._goes_on = False  # the episode was cut, and the environment had not ended
        self._now: tuple[Any, dict[str, Any]] = (None, {})

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """As Gymnasium's."""
        self._made = 0
        if not (self._goes_on and seed is None):
            self._now = self.env.reset(seed=seed, options=options)
        self._goes_on = False
        return self._now

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """As Gymnasium's."""
        obs, reward, terminated, truncated, info = self.env.step(action)
        self._made += 1
        if self._made >= self._limit:
            self._goes_on = self._soft and not (terminated or truncated)
            truncated, self._now = True, (obs, info)
        return obs, reward, terminated, truncated, info
