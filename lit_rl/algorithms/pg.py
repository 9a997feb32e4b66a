"""REINFORCE: Williams 1992, "Simple statistical gradient-following algorithms for connectionist reinforcement learning".

Each action is reinforced by its reward-to-go: the discounted sum of the rewards that came after it, within its episode.
Differences from the paper: one update for a whole rollout, of several episodes and parts of some; Adam instead of plain
ascent; advantages are standardised over the rollout; the baseline is a learned value function (Sutton et al. 2000), which
also stands for the rewards that the end of a rollout or a time limit has cut off. Without it they count as nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from lit_rl.algorithms.base import Algorithm, Loss, Optimize, Progress, Updated
from lit_rl.algorithms.rollout import RolloutConfig
from lit_rl.algorithms.scheduled import Scheduled
from lit_rl.data.plans import RolloutPlan
from lit_rl.data.transitions import RolloutBatch
from lit_rl.envs.spaces import Spaces
from lit_rl.functional.losses import explained_variance, standardize
from lit_rl.functional.schedules import Schedule
from lit_rl.policies.actor_critic import ActorCritic


@dataclass
class PGConfig(RolloutConfig):
    """PG"""

    lr: Schedule = 1e-3
    """Learning rate: a number, or [[env_step, value], ...] with straight lines between."""
    rollout_length: int = 1000
    """Env steps of each env between two updates; an iteration holds as many rollouts as fit, one at least."""
    baseline: bool = True
    """Learn a value function and subtract it from the returns."""


class PG(Algorithm):
    """Policy gradient with rewards-to-go and a learned baseline."""

    Config = PGConfig
    config: PGConfig
    policy: ActorCritic

    def __init__(self, spaces: Spaces, config: PGConfig) -> None:
        super().__init__(spaces, config, config.policy(spaces, critic=config.baseline))
        self._entropy_coeff = Scheduled(config.entropy_coeff)

    @property
    def plan(self) -> RolloutPlan:
        return self.config.plan()

    def groups(self) -> dict[str, list[nn.Parameter]]:
        return {"policy": list(self.policy.parameters())}

    def update(self, batch: RolloutBatch, optimize: Optimize, progress: Progress) -> Updated:
        entropy_coeff = self._entropy_coeff.at(progress.env_steps, batch.advantage)
        metrics, _ = optimize("policy", self.loss, batch, entropy_coeff)
        return Updated(metrics)

    def loss(self, batch: RolloutBatch, entropy_coeff: Tensor) -> Loss:
        """Minus log-probability times advantage (Williams 1992, eq. 5), and the baseline's squared error."""
        log_prob_B, entropy_B, value_B = self.policy.evaluate(batch.obs, batch.action, batch.sequences)
        policy_loss = -(log_prob_B * standardize(batch.advantage)).mean()
        entropy = entropy_B.mean()
        loss = policy_loss - entropy_coeff * entropy
        metrics = {"policy_loss": policy_loss, "entropy": entropy}
        if self.config.baseline:
            value_loss = torch.square(value_B - batch.return_).mean()
            loss = loss + self.config.vf_coeff * value_loss
            metrics |= {"value_loss": value_loss, "explained_variance": explained_variance(batch.value, batch.return_)}
        return Loss(loss, {"loss": loss} | metrics)
