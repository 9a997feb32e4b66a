"""DDPG: Lillicrap et al. 2016, "Continuous control with deep reinforcement learning" (arXiv:1509.02971).

Differences from the paper: the defaults are RLlib's (learning rate 1e-3 for the actor too, tau 0.002, weight decay 1e-6
instead of 1e-2, minibatches of 256), the action enters the critic at its first layer, there is no batch normalisation, the
first 1,500 env steps act at random, and the noise may be independent Gaussian.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor, nn

from lit_rl.algorithms.base import IN_STAGE_2, Algorithm, Loss, Optimize, Progress, Updated
from lit_rl.algorithms.replay import ReplayConfig
from lit_rl.data.config import at_least
from lit_rl.data.plans import ReplayPlan
from lit_rl.data.transitions import Transitions
from lit_rl.envs.spaces import Spaces
from lit_rl.errors import UsageError
from lit_rl.functional.schedules import Schedule, value_at
from lit_rl.networks.target import Follower
from lit_rl.policies.deterministic import Deterministic

LAST_LAYER = 3e-3  # the range of the weights of the last layers (section 7)


@dataclass
class DDPGConfig(ReplayConfig):
    """DDPG"""

    lr: Schedule = 1e-3
    """Learning rate of the critic: a number, or [[env_step, value], ...]."""
    actor_lr: Schedule | None = None
    """Learning rate of the actor; null for lr."""
    gradient_clip_val: float | None = None
    """Largest norm (or value) of a gradient; null for none."""
    hidden_sizes: list[int] = field(default_factory=lambda: [400, 300])
    """Widths of the hidden layers of every network."""
    learning_starts: int = 1_500
    """Env steps before the first update."""
    random_steps: int = field(default=1_500, metadata={IN_STAGE_2: 0})
    """Env steps at the start that act at random; 0 in stage 2."""
    tau: float = 0.002
    """Share of the online networks in an update of the targets: 1 copies them, less moves towards them."""
    l2: float = 1e-6
    """Weight decay of the critic."""
    noise: Literal["ou", "gaussian"] = "ou"
    """What explores: an Ornstein-Uhlenbeck process, or independent Gaussian noise."""
    exploration_noise: Schedule = 0.2
    """Scale sigma of that noise, as a share of half the action range: a number, or [[env_step, value], ...]."""
    ou_theta: float = 0.15
    """Pull of the Ornstein-Uhlenbeck process to 0, in (0, 1]."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_schedules(exploration_noise=(0.0, float("inf")))
        if self.actor_lr is not None:
            self.check_schedules(actor_lr=(0.0, float("inf")))
        at_least("random_steps", self.random_steps, 0)
        at_least("l2", self.l2, 0)
        if not 0 < self.ou_theta <= 1:
            raise UsageError(f"--ou_theta {self.ou_theta} is out of range: it must be above 0 and at most 1")


class DDPG(Algorithm):
    """Deterministic policy gradients with target networks and experience replay."""

    Config = DDPGConfig
    config: DDPGConfig
    policy: Deterministic

    def __init__(self, spaces: Spaces, config: DDPGConfig) -> None:
        c = config
        theta = c.ou_theta if c.noise == "ou" else None
        policy = Deterministic(spaces, "DDPG", c.architecture, 1, c.exploration_noise, theta)
        for layer in (policy.actor.head, policy.critic.mlp.output):
            nn.init.uniform_(layer.weight, -LAST_LAYER, LAST_LAYER)
            nn.init.uniform_(layer.bias, -LAST_LAYER, LAST_LAYER)
        super().__init__(spaces, config, policy)
        self._target_actor, self._target_critic = Follower(policy.actor), Follower(policy.critic)
        self.target_actor, self.target_critic = self._target_actor.follower, self._target_critic.follower

    @property
    def plan(self) -> ReplayPlan:
        return self.config.plan(random_steps=self.config.random_steps)

    def groups(self) -> dict[str, list[nn.Parameter]]:
        return {"critic": list(self.policy.critic.parameters()), "actor": list(self.policy.actor.parameters())}

    def learning_rates(self, env_steps: int) -> dict[str, float]:
        lr, actor_lr = self.config.lr, self.config.actor_lr
        return {"critic": value_at(lr, env_steps), "actor": value_at(lr if actor_lr is None else actor_lr, env_steps)}

    def start_from_policy(self) -> None:
        self._move_targets(1.0)

    def _move_targets(self, share: float) -> None:
        self._target_actor.move(share)
        self._target_critic.move(share)

    def update(self, batch: Transitions, optimize: Optimize, progress: Progress) -> Updated:
        metrics, td_error = optimize("critic", self.critic_loss, batch)
        metrics |= optimize("actor", self.actor_loss, batch)[0]
        self._move_targets(self.config.tau)
        return Updated(metrics, td_error)

    def critic_loss(self, batch: Transitions) -> Loss:
        """Squared TD error (algorithm 1) and weight decay."""
        with torch.no_grad():
            next_q_B = self.target_critic(batch.next_obs, self.target_actor(batch.next_obs))[0]
            target_B = batch.reward + batch.discount * next_q_B
        q_B = self.policy.critic(batch.obs, batch.action)[0]
        td_error_B = target_B - q_B
        loss = (batch.weight * td_error_B**2).mean()
        decayed = loss + self.config.l2 * half_square(self.policy.critic.parameters()) if self.config.l2 else loss
        return Loss(decayed, {"loss": loss, "q": q_B.mean()}, td_error_B)

    def actor_loss(self, batch: Transitions) -> Loss:
        """Minus the critic's value of the policy's own actions (eq. 6)."""
        loss = -self.policy.critic(batch.obs, self.policy.actor(batch.obs)).mean()
        return Loss(loss, {"actor_loss": loss})


def half_square(parameters: Iterable[Tensor]) -> Tensor:
    """Half the sum of the squares of all numbers."""
    return 0.5 * torch.stack([p.square().sum() for p in parameters]).sum()
