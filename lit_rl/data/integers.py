"""Random whole numbers for whoever needs a few at a time."""

from __future__ import annotations

import numpy as np
import torch


class Integers:
    """Uniform whole numbers: those that ``torch.randint`` makes of the generator, however many are drawn at a time.

    Args:
        generator: what they are drawn from.
        ahead: how many are drawn at once, where nothing else is drawn between them: a few at a time cost more than what
            they are for. 0 draws what is asked for.
    """

    def __init__(self, generator: torch.Generator, ahead: int = 0) -> None:
        self._generator, self._ahead = generator, ahead
        self._drawn = np.zeros(0, np.int64)

    def below(self, bound: int, n: int) -> np.ndarray:
        """Numbers (n,) in [0, bound); bound is below 2^28."""
        if self._ahead == 0:
            drawn: np.ndarray = torch.randint(bound, (n,), generator=self._generator).numpy()
            return drawn
        if len(self._drawn) < n:
            self._drawn = np.concatenate([self._drawn, self._draw(max(n, self._ahead))])
        numbers, self._drawn = self._drawn[:n], self._drawn[n:]
        return numbers % bound

    def _draw(self, n: int) -> np.ndarray:
        """At least ``n`` numbers of 32 bits, of which torch takes the remainder: 64 bits are two of them, the later one low."""
        pairs = torch.empty((n + 1) // 2, dtype=torch.int64).random_(-(2**63), None, generator=self._generator).numpy()
        return pairs.view(np.uint32).reshape(-1, 2)[:, ::-1].reshape(-1).astype(np.int64)

    def cut(self) -> None:
        """Forget what was drawn ahead: the generator's state is then all that the next numbers depend on."""
        self._drawn = self._drawn[:0]
