"""Heads: what is read off a torso's features."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from lit_rl.functional.distributional import kl_to_logits, project
from lit_rl.functional.losses import huber
from lit_rl.networks.noisy import NoisyLinear


class QHead(nn.Module):
    """Action values of A discrete actions: (B, features) -> (B, A); and how they are learned from a bootstrap.

    Args:
        features: width of the input.
        actions: A.
        dueling: split them into a state value and advantages with mean 0 (Wang et al. 2016, arXiv:1511.06581, eq. 9).
        sigma0: noise at the start of noisy weights; None for plain ones.
    """

    atoms = 1  # numbers that stand for one value

    def __init__(self, features: int, actions: int, dueling: bool = False, sigma0: float | None = None) -> None:
        super().__init__()
        self.dueling = dueling
        # the state value is one more column of the same product: one matmul instead of two
        units = (actions + dueling) * self.atoms
        self.linear = nn.Linear(features, units) if sigma0 is None else NoisyLinear(features, units, sigma0)
        self.noise_size = 0 if sigma0 is None else features + units

    def forward(self, features: Tensor, noise: Tensor | None = None) -> Tensor:
        out: Tensor = self.linear(features) if noise is None else self.linear(features, noise)
        return self._combine(out)

    def _combine(self, out: Tensor) -> Tensor:
        """The state value, the first along dimension 1, and the advantages become action values."""
        if not self.dueling:
            return out
        value, advantage = out[:, :1], out[:, 1:]
        return value + advantage - advantage.mean(dim=1, keepdim=True)

    def values(self, out: Tensor) -> Tensor:
        """The expected values that outputs stand for."""
        return out

    def of_action(self, out: Tensor, action: Tensor) -> Tensor:
        """The outputs of one action (B,) each."""
        return out.gather(1, action[:, None]).squeeze(1)

    def bellman(self, reward: Tensor, discount: Tensor, following: Tensor) -> Tensor:
        """The target of a value: reward + discount * what follows, the outputs of the next actions."""
        return reward + discount * following

    def loss(self, out: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        """The loss of one action's outputs and their TD error, both (B,)."""
        td_error = target - out
        return huber(td_error), td_error


class CategoricalQHead(QHead):
    """Logits of the return's distribution over `atoms` values from `v_min` to `v_max`: (B, features) -> (B, A, Z).

    C51 (Bellemare et al. 2017, arXiv:1707.06887). Its TD error is the loss, as in Rainbow (Hessel et al. 2018).
    """

    support: Tensor

    def __init__(
        self,
        features: int,
        actions: int,
        dueling: bool,
        sigma0: float | None,
        atoms: int,
        v_min: float,
        v_max: float,
    ) -> None:
        self.atoms = atoms
        super().__init__(features, actions, dueling, sigma0)
        self.register_buffer("support", torch.linspace(v_min, v_max, atoms), persistent=False)

    def forward(self, features: Tensor, noise: Tensor | None = None) -> Tensor:
        out: Tensor = self.linear(features) if noise is None else self.linear(features, noise)
        return self._combine(out.view(out.shape[0], -1, self.atoms))

    def values(self, out: Tensor) -> Tensor:
        return (out.softmax(-1) * self.support).sum(-1)

    def of_action(self, out: Tensor, action: Tensor) -> Tensor:
        return out.gather(1, action[:, None, None].expand(-1, 1, self.atoms)).squeeze(1)

    def bellman(self, reward: Tensor, discount: Tensor, following: Tensor) -> Tensor:
        return project(reward, discount, following.softmax(-1), self.support)

    def loss(self, out: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        kl = kl_to_logits(target, out)
        return kl, kl


class ValueHead(nn.Module):
    """The value of a state: (B, features) -> (B,)."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.linear = nn.Linear(features, 1)

    def forward(self, features: Tensor) -> Tensor:
        value: Tensor = self.linear(features)
        return value.squeeze(1)
