"""Implicit Q-learning: Kostrikov et al. 2021, "Offline Reinforcement Learning with Implicit Q-Learning" (arXiv:2110.06169).

Values are learned from recorded actions alone: V is an upper expectile of Q over them, so no action is ever valued that was
not tried. The policy imitates recorded actions by their advantage. It learns from data, and online by the same losses.
The policy and its action values are SAC's, or those of the algorithm that stage 2 goes on with (``policy_of``).
Differences from the paper: SAC's policy (a spread that depends on the state, then tanh; probabilities of discrete actions)
instead of tanh means with one spread for all states; a deterministic policy imitates by the squared distance.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from lit_rl.algorithms import make_algorithm
from lit_rl.algorithms.base import IN_STAGE_2, Algorithm, Loss, Optimize, Progress, Updated, learn_only, learning
from lit_rl.algorithms.borrowed import borrowed_policy
from lit_rl.algorithms.replay import ReplayConfig
from lit_rl.data.config import at_least
from lit_rl.data.plans import ReplayPlan
from lit_rl.data.transitions import Transitions
from lit_rl.envs.spaces import Spaces
from lit_rl.errors import UsageError
from lit_rl.functional.losses import expectile
from lit_rl.functional.schedules import Schedule
from lit_rl.networks.critics import ContinuousCritic, DiscreteCritic
from lit_rl.networks.heads import ValueHead
from lit_rl.networks.target import Follower
from lit_rl.networks.torso import Torso
from lit_rl.policies.base import Policy


@dataclass
class IQLConfig(ReplayConfig):
    """IQL"""

    lr: Schedule = 3e-4
    """Learning rate of actor, critics and value: a number, or [[env_step, value], ...]; over updates with --input."""
    gradient_clip_val: float | None = None
    """Largest norm (or value) of a gradient; null for none."""
    random_steps: int = field(default=1_000, metadata={IN_STAGE_2: 0})
    """Env steps at the start that act at random; 0 in stage 2."""
    critics: int = 2
    """Action-value functions; the smallest of their values counts."""
    expectile: float = 0.7
    """Which expectile of the action values is a state's value, in (0, 1): 0.5 is their mean, near 1 the best recorded one."""
    beta: float = 3.0
    """How much more a good action is imitated than a bad one, at least 0: 0 imitates all alike."""
    max_weight: float = 100.0
    """The most that an action counts, above 0."""
    policy_of: dict[str, Any] = field(default_factory=dict)
    """Learn another algorithm's policy, '{"algo": "TD3", "hidden_sizes": [64]}'; with --two_steps that of stage 2."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("random_steps", "beta"):
            at_least(name, getattr(self, name), 0)
        at_least("critics", self.critics, 1)
        if not 0 < self.expectile < 1:
            raise UsageError(f"--expectile {self.expectile} is out of range: it must lie between 0 and 1")
        if not self.max_weight > 0:
            raise UsageError(f"--max_weight {self.max_weight} is out of range: it must be above 0")

    def policy(self, spaces: Spaces) -> Policy:
        """The policy that these settings describe; ``policy_of`` alone says it where it is given."""
        if self.policy_of:
            return borrowed_policy(spaces, self.policy_of)
        names = ("hidden_sizes", "activation", "critics", "custom_model", "custom_model_config")
        return make_algorithm("SAC", spaces, {name: getattr(self, name) for name in names}).policy


class IQL(Algorithm):
    """Expectile regression of values, and imitation weighted by advantages."""

    Config = IQLConfig
    config: IQLConfig

    def __init__(self, spaces: Spaces, config: IQLConfig) -> None:
        policy = config.policy(spaces)
        if not isinstance(policy.critic, ContinuousCritic | DiscreteCritic):
            raise UsageError(
                f"IQL learns action values, and --policy_of {config.policy_of} has no critic for them: "
                "use SAC, TD3 or DDPG"
            )
        learn_only(policy, policy.actor, policy.critic)
        super().__init__(spaces, config, policy)
        torso = Torso(spaces.observation, config.architecture)
        self.value = nn.Sequential(torso, ValueHead(torso.features))
        self._target = Follower(policy.critic)
        self.target = self._target.follower

    @property
    def critic(self) -> nn.Module:
        """The policy's own action values: (K, B) of observations and actions."""
        assert self.policy.critic is not None
        return self.policy.critic

    @property
    def plan(self) -> ReplayPlan:
        return self.config.plan(random_steps=self.config.random_steps)

    def groups(self) -> dict[str, list[nn.Parameter]]:
        return {
            "value": learning(self.value),
            "critic": learning(self.critic),
            "actor": learning(self.policy.actor),
        }

    def start_from_policy(self) -> None:
        self._target.move(1.0)

    def update(self, batch: Transitions, optimize: Optimize, progress: Progress) -> Updated:
        metrics, advantage_B = optimize("value", self.value_loss, batch)
        metrics |= optimize("actor", self.actor_loss, batch, advantage_B)[0]
        critic_metrics, td_error = optimize("critic", self.critic_loss, batch)
        self._target.move(self.config.tau)
        return Updated(metrics | critic_metrics, td_error)

    def value_loss(self, batch: Transitions) -> Loss:
        """The expectile loss of V against the recorded actions' values (eq. 5); their advantages are what the update needs."""
        with torch.no_grad():
            q_B = self.target(batch.obs, batch.action).amin(0)
        advantage_B = q_B - self.value(batch.obs)
        loss = expectile(advantage_B, self.config.expectile).mean()
        return Loss(loss, {"value_loss": loss}, advantage_B)

    def critic_loss(self, batch: Transitions) -> Loss:
        """Squared TD error of every critic, with V for what comes next (eq. 6)."""
        with torch.no_grad():
            target_B = batch.reward + batch.discount * self.value(batch.next_obs)
        td_error_KB = target_B - self.critic(batch.obs, batch.action)
        loss = (batch.weight * td_error_KB**2).mean(1).sum()
        return Loss(loss, {"loss": loss, "q": (target_B - td_error_KB).mean()}, td_error_KB.mean(0))

    def actor_loss(self, batch: Transitions, advantage_B: Tensor) -> Loss:
        """Minus the log-probability of the recorded actions, weighted by exp(beta A) (eq. 7)."""
        weight_B = (self.config.beta * advantage_B).exp().clamp(max=self.config.max_weight)
        loss = -(weight_B * self.policy.log_prob(batch.obs, batch.action)).mean()
        return Loss(loss, {"actor_loss": loss, "weight": weight_B.mean()})
