"""The interface of policies that soft actor-critic learns: an actor, K soft action values, and a temperature."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from lit_rl.envs.spaces import Spaces
from lit_rl.functional.tree import Tree
from lit_rl.policies.base import Policy


class SoftPolicy(Policy):
    """A stochastic policy that is paid for its entropy.

    The temperature is part of it, so that a second stage goes on with the one it was learned at.
    """

    beside = ("critic", "log_alpha")
    critic: nn.Module
    noise_size: int  # standard normal numbers of each observation that soft_value takes

    def __init__(self, spaces: Spaces, actor: nn.Module, critic: nn.Module, alpha: float) -> None:
        super().__init__(spaces)
        self.actor, self.critic = actor, critic
        self.log_alpha = nn.Parameter(torch.tensor(math.log(alpha)))

    def soft_value(self, critic: nn.Module, obs: Tree, noise: Tensor, alpha: Tensor) -> tuple[Tensor, Tensor]:
        """V(s) = E_a[min_k Q_k(s, a) - alpha log pi(a|s)] and E_a[log pi(a|s)], both (B,), by one action or over all.

        Haarnoja et al. 2018 (arXiv:1812.05905), eq. 3, with the smaller of the K values.

        Args:
            critic: the action values to use, this policy's own or their target.
            obs: B observations.
            noise: standard normal, (B, noise_size).
            alpha: the temperature, one number.
        """
        raise NotImplementedError

    def target_entropy(self, obs: Tree) -> Tensor | float:
        """The entropy that the temperature is tuned for where nobody names one: a number, or one for each of B."""
        raise NotImplementedError
