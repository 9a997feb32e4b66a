"""Target networks: a copy that follows."""

from __future__ import annotations

import copy
from typing import Generic, TypeVar

import torch
from torch import Tensor, nn

Net = TypeVar("Net", bound=nn.Module)


class Follower(Generic[Net]):
    """Moves ``follower``, at first a copy of ``leader``, towards it; both keep their parameter objects for good.

    Not a module: its owner registers ``follower`` itself.
    """

    def __init__(self, leader: Net) -> None:
        self.follower: Net = copy.deepcopy(leader).requires_grad_(False)
        # walking a module's parameters costs more than moving them
        self._mine: list[Tensor] = list(self.follower.parameters())
        self._theirs: list[Tensor] = list(leader.parameters())
        self._buffers = list(zip(self.follower.buffers(), leader.buffers(), strict=True))

    @torch.no_grad()
    def move(self, share: float) -> None:
        """Take this share of every leader's weight, in (0, 1]: 1 copies; running statistics are always copied."""
        torch._foreach_lerp_(self._mine, self._theirs, share)
        for mine, theirs in self._buffers:
            mine.copy_(theirs)
