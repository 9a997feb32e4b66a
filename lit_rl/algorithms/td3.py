"""TD3: Fujimoto et al. 2018, "Addressing Function Approximation Error in Actor-Critic Methods" (arXiv:1802.09477).

Differences from the paper: the first 1,000 env steps act at random whatever the environment (10,000 on HalfCheetah and Ant
in the paper), and the K critics share what encodes an observation that is no vector.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import nn

from lit_rl.algorithms.base import IN_STAGE_2, Algorithm, Loss, Optimize, Progress, Updated
from lit_rl.algorithms.replay import ReplayConfig
from lit_rl.data.config import at_least
from lit_rl.data.plans import ReplayPlan
from lit_rl.data.transitions import Transitions
from lit_rl.envs.spaces import Spaces
from lit_rl.functional.schedules import Schedule
from lit_rl.networks.target import Follower
from lit_rl.policies.deterministic import Deterministic


@dataclass
class TD3Config(ReplayConfig):
    """TD3"""

    lr: Schedule = 1e-3
    """Learning rate of actor and critics: a number, or [[env_step, value], ...]."""
    gradient_clip_val: float | None = None
    """Largest norm (or value) of a gradient; null for none."""
    hidden_sizes: list[int] = field(default_factory=lambda: [400, 300])
    """Widths of the hidden layers of every network."""
    batch_size: int = 100
    """Transitions of one update, on each rank."""
    random_steps: int = field(default=1_000, metadata={IN_STAGE_2: 0})
    """Env steps at the start that act at random; 0 in stage 2."""
    critics: int = 2
    """Action-value functions; the smallest of their values counts."""
    exploration_noise: Schedule = 0.1
    """Standard deviation of the exploring noise, as a share of half the action range: a number, or [[env_step, value], ...]."""
    target_noise: float = 0.2
    """Standard deviation of the noise that smooths the target policy, as a share of half the action range."""
    target_noise_clip: float = 0.5
    """Largest absolute value of that noise."""
    policy_delay: int = 2
    """Updates of the critics for one of the actor and the targets."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_schedules(exploration_noise=(0.0, float("inf")))
        for name in ("random_steps", "target_noise", "target_noise_clip"):
            at_least(name, getattr(self, name), 0)
        for name in ("critics", "policy_delay"):
            at_least(name, getattr(self, name), 1)


class TD3(Algorithm):
    """Deterministic policy gradients with twin critics, a smoothed target policy and delayed actor updates."""

    Config = TD3Config
    config: TD3Config
    policy: Deterministic

    def __init__(self, spaces: Spaces, config: TD3Config) -> None:
        c = config
        policy = Deterministic(spaces, "TD3", c.architecture, c.critics, c.exploration_noise)
        super().__init__(spaces, config, policy)
        self._target_actor, self._target_critic = Follower(policy.actor), Follower(policy.critic)
        self.target_actor, self.target_critic = self._target_actor.follower, self._target_critic.follower

    @property
    def plan(self) -> ReplayPlan:
        noise = (self.config.batch_size, self.policy.size)
        return self.config.plan(random_steps=self.config.random_steps, noise=noise)

    def groups(self) -> dict[str, list[nn.Parameter]]:
        return {"critic": list(self.policy.critic.parameters()), "actor": list(self.policy.actor.parameters())}

    def start_from_policy(self) -> None:
        self._move_targets(1.0)

    def _move_targets(self, share: float) -> None:
        self._target_actor.move(share)
        self._target_critic.move(share)

    def update(self, batch: Transitions, optimize: Optimize, progress: Progress) -> Updated:
        metrics, td_error = optimize("critic", self.critic_loss, batch)
        if (progress.updates + 1) % self.config.policy_delay == 0:
            metrics |= optimize("actor", self.actor_loss, batch)[0]
            self._move_targets(self.config.tau)
        return Updated(metrics, td_error)

    def critic_loss(self, batch: Transitions) -> Loss:
        """Clipped double Q-learning with target policy smoothing (algorithm 1)."""
        with torch.no_grad():
            clip = self.config.target_noise_clip
            noise_BA = (self.config.target_noise * batch.noise).clamp(-clip, clip)
            next_action_BA = (self.target_actor(batch.next_obs) + noise_BA).clamp(-1.0, 1.0)
            next_q_B = self.target_critic(batch.next_obs, next_action_BA).amin(0)
            target_B = batch.reward + batch.discount * next_q_B
        q_KB = self.policy.critic(batch.obs, batch.action)
        td_error_KB = target_B - q_KB
        loss = (batch.weight * td_error_KB**2).mean(1).sum()
        return Loss(loss, {"loss": loss, "q": q_KB.mean()}, td_error_KB.mean(0))

    def actor_loss(self, batch: Transitions) -> Loss:
        """Minus the first critic's value of the policy's own actions (the deterministic policy gradient)."""
        loss = -self.policy.critic(batch.obs, self.policy.actor(batch.obs))[0].mean()
        return Loss(loss, {"actor_loss": loss})
