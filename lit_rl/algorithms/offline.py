"""Settings that algorithms share that learn a policy from recorded episodes alone, and the plan that follows from them."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import torch

from lit_rl.algorithms.base import AlgorithmConfig
from lit_rl.algorithms.borrowed import borrowed_policy
from lit_rl.data.config import at_least
from lit_rl.data.plans import OfflinePlan
from lit_rl.envs.spaces import Spaces
from lit_rl.errors import UsageError
from lit_rl.functional.schedules import Schedule
from lit_rl.policies.actor_critic import ActorCritic
from lit_rl.policies.base import Policy
from lit_rl.policies.gaussian import Gaussian


@dataclass
class OfflineConfig(AlgorithmConfig):
    """Learning from data"""

    lr: Schedule = 1e-3
    """Learning rate: a number, or [[update, value], ...] with straight lines between."""
    steps_per_iteration: int = 100
    """Updates of one iteration (what Lightning calls a batch)."""
    batch_size: int = 256
    """Transitions of one update, on each rank."""
    normalize_obs: bool = False
    """Normalise float observations by the mean and standard deviation of the data."""
    policy_of: dict[str, Any] = field(default_factory=dict)
    """Learn another algorithm's policy, '{"algo": "SAC", "hidden_sizes": [64]}'; with --two_steps that of stage 2."""
    min_std: float = 0.1
    """Smallest spread of a Gaussian policy, as a share of half the action range: exact data would make it 0."""

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least("batch_size", self.batch_size, 1)
        if not 0 < self.min_std <= 1:
            raise UsageError(f"--min_std {self.min_std} is out of range: it must be above 0 and at most 1")

    def policy(self, spaces: Spaces, critic: bool = False, share_torso: bool = False) -> Policy:
        """The policy that these settings describe, with or without a critic; ``policy_of`` alone says it where it is given."""
        if self.policy_of:
            return borrowed_policy(spaces, self.policy_of)
        return ActorCritic(
            spaces,
            self.architecture,
            share_torso=share_torso,
            critic=critic,
            normalize_obs=self.normalize_obs,
        )

    def plan(self, n_step: int | None) -> OfflinePlan:
        """The plan that these settings describe."""
        return OfflinePlan(self.steps_per_iteration, self.batch_size, self.gamma, n_step)

    def keep_spread(self, policy: Policy) -> None:
        """Hold the spread of a Gaussian policy at ``min_std`` or above."""
        distribution = getattr(policy.actor, "distribution", None)
        if isinstance(distribution, Gaussian):
            with torch.no_grad():
                distribution.log_std.clamp_(min=math.log(self.min_std))
