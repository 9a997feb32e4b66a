"""Fully connected layers."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from torch import nn

from lit_rl.errors import UsageError

ACTIVATIONS: dict[str, type[nn.Module]] = {
    "relu": nn.ReLU,
    "tanh": nn.Tanh,
    "elu": nn.ELU,
    "gelu": nn.GELU,
    "silu": nn.SiLU,
}


def make_activation(name: str) -> nn.Module:
    """The activation called `name`; raises UsageError that lists the known ones."""
    if name not in ACTIVATIONS:
        raise UsageError(f"--activation {name} is unknown; known: {', '.join(ACTIVATIONS)}")
    return ACTIVATIONS[name]()


def mlp(sizes: Sequence[int], activation: str, output: str | None = None) -> nn.Sequential:
    """Linear layers `sizes[0] -> sizes[1] -> ...`, (B, sizes[0]) -> (B, sizes[-1]), an activation between each two.

    `output` names the activation after the last layer (None: none). One size alone is the identity.
    Raises UsageError for an unknown activation or a size under 1.
    """
    if min(sizes) < 1:
        raise UsageError(f"layer sizes must be at least 1, not {list(sizes)}")
    layers: list[nn.Module] = []
    for i, (features, units) in enumerate(pairwise(sizes)):
        last = i == len(sizes) - 2
        layers.append(nn.Linear(features, units))
        if not last:
            layers.append(make_activation(activation))
        elif output is not None:
            layers.append(make_activation(output))
    return nn.Sequential(*layers)
