"""Networks as users write them, by import path ``own_nets:Name``; all but the first three are wrong in one way."""

from __future__ import annotations

import torch
from torch import nn


class Widened(nn.Module):
    """One layer on a flat observation."""

    def __init__(self, space, width=8):
        super().__init__()
        self.output_size = width
        self.net = nn.Linear(space.shape[0], width)

    def forward(self, obs):
        return self.net(obs).tanh()


class ByParts(nn.Module):
    """Looks at two parts of a dict in two ways, one of them a number that follows from its place in a table."""

    def __init__(self, space):
        super().__init__()
        self.output_size = 4
        first = space["place"].start
        self.first = int(first)
        self.table = nn.Embedding(int(space["place"].n), 3)
        self.net = nn.LazyLinear(1)

    def forward(self, obs):
        return torch.cat([self.table(obs["place"] - self.first), self.net(obs["image"].flatten(1) / 255)], 1)


class HalfFrozen(Widened):
    """A layer that is not to be learned."""

    def __init__(self, space, width=8):
        super().__init__(space, width)
        self.frozen = nn.Linear(width, width).requires_grad_(False)

    def forward(self, obs):
        return self.frozen(super().forward(obs))


class WrongSize(Widened):
    def __init__(self, space):
        super().__init__(space, 8)
        self.output_size = 9


class NoSize(Widened):
    def __init__(self, space):
        super().__init__(space)
        del self.output_size


class NoBatch(Widened):
    def forward(self, obs):
        return super().forward(obs).sum(0)


class Whole(Widened):
    def forward(self, obs):
        return super().forward(obs).long()


class Pair(Widened):
    def forward(self, obs):
        return super().forward(obs), None


class Idle(Widened):
    def __init__(self, space):
        super().__init__(space)
        self.spare = nn.Linear(2, 2)


class Raising(Widened):
    def forward(self, obs):
        raise KeyError("there")


class NoModule:
    def __init__(self, space):
        self.output_size = 3
