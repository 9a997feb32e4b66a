"""Ensembles: K networks of one shape as one module, a single product for each layer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

from lit_rl.networks.mlp import make_activation


class EnsembleLinear(nn.Module):
    """K linear layers side by side: (K, B, in) -> (K, B, out), each initialised as `nn.Linear` is."""

    def __init__(self, members: int, features: int, units: int) -> None:
        super().__init__()
        bound = 1 / math.sqrt(features)
        self.weight = nn.Parameter(torch.empty(members, units, features).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(members, 1, units).uniform_(-bound, bound))

    def forward(self, x: Tensor) -> Tensor:
        return torch.baddbmm(self.bias, x, self.weight.mT)


class EnsembleMLP(nn.Module):
    """K multi-layer perceptrons that see the same input: (B, sizes[0]) -> (K, B, sizes[-1])."""

    def __init__(self, members: int, sizes: Sequence[int], activation: str) -> None:
        """Raises UsageError for an unknown activation."""
        super().__init__()
        self.members = members
        layers: list[nn.Module] = []
        for features, units in pairwise(sizes):
            layers += [EnsembleLinear(members, features, units), make_activation(activation)]
        self.layers = nn.Sequential(*layers[:-1])

    @property
    def output(self) -> EnsembleLinear:
        """The last layer."""
        last = self.layers[-1]
        assert isinstance(last, EnsembleLinear)
        return last

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.layers(x.expand(self.members, *x.shape))
        return out
