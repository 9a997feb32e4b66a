"""The torso: from an observation to the features that heads read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium as gym
from torch import Tensor, nn

from lit_rl.functional.tree import Tree
from lit_rl.networks.custom import MakeEncoder
from lit_rl.networks.encoder import Encoder
from lit_rl.networks.mlp import mlp


class Torso(nn.Module):
    """An encoder and hidden layers, each followed by the activation: Tree of [B, ...] -> (B, features)."""

    def __init__(
        self, space: gym.Space[Any], hidden_sizes: Sequence[int], activation: str, encoder: MakeEncoder = Encoder
    ) -> None:
        """`hidden_sizes` may be empty: the features are then the encoder's. Raises UsageError as its parts do."""
        super().__init__()
        self.encoder = encoder(space)
        self.mlp = mlp([self.encoder.features, *hidden_sizes], activation, output=activation)
        self.features = hidden_sizes[-1] if hidden_sizes else self.encoder.features

    @property
    def layers(self) -> list[nn.Module] | None:
        """The layers one after the other, where nothing else happens to an observation; else None."""
        return list(self.mlp) if self.encoder.is_identity else None

    def forward(self, obs: Tree) -> Tensor:
        features: Tensor = self.mlp(self.encoder(obs))
        return features
