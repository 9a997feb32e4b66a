"""An env that only a memory solves."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np


class Recall(gym.Env[np.ndarray, Any]):
    """Shows a cue in the first step only and asks for it in the last one: 1 for the right answer, 0 for the other.

    What is shown afterwards is the same for both cues, so whoever remembers nothing is paid a half in the mean, and the
    best possible return is 1.
    """

    observation_space = gym.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, length: int = 5, truncates: bool = False) -> None:
        self.length, self.truncates = length, truncates

    def look(self) -> np.ndarray:
        return np.array([self.cue if self.t == 0 else 0.0, self.t == self.length - 1], np.float32)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.cue = 1.0 if self.np_random.random() < 0.5 else -1.0
        self.t = 0
        return self.look(), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        asked = self.t == self.length - 1
        reward = float(asked and (2 * action - 1) == self.cue)
        self.t += 1
        return self.look(), reward, asked and not self.truncates, asked and self.truncates, {}
