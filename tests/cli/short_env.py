"""An env that ends soon, and fails when it is told to."""

from __future__ import annotations

import gymnasium as gym
import numpy as np


class Short(gym.Env[np.ndarray, int]):
    """Three steps of nothing; it can break, or show NaN, at a step."""

    observation_space = gym.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, breaks_at: int | None = None, nan_at: int | None = None) -> None:
        self.breaks_at, self.nan_at, self.total = breaks_at, nan_at, 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.t, self.total = self.t + 1, self.total + 1
        if self.total == self.breaks_at:
            raise KeyError("the env's own mistake")
        value = np.nan if self.total == self.nan_at else 0.1 * self.t
        return np.full(2, value, np.float32), 1.0, self.t == 3, False, {}
