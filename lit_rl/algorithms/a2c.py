"""Advantage actor-critic: Mnih et al. 2016, "Asynchronous methods for deep reinforcement learning" (arXiv:1602.01783).

The synchronous version: all envs step together, and one update is made of the ``rollout_length`` steps of each, with n-step
returns bootstrapped from the critic (algorithm S3), or with generalised advantages where ``gae_lambda`` is below 1.
Differences from the paper: no asynchronous workers; gradients clipped by norm; actor and critic share no layers unless
``share_torso``; orthogonal initial weights.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from lit_rl.algorithms.base import Algorithm, Loss, Optimize, Progress, Updated
from lit_rl.algorithms.rollout import RolloutConfig
from lit_rl.algorithms.scheduled import Scheduled
from lit_rl.data.config import at_least
from lit_rl.data.plans import RolloutPlan
from lit_rl.data.transitions import RolloutBatch
from lit_rl.envs.spaces import Spaces
from lit_rl.errors import UsageError
from lit_rl.functional.losses import explained_variance, standardize
from lit_rl.functional.schedules import Schedule
from lit_rl.policies.actor_critic import ActorCritic


@dataclass
class A2CConfig(RolloutConfig):
    """A2C"""

    lr: Schedule = 7e-4
    """Learning rate: a number, or [[env_step, value], ...] with straight lines between."""
    rollout_length: int = 5
    """Env steps of each env between two updates; an iteration holds as many rollouts as fit, one at least."""
    entropy_coeff: Schedule = 0.01
    """Weight of the policy's entropy: a number, or [[env_step, value], ...]."""
    normalize_advantage: bool = False
    """Standardise the advantages of an update."""
    optimizer: Literal["rmsprop", "adam"] = "rmsprop"
    """What moves the weights: the paper's RMSprop, or Adam."""
    rmsprop_decay: float = 0.99
    """RMSprop's decay of squared gradients, in [0, 1)."""
    rmsprop_eps: float = 1e-5
    """RMSprop's epsilon."""

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least("rmsprop_eps", self.rmsprop_eps, 0)
        if not 0 <= self.rmsprop_decay < 1:
            raise UsageError(f"--rmsprop_decay {self.rmsprop_decay} is out of range: it must be at least 0 and below 1")


class A2C(Algorithm):
    """Advantage actor-critic, synchronous."""

    Config = A2CConfig
    config: A2CConfig
    policy: ActorCritic

    def __init__(self, spaces: Spaces, config: A2CConfig) -> None:
        super().__init__(spaces, config, config.policy(spaces))
        self._entropy_coeff = Scheduled(config.entropy_coeff)

    @property
    def plan(self) -> RolloutPlan:
        return self.config.plan()

    def groups(self) -> dict[str, list[nn.Parameter]]:
        return {"policy": list(self.policy.parameters())}

    def optimizer(self) -> tuple[str, dict[str, Any]]:
        if self.config.optimizer == "adam":
            return super().optimizer()
        return "rmsprop", {"alpha": self.config.rmsprop_decay, "eps": self.config.rmsprop_eps}

    def update(self, batch: RolloutBatch, optimize: Optimize, progress: Progress) -> Updated:
        entropy_coeff = self._entropy_coeff.at(progress.env_steps, batch.advantage)
        metrics, _ = optimize("policy", self.loss, batch, entropy_coeff)
        return Updated(metrics)

    def loss(self, batch: RolloutBatch, entropy_coeff: Tensor) -> Loss:
        """Policy gradient with entropy, and the critic's squared error (Mnih et al. 2016, section 4 and algorithm S3)."""
        log_prob_B, entropy_B, value_B = self.policy.evaluate(batch.obs, batch.action, batch.sequences)
        advantage_B = standardize(batch.advantage) if self.config.normalize_advantage else batch.advantage
        policy_loss = -(log_prob_B * advantage_B).mean()
        value_loss = torch.square(value_B - batch.return_).mean()
        entropy = entropy_B.mean()
        loss = policy_loss + self.config.vf_coeff * value_loss - entropy_coeff * entropy
        metrics = {"loss": loss, "policy_loss": policy_loss, "value_loss": value_loss, "entropy": entropy}
        return Loss(loss, metrics | {"explained_variance": explained_variance(batch.value, batch.return_)})
