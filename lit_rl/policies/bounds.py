"""Boxes of actions in a policy's own units."""

from __future__ import annotations

import numpy as np
from gymnasium import spaces as gs


class BoxUnits:
    """A Box of actions, flat and with each finite pair of bounds at -1 and 1.

    A number whose bounds are not both finite stays as it is, clipped to what there is.
    """

    def __init__(self, space: gs.Box) -> None:
        self.space = space
        low, high = (bound.reshape(-1).astype(np.float64) for bound in (space.low, space.high))
        finite = np.isfinite(low) & np.isfinite(high) & (high - low < 1e30)  # float32's largest number bounds nothing
        self.size = low.size
        self._low, self._high = np.where(finite, -1.0, low), np.where(finite, 1.0, high)
        self._scale = np.where(finite, (high - low) / 2, 1.0) if finite.any() else np.ones(low.size)
        self._shift = np.where(finite, low + self._scale, 0.0) if finite.any() else np.zeros(low.size)
        self._plain = bool((self._scale == 1).all() and (self._shift == 0).all())
        self._whole = not np.issubdtype(space.dtype, np.floating)

    def to_env(self, action: np.ndarray) -> np.ndarray:
        """Actions (B, size) in the policy's units, clipped to the bounds, as the space has them: (B, *shape)."""
        clipped = action.clip(self._low, self._high)
        if not self._plain:
            # rounding must not step over a bound
            clipped = (clipped * self._scale + self._shift).clip(
                self.space.low.reshape(-1), self.space.high.reshape(-1)
            )
        if self._whole:
            clipped = np.rint(clipped)
        return clipped.reshape(len(action), *self.space.shape).astype(self.space.dtype, copy=False)
