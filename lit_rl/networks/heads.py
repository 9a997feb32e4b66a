"""Heads: what is read off a torso's features."""

from __future__ import annotations

from torch import Tensor, nn


class QHead(nn.Module):
    """Action values of `actions` discrete actions: (B, features) -> (B, A).

    `dueling` splits them into a state value and advantages with mean 0 (Wang et al. 2016, arXiv:1511.06581, eq. 9).
    """

    def __init__(self, features: int, actions: int, dueling: bool = False) -> None:
        super().__init__()
        self.dueling = dueling
        # the state value is one more column of the same product: one matmul instead of two
        self.linear = nn.Linear(features, actions + dueling)

    def forward(self, features: Tensor) -> Tensor:
        out: Tensor = self.linear(features)
        if not self.dueling:
            return out
        value, advantage = out[:, :1], out[:, 1:]
        return value + advantage - advantage.mean(dim=1, keepdim=True)


class ValueHead(nn.Module):
    """The value of a state: (B, features) -> (B,)."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.linear = nn.Linear(features, 1)

    def forward(self, features: Tensor) -> Tensor:
        value: Tensor = self.linear(features)
        return value.squeeze(1)
