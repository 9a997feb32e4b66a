"""The torso: from an observation to the features that heads read."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
from torch import Tensor, nn

from lit_rl.functional.tree import Tree
from lit_rl.networks.architecture import Architecture
from lit_rl.networks.mlp import mlp


class Torso(nn.Module):
    """An encoder and hidden layers, each followed by the activation: Tree of [B, ...] -> (B, features).

    Raises UsageError as its parts do.
    """

    def __init__(self, space: gym.Space[Any], architecture: Architecture) -> None:
        super().__init__()
        self.encoder = architecture.encoder(space)
        sizes = [self.encoder.features, *architecture.hidden_sizes]
        self.mlp = mlp(sizes, architecture.activation, output=architecture.activation)
        self.features = sizes[-1]

    @property
    def layers(self) -> list[nn.Module] | None:
        """The layers one after the other, where nothing else happens to an observation; else None."""
        return list(self.mlp) if self.encoder.is_identity else None

    def forward(self, obs: Tree) -> Tensor:
        features: Tensor = self.mlp(self.encoder(obs))
        return features
