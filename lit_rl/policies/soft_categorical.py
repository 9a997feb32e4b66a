"""A categorical distribution over discrete actions with soft action values of all of them."""

from __future__ import annotations

import math

import numpy as np
import torch
from gymnasium import spaces as gs
from torch import Tensor, nn

from lit_rl.envs.spaces import Spaces, describe
from lit_rl.errors import UsageError
from lit_rl.functional.distributions import mask_logits
from lit_rl.functional.tree import Tree
from lit_rl.networks.architecture import Architecture
from lit_rl.networks.critics import DiscreteCritic
from lit_rl.networks.host import host_forward
from lit_rl.policies.actor_critic import StochasticActor
from lit_rl.policies.base import Acted, HostAct, Policy, action_mask
from lit_rl.policies.soft import SoftPolicy

ENTROPY_SHARE = 0.98  # of the largest entropy there is (Christodoulou 2019, appendix B)


class SoftCategorical(SoftPolicy):
    """Discrete actions by their probability; the greedy one is the likeliest. Expectations are sums over all actions."""

    actor: StochasticActor
    critic: DiscreteCritic
    noise_size = 0

    def __init__(self, spaces: Spaces, architecture: Architecture, critics: int, alpha: float) -> None:
        if not isinstance(spaces.action, gs.Discrete):
            raise UsageError(f"discrete SAC needs a Discrete action space, not {describe(spaces.action)}")
        self._actions = int(spaces.action.n)
        actor = StochasticActor(spaces, architecture)
        critic = DiscreteCritic(critics, spaces, self._actions, architecture)
        super().__init__(spaces, actor, critic, alpha)

    def act(self, obs: Tree, noise: Tensor | None = None, state: Tree = None) -> Acted:
        logits, distribution = self.actor(obs), self.actor.distribution
        return Acted(distribution.mode(logits) if noise is None else distribution.sample(logits, noise), None)

    def log_prob(self, obs: Tree, action: Tensor) -> Tensor:
        return self.actor.distribution.log_prob(self.actor(obs), action)

    def divergence(self, other: Policy, obs: Tree) -> Tensor:
        assert isinstance(other, SoftCategorical)
        return self.actor.distribution.kl(self.actor(obs), other.actor.distribution, other.actor(obs))

    def q_values(self, obs: Tree) -> Tensor:
        """The smaller of the K action values, (B, A); the lowest finite number where an action is masked out."""
        return mask_logits(self.critic.all_values(obs).amin(0), action_mask(obs))

    def soft_value(self, critic: nn.Module, obs: Tree, noise: Tensor, alpha: Tensor) -> tuple[Tensor, Tensor]:
        assert isinstance(critic, DiscreteCritic)
        log_prob_BA = self.actor(obs).squeeze(1).log_softmax(1)
        probability_BA = log_prob_BA.exp()
        mask = action_mask(obs)
        if mask is not None:  # 0 * log 0 is 0
            log_prob_BA = log_prob_BA.masked_fill(~mask, 0.0)
        q_BA = critic.all_values(obs).amin(0)
        value_B = (probability_BA * (q_BA - alpha * log_prob_BA)).sum(1)
        return value_B, (probability_BA * log_prob_BA).sum(1)

    def target_entropy(self, obs: Tree) -> Tensor | float:
        """0.98 log A, with A the number of allowed actions (Christodoulou 2019, appendix B)."""
        mask = action_mask(obs)
        if mask is None:
            return ENTROPY_SHARE * math.log(self._actions)
        return ENTROPY_SHARE * mask.sum(1).to(self.log_alpha.dtype).log()

    def draw(self, steps: int, envs: int, generator: torch.Generator) -> Tensor:
        return self.actor.distribution.draw(steps, envs, generator)

    def random(self, obs: Tree, noise: Tensor) -> Tensor:
        return self.actor.distribution.random(noise, obs)

    def host_act(self) -> HostAct | None:
        forward, sample = host_forward(self.actor.layers), self.actor.distribution.host_sample
        return None if forward is None else lambda obs, noise: sample(forward(obs), noise)

    def env_action(self, action: np.ndarray) -> np.ndarray:
        return self.actor.distribution.to_env(action)
