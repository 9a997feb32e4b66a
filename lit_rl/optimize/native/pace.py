"""How long a run goes on, as it looks from inside."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence


class Pace:
    """Counts that grow with the run, and when they were first seen."""

    def __init__(self) -> None:
        self._began: tuple[float, list[int]] | None = None

    def seconds_left(self, limits: Sequence[tuple[int, float | None]]) -> float:
        """Until the first of these counts reaches its limit (None for no limit); 0 while nothing is known."""
        now = time.perf_counter()
        if self._began is None:
            self._began = now, [count for count, _ in limits]
            return 0.0
        began, first = self._began
        left = math.inf
        for (count, limit), count_then in zip(limits, first, strict=True):
            if limit is not None:
                left = min(left, (limit - count) * (now - began) / max(count - count_then, 1))
        return left
