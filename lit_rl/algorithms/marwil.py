"""MARWIL: Wang et al. 2018, "Exponentially weighted imitation learning for batched historical data" (NeurIPS 31).

Imitates recorded actions the more, the better they turned out: by exp(beta A / c), with A the return that followed minus the
value of the state, and c^2 a moving average of A^2. With beta 0 it is behaviour cloning.
Differences from the paper: c^2 starts at the first minibatch's mean (RLlib's starts at 100 and hardly moves); weights are cut
at ``max_weight``; the value has its own step instead of a share of one loss; a return that a time limit has cut off
bootstraps from the value; a Gaussian policy's spread has a floor; a torso that actor and critic share learns from imitation
alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from lit_rl.algorithms.base import Algorithm, Loss, Optimize, Progress, Updated, learn_only, learning
from lit_rl.algorithms.offline import OfflineConfig
from lit_rl.data.config import at_least
from lit_rl.data.plans import OfflinePlan
from lit_rl.data.transitions import Transitions
from lit_rl.envs.spaces import Spaces
from lit_rl.errors import UsageError
from lit_rl.functional.losses import explained_variance
from lit_rl.functional.tree import Tree
from lit_rl.networks.heads import ValueHead
from lit_rl.networks.torso import Torso
from lit_rl.policies.actor_critic import ActorCritic
from lit_rl.policies.base import Policy


@dataclass
class MARWILConfig(OfflineConfig):
    """MARWIL"""

    share_torso: bool = False
    """Whether actor and critic share their hidden layers."""
    beta: float = 1.0
    """How much more a good action counts than a bad one, at least 0; 0 is behaviour cloning."""
    norm_rate: float = 0.01
    """Share of a minibatch in the moving average of squared advantages that scales them, in (0, 1]."""
    max_weight: float = 20.0
    """The most that an action counts, above 0."""

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least("beta", self.beta, 0)
        if not 0 < self.norm_rate <= 1:
            raise UsageError(f"--norm_rate {self.norm_rate} is out of range: it must be above 0 and at most 1")
        if not self.max_weight > 0:
            raise UsageError(f"--max_weight {self.max_weight} is out of range: it must be above 0")


class MARWIL(Algorithm):
    """Imitation weighted by advantages."""

    Config = MARWILConfig
    config: MARWILConfig
    data_only: ClassVar[bool] = True
    square: Tensor

    def __init__(self, spaces: Spaces, config: MARWILConfig) -> None:
        policy = config.policy(spaces, critic=True, share_torso=config.share_torso)
        # an actor-critic's own critic, so that an algorithm that goes on with the policy has it
        own = policy.critic if isinstance(policy, ActorCritic) else None
        learn_only(policy, policy.actor, *([] if own is None else [own]))
        super().__init__(spaces, config, policy)
        self.critic: nn.Module | None = None
        if own is None:
            torso = Torso(spaces.observation, config.architecture)
            self.critic = nn.Sequential(torso, ValueHead(torso.features))
        self.register_buffer("square", torch.zeros(()))  # c^2; 0 before the first minibatch

    @property
    def plan(self) -> OfflinePlan:
        return self.config.plan(n_step=None)

    def groups(self) -> dict[str, list[nn.Parameter]]:
        critic = self.policy.critic if self.critic is None else self.critic
        assert critic is not None
        return {"value": learning(critic), "policy": learning(self.policy.actor)}

    def update(self, batch: Transitions, optimize: Optimize, progress: Progress) -> Updated:
        self.policy.observe(batch.obs)
        metrics, advantage_B = optimize("value", self.value_loss, batch)
        square = 2 * metrics["value_loss"]
        self.square.copy_(torch.where(self.square == 0, square, self.square.lerp(square, self.config.norm_rate)))
        scaled_B = advantage_B / self.square.sqrt().clamp(min=1e-6)
        weight_B = (self.config.beta * scaled_B).exp().clamp(max=self.config.max_weight)
        metrics |= optimize("policy", self.policy_loss, batch, weight_B)[0]
        self.config.keep_spread(self.policy)
        return Updated(metrics | {"weight": weight_B.mean()})

    def value_loss(self, batch: Transitions) -> Loss:
        """Half the squared advantage (section 3.2); the advantage of each action is what the update needs."""
        value_B = self.value(batch.obs)
        with torch.no_grad():
            return_B = batch.reward + batch.discount * self.value(batch.next_obs)
        advantage_B = return_B - value_B
        loss = 0.5 * torch.square(advantage_B).mean()
        metrics = {"value_loss": loss, "explained_variance": explained_variance(value_B, return_B)}
        return Loss(loss, metrics, advantage_B)

    def policy_loss(self, batch: Transitions, weight_B: Tensor) -> Loss:
        """Minus the weighted log-probability of the recorded actions (eq. 7)."""
        loss = (weight_B * self.held_out_loss(self.policy, batch)).mean()
        return Loss(loss, {"loss": loss})

    def held_out_loss(self, policy: Policy, batch: Transitions) -> Tensor:
        return -policy.log_prob(batch.obs, batch.action)

    def value(self, obs: Tree) -> Tensor:
        """The value (B,) of observations."""
        value_B: Tensor = self.policy.value(obs) if self.critic is None else self.critic(obs)
        return value_B
