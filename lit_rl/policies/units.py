"""Actions as an environment takes them, in the units of every policy for its kind of action space."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces as gs

from lit_rl.policies.bounds import BoxUnits


def from_env(space: gym.Space[Any]) -> Callable[[np.ndarray], np.ndarray]:
    """The inverse of every policy's ``env_action`` for this space, on batches of actions.

    Discrete: (B,) int64 from 0; MultiDiscrete and MultiBinary: (B, P) int64 from 0; Box: (B, A) float32, flat, with each
    finite pair of bounds at -1 and 1.
    """
    if isinstance(space, gs.Box):
        return BoxUnits(space).from_env
    start = space.start if isinstance(space, gs.Discrete | gs.MultiDiscrete) else 0

    def to_indices(action: np.ndarray) -> np.ndarray:
        indices = action.astype(np.int64) - start
        return indices if indices.ndim == 1 else indices.reshape(len(indices), -1)

    return to_indices
