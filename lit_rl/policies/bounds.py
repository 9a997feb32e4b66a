"""Boxes of actions in a policy's own units."""

from __future__ import annotations

import math
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces as gs
from torch import Tensor

from lit_rl.envs.spaces import describe
from lit_rl.errors import UsageError


class BoxUnits:
    """A Box of actions, flat and with each finite pair of bounds at -1 and 1.

    A number whose bounds are not both finite stays as it is, clipped to what there is.
    """

    def __init__(self, space: gs.Box) -> None:
        self.space = space
        low, high = (bound.reshape(-1).astype(np.float64) for bound in (space.low, space.high))
        finite = np.isfinite(low) & np.isfinite(high) & (high - low < 1e30)  # float32's largest number bounds nothing
        self.size, self.bounded = low.size, bool(finite.all())
        self._low, self._high = np.where(finite, -1.0, low), np.where(finite, 1.0, high)
        self._scale = np.where(finite, (high - low) / 2, 1.0) if finite.any() else np.ones(low.size)
        self._shift = np.where(finite, low + self._scale, 0.0) if finite.any() else np.zeros(low.size)
        self._plain = bool((self._scale == 1).all() and (self._shift == 0).all())
        self._whole = not np.issubdtype(space.dtype, np.floating)
        self._own_low, self._own_high = space.low.reshape(-1), space.high.reshape(-1)
        if self._plain and not self._whole:  # the policy's units are the space's: no detour by float64
            self._low, self._high = self._low.astype(space.dtype), self._high.astype(space.dtype)

    def to_env(self, action: np.ndarray) -> np.ndarray:
        """Actions (B, size) in the policy's units, clipped to the bounds, as the space has them: (B, *shape)."""
        clipped = action.clip(self._low, self._high)
        if not self._plain:
            # rounding must not step over a bound
            clipped = (clipped * self._scale + self._shift).clip(self._own_low, self._own_high)
        if self._whole:
            clipped = np.rint(clipped)
        return clipped.reshape(len(action), *self.space.shape).astype(self.space.dtype, copy=False)

    def to_env_tensor(self, action: Tensor) -> Tensor:
        """:meth:`to_env` in torch, for graphs."""
        low, high, scale, shift = (torch.from_numpy(x) for x in (self._low, self._high, self._scale, self._shift))
        clipped = action.double().clamp(low, high)
        if not self._plain:
            bounds = (torch.from_numpy(b.reshape(-1).astype(np.float64)) for b in (self.space.low, self.space.high))
            clipped = (clipped * scale + shift).clamp(*bounds)
        if self._whole:
            clipped = clipped.round()
        dtype = torch.from_numpy(np.zeros(0, self.space.dtype)).dtype
        return clipped.reshape(-1, *self.space.shape).to(dtype)

    def from_env(self, action: np.ndarray) -> np.ndarray:
        """Actions (B, *shape) as the space has them in the policy's units: (B, size) float32."""
        flat = (action.reshape(len(action), -1) - self._shift) / self._scale
        inside: np.ndarray = flat.clip(self._low, self._high).astype(np.float32)
        return inside


def bounded_units(action: gym.Space[Any], algorithm: str) -> BoxUnits:
    """The units of a policy whose actions end at the bounds.

    Raises:
        UsageError: the actions are no Box, or one of its bounds is infinite.
    """
    if not isinstance(action, gs.Box):
        raise UsageError(f"{algorithm} needs a Box action space, not {describe(action)}")
    units = BoxUnits(action)
    if not units.bounded:
        raise UsageError(
            f"{algorithm} scales its actions to the bounds of the action space, and those of {describe(action)} are "
            "infinite: give the env finite ones (gymnasium.wrappers.RescaleAction), or use PPO"
        )
    return units


def uniform(normal: Tensor) -> Tensor:
    """Uniform numbers in (-1, 1) from standard normal ones, of any shape."""
    return torch.erf(normal / math.sqrt(2))
