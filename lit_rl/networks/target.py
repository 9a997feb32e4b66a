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
        # by name, as moving a module to a device replaces its buffers; those that are not saved never change
        self._buffers = [
            (mine._buffers, theirs._buffers, name)
            for mine, theirs in zip(self.follower.modules(), leader.modules(), strict=True)
            for name, buffer in mine._buffers.items()
            if buffer is not None and name not in mine._non_persistent_buffers_set
        ]

    @torch.no_grad()
    def move(self, share: float) -> None:
        """Take this share of every leader's weight, in (0, 1]: 1 copies; running statistics are always copied."""
        torch._foreach_lerp_(self._mine, self._theirs, share)
        for mine, theirs, name in self._buffers:
            mine[name].copy_(theirs[name])  # type: ignore[union-attr, arg-type]
