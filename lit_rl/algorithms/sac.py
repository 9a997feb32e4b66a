"""Soft actor-critic: Haarnoja et al. 2018, "Soft Actor-Critic Algorithms and Applications" (arXiv:1812.05905).

Discrete actions as in Christodoulou 2019, "Soft Actor-Critic for Discrete Action Settings" (arXiv:1910.07207): the
expectations over actions are sums. Which of the two it is, the policy knows.
Differences from the papers: the temperature's loss is linear in log alpha instead of alpha (as in the authors' code),
the target entropy of discrete actions counts the allowed ones only, the first 1,500 env steps act at random (RLlib), and
the K critics share what encodes an observation that is no vector.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from gymnasium import spaces as gs
from torch import Tensor, nn

from lit_rl.algorithms.base import ANEW, IN_STAGE_2, Algorithm, Loss, Optimize, Progress, Updated
from lit_rl.algorithms.replay import ReplayConfig
from lit_rl.data.config import at_least
from lit_rl.data.plans import ReplayPlan
from lit_rl.data.transitions import Transitions
from lit_rl.envs.spaces import Spaces, describe
from lit_rl.errors import UsageError
from lit_rl.functional.schedules import Schedule
from lit_rl.functional.tree import Tree
from lit_rl.networks.target import Follower
from lit_rl.policies.soft import SoftPolicy
from lit_rl.policies.soft_categorical import SoftCategorical
from lit_rl.policies.squashed_gaussian import SquashedGaussian


@dataclass
class SACConfig(ReplayConfig):
    """SAC"""

    lr: Schedule = 3e-4
    """Learning rate of actor, critics and temperature: a number, or [[env_step, value], ...]."""
    gradient_clip_val: float | None = None
    """Largest norm (or value) of a gradient; null for none."""
    learning_starts: int = 1_500
    """Env steps before the first update."""
    random_steps: int = field(default=1_500, metadata={IN_STAGE_2: 0})
    """Env steps at the start that act at random; 0 in stage 2."""
    critics: int = 2
    """Action-value functions; the smallest of their values counts."""
    alpha: float = field(default=1.0, metadata={ANEW: 0.05})
    """Temperature (weight of the entropy) at the start, above 0; 0.05 for a policy that another algorithm has learned."""
    learn_alpha: bool = True
    """Tune the temperature towards target_entropy."""
    target_entropy: float | None = None
    """Entropy in nats that the temperature is tuned for; null for -A (Box of A numbers) or 0.98 log A (Discrete)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least("random_steps", self.random_steps, 0)
        at_least("critics", self.critics, 1)
        if not self.alpha > 0:
            raise UsageError(f"--alpha {self.alpha} is out of range: it must be above 0")


class SAC(Algorithm):
    """Maximum-entropy actor-critic with twin critics and a tuned temperature."""

    Config = SACConfig
    config: SACConfig
    policy: SoftPolicy

    def __init__(self, spaces: Spaces, config: SACConfig) -> None:
        if not isinstance(spaces.action, gs.Discrete | gs.Box):
            raise UsageError(f"SAC needs a Box or Discrete action space, not {describe(spaces.action)}")
        kind = SoftCategorical if isinstance(spaces.action, gs.Discrete) else SquashedGaussian
        c = config
        policy = kind(spaces, c.architecture, c.critics, c.alpha)
        policy.log_alpha.requires_grad_(config.learn_alpha)
        super().__init__(spaces, config, policy)
        self._target = Follower(policy.critic)
        self.target = self._target.follower

    @property
    def plan(self) -> ReplayPlan:
        noise = (2, self.config.batch_size, self.policy.noise_size)  # of the next actions, of the present ones
        return self.config.plan(random_steps=self.config.random_steps, noise=noise)

    def groups(self) -> dict[str, list[nn.Parameter]]:
        groups = {"critic": list(self.policy.critic.parameters()), "actor": list(self.policy.actor.parameters())}
        return groups | ({"alpha": [self.policy.log_alpha]} if self.config.learn_alpha else {})

    def start_from_policy(self) -> None:
        self._target.move(1.0)

    def update(self, batch: Transitions, optimize: Optimize, progress: Progress) -> Updated:
        alpha = self.policy.log_alpha.detach().exp()
        metrics, td_error = optimize("critic", self.critic_loss, batch, alpha)
        actor_metrics, log_prob = optimize("actor", self.actor_loss, batch, alpha)
        metrics |= actor_metrics | {"alpha": alpha}
        if self.config.learn_alpha:
            optimize("alpha", self.alpha_loss, batch.obs, log_prob)
        self._target.move(self.config.tau)
        return Updated(metrics, td_error)

    def critic_loss(self, batch: Transitions, alpha: Tensor) -> Loss:
        """Soft Bellman error of every critic (eq. 5)."""
        with torch.no_grad():
            next_value_B, _ = self.policy.soft_value(self.target, batch.next_obs, batch.noise[0], alpha)
            target_B = batch.reward + batch.discount * next_value_B
        q_KB = self.policy.critic(batch.obs, batch.action)
        td_error_KB = target_B - q_KB
        loss = 0.5 * (batch.weight * td_error_KB**2).mean(1).sum()
        return Loss(loss, {"loss": loss, "q": q_KB.mean()}, td_error_KB.mean(0))

    def actor_loss(self, batch: Transitions, alpha: Tensor) -> Loss:
        """Minus the soft value of the policy's own actions (eq. 7 and 9)."""
        value_B, log_prob_B = self.policy.soft_value(self.policy.critic, batch.obs, batch.noise[1], alpha)
        loss = -value_B.mean()
        return Loss(loss, {"actor_loss": loss, "entropy": -log_prob_B.mean()}, log_prob_B)

    def alpha_loss(self, obs: Tree, log_prob_B: Tensor) -> Loss:
        """The temperature rises while the entropy is below its target (eq. 18)."""
        wanted = self.config.target_entropy
        target = self.policy.target_entropy(obs) if wanted is None else wanted
        loss = -(self.policy.log_alpha * (log_prob_B + target)).mean()
        return Loss(loss, {})
