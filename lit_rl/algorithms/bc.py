"""Behaviour cloning: Pomerleau 1988, "ALVINN: An autonomous land vehicle in a neural network".

Supervised learning of the recorded actions: the cross entropy of discrete ones, and of continuous ones the likelihood under
the policy's own distribution, or the squared error of what it does greedily. The policy is a network of its own, or that of
any algorithm that stage 2 goes on with; only its actor learns.
Differences from the paper: minibatches and Adam; a Gaussian policy's spread has a floor.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from gymnasium import spaces as gs
from torch import Tensor, nn

from lit_rl.algorithms.base import Algorithm, Loss, Optimize, Progress, Updated, learn_only, learning
from lit_rl.algorithms.offline import OfflineConfig
from lit_rl.data.plans import OfflinePlan
from lit_rl.data.transitions import Transitions
from lit_rl.envs.spaces import Spaces, describe
from lit_rl.errors import UsageError
from lit_rl.policies.base import Policy
from lit_rl.policies.gaussian import Gaussian


@dataclass
class BCConfig(OfflineConfig):
    """BC"""

    loss: Literal["log_prob", "mse"] = "log_prob"
    """What is made small: minus the log-probability of the recorded actions, or (Box) the squared error of the greedy ones."""


class BC(Algorithm):
    """Imitates recorded actions."""

    Config = BCConfig
    config: BCConfig
    data_only: ClassVar[bool] = True

    def __init__(self, spaces: Spaces, config: BCConfig) -> None:
        if config.loss == "mse" and not isinstance(spaces.action, gs.Box):
            raise UsageError(f"--loss mse needs a Box action space, not {describe(spaces.action)}; use log_prob")
        policy = config.policy(spaces)
        learn_only(policy, policy.actor)
        distribution = getattr(policy.actor, "distribution", None)
        if config.loss == "mse" and isinstance(distribution, Gaussian):
            distribution.log_std.requires_grad_(False)  # the greedy action does not depend on it
        super().__init__(spaces, config, policy)

    @property
    def plan(self) -> OfflinePlan:
        return self.config.plan(n_step=1)

    def groups(self) -> dict[str, list[nn.Parameter]]:
        return {"policy": learning(self.policy.actor)}

    def update(self, batch: Transitions, optimize: Optimize, progress: Progress) -> Updated:
        self.policy.observe(batch.obs)
        metrics, _ = optimize("policy", self.policy_loss, batch)
        self.config.keep_spread(self.policy)
        return Updated(metrics)

    def policy_loss(self, batch: Transitions) -> Loss:
        """The mean loss of the recorded actions."""
        loss = self.held_out_loss(self.policy, batch).mean()
        return Loss(loss, {"loss": loss})

    def held_out_loss(self, policy: Policy, batch: Transitions) -> Tensor:
        if self.config.loss == "mse":
            return torch.square(policy.act(batch.obs).action - batch.action).mean(1)
        return -policy.log_prob(batch.obs, batch.action)
