"""Prioritized experience replay: Schaul et al. 2016 (arXiv:1511.05952), proportional variant."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from lit_rl.data.plans import Prioritized


class SumTree:
    """Numbers >= 0 with the sums of all pairs, pairs of pairs, ... above them; leaf i is number i.

    Sums are added up anew along each changed path, so that no rounding error piles up.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._depth = max(1, (capacity - 1).bit_length())
        self._first = 1 << self._depth  # of the leaves; node i has the children 2 i and 2 i + 1
        self._nodes = np.zeros(2 * self._first)

    @property
    def total(self) -> float:
        """The sum of all numbers."""
        return float(self._nodes[1])

    @property
    def leaves(self) -> np.ndarray:
        """The numbers, (capacity,): a view."""
        return self._nodes[self._first : self._first + self.capacity]

    def set(self, index: np.ndarray, value: np.ndarray | float) -> None:
        """Write ``value`` at the leaves ``index`` (B,); the last counts where one stands twice."""
        node, nodes = index + self._first, self._nodes
        nodes[node] = value
        for _ in range(self._depth):
            node = node >> 1
            nodes[node] = nodes[2 * node] + nodes[2 * node + 1]

    def refresh(self) -> None:
        """Add everything up again, after a change of many leaves."""
        for level in range(self._depth - 1, -1, -1):
            first = 1 << level
            below = self._nodes[2 * first : 4 * first]
            self._nodes[first : 2 * first] = below[::2] + below[1::2]

    def find(self, prefix: np.ndarray) -> np.ndarray:
        """The leaves (B,) in which running sums reach ``prefix`` (B,) in [0, total); never one that is 0."""
        node, rest, nodes = np.ones(len(prefix), np.int64), prefix.copy(), self._nodes
        for _ in range(self._depth):
            node = 2 * node
            left = nodes[node]
            right = (rest >= left) & (nodes[node + 1] > 0)  # rounding can carry a prefix past the end
            rest = np.where(right, rest - left, rest)
            node += right
        return node - self._first


class Priorities:
    """The priority of every row of a replay buffer: 0 where there is no transition, the largest so far where it is new."""

    def __init__(self, plan: Prioritized, rows: int) -> None:
        self.plan = plan
        self._tree = SumTree(rows)
        self._largest = 1.0  # of p^alpha

    def renew(self, rows: np.ndarray, is_transition: np.ndarray) -> None:
        """Rows (B,) hold something new, a transition or (both (B,)) not."""
        self._tree.set(rows, np.where(is_transition, self._largest, 0.0))

    def renew_all(self, is_transition: np.ndarray) -> None:
        """All rows hold something new."""
        self._tree.leaves[:] = np.where(is_transition, self._largest, 0.0)
        self._tree.refresh()

    def draw(self, n: int, beta: float, generator: torch.Generator) -> tuple[np.ndarray, Tensor]:
        """Rows (n,) by priority, one from each n-th of the total, and their importance weights (n,), at most 1.

        Weights are (N P(i))^-beta over the largest of the minibatch (section 3.4): N cancels out.
        """
        at = torch.rand(n, dtype=torch.float64, generator=generator).numpy()
        rows = self._tree.find((np.arange(n) + at) * (self._tree.total / n))
        priority = self._tree.leaves[rows]
        weight = (priority / priority.min()) ** -beta
        return rows, torch.from_numpy(weight.astype(np.float32))

    def update(self, rows: np.ndarray, td_error: Tensor) -> None:
        """Set the priorities of rows (B,) by their TD errors (B,)."""
        priority = (td_error.abs().cpu().numpy().astype(np.float64) + self.plan.eps) ** self.plan.alpha
        self._tree.set(rows, priority)
        self._largest = max(self._largest, float(priority.max()))

    def state_dict(self) -> dict[str, Any]:
        """Plain Python and tensors."""
        return {"priority": torch.from_numpy(self._tree.leaves.copy()), "largest": self._largest}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from saved priorities of as many rows."""
        self._tree.leaves[:] = state["priority"].numpy()
        self._tree.refresh()
        self._largest = state["largest"]
