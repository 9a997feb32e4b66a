"""Critics: K action-value functions as one module. What encodes the observation (a CNN, say) is shared by the K."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from lit_rl.envs.spaces import Spaces
from lit_rl.functional.tree import Tree
from lit_rl.networks.architecture import Architecture
from lit_rl.networks.ensemble import EnsembleMLP


class ContinuousCritic(nn.Module):
    """Q(s, a) for actions that are vectors of A numbers: observations and (B, A) -> (K, B)."""

    def __init__(self, members: int, spaces: Spaces, actions: int, architecture: Architecture) -> None:
        super().__init__()
        self.encoder = architecture.encoder(spaces.observation)
        sizes = [self.encoder.features + actions, *architecture.hidden_sizes, 1]
        self.mlp = EnsembleMLP(members, sizes, architecture.activation)

    def forward(self, obs: Tree, action: Tensor) -> Tensor:
        features = self.encoder(obs)
        q_KB1: Tensor = self.mlp(torch.cat([features, action.to(features.dtype)], dim=1))
        return q_KB1.squeeze(2)


class DiscreteCritic(nn.Module):
    """Q(s, a) for A discrete actions: observations and (B,) -> (K, B), or of all actions at once."""

    def __init__(self, members: int, spaces: Spaces, actions: int, architecture: Architecture) -> None:
        super().__init__()
        self.encoder = architecture.encoder(spaces.observation)
        sizes = [self.encoder.features, *architecture.hidden_sizes, actions]
        self.mlp = EnsembleMLP(members, sizes, architecture.activation)

    def all_values(self, obs: Tree) -> Tensor:
        """The values (K, B, A) of all actions."""
        q_KBA: Tensor = self.mlp(self.encoder(obs))
        return q_KBA

    def forward(self, obs: Tree, action: Tensor) -> Tensor:
        q_KBA = self.all_values(obs)
        return q_KBA.gather(2, action.expand(len(q_KBA), -1).unsqueeze(2)).squeeze(2)
