"""Proximal policy optimisation: Schulman et al. 2017 (arXiv:1707.06347).

The clipped objective (eq. 7), by default with the paper's settings for continuous control (its table 3); the adaptive KL
penalty (section 4) is an option that may be added to it. Differences from the paper, all from its authors' code:
advantages are standardised in each minibatch, gradients clipped by norm, weights start orthogonal, and the critic's
estimate may be clipped as well (``vf_clip``). The KL divergence is estimated from the actions taken, which needs no
distribution but the actions' probabilities. ``target_kl`` ends a rollout's epochs when the policy has moved too far.
"""

from __future__ import annotations

from dataclasses import dataclass

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
from lit_rl.functional.losses import (
    approx_kl,
    clipped_surrogate,
    clipped_value_error,
    explained_variance,
    standardize,
)
from lit_rl.functional.schedules import Schedule
from lit_rl.policies.actor_critic import ActorCritic


@dataclass
class PPOConfig(RolloutConfig):
    """PPO"""

    lr: Schedule = 3e-4
    """Learning rate: a number, or [[env_step, value], ...] with straight lines between."""
    adam_eps: float = 1e-5
    """Adam's epsilon."""
    rollout_length: int = 2048
    """Env steps of each env in a rollout; an iteration holds as many rollouts as fit, one at least."""
    epochs_per_rollout: int = 10
    """Times that each transition of a rollout is learned from."""
    batch_size: int = 64
    """Transitions of one update, on each rank; a few more where they would not divide a rollout."""
    gae_lambda: float = 0.95
    """Lambda of generalised advantage estimates, in [0, 1]: 1 takes all rewards to come, 0 the next one and the critic."""
    clip: Schedule = 0.2
    """How far a probability ratio may move from 1 and still be rewarded: a number, or [[env_step, value], ...]."""
    vf_clip: float | None = None
    """How far a value may move from the old one and still be rewarded, in units of the return; null for no limit."""
    kl_coeff: float = 0.0
    """First weight of the penalty on the KL divergence from the old policy; 0 turns it off."""
    kl_target: float = 0.01
    """KL divergence of a rollout that the penalty's weight is adapted to."""
    target_kl: float | None = None
    """End a rollout's epochs when the KL divergence exceeds 1.5 times this; null for never."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_schedules(clip=(0.0, float("inf")))
        at_least("epochs_per_rollout", self.epochs_per_rollout, 1)
        at_least("batch_size", self.batch_size, 1)
        at_least("kl_coeff", self.kl_coeff, 0)
        for name in ("vf_clip", "kl_target", "target_kl"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise UsageError(f"--{name} {value} is out of range: it must be above 0")


class PPO(Algorithm):
    """Proximal policy optimisation."""

    Config = PPOConfig
    config: PPOConfig
    policy: ActorCritic
    kl_coeff: Tensor

    def __init__(self, spaces: Spaces, config: PPOConfig) -> None:
        super().__init__(spaces, config, config.policy(spaces))
        self._clip, self._entropy_coeff = Scheduled(config.clip), Scheduled(config.entropy_coeff)
        self.register_buffer("kl_coeff", torch.tensor(config.kl_coeff))

    @property
    def plan(self) -> RolloutPlan:
        return self.config.plan(self.config.epochs_per_rollout, self.config.batch_size)

    def groups(self) -> dict[str, list[nn.Parameter]]:
        return {"policy": list(self.policy.parameters())}

    def update(self, batch: RolloutBatch, optimize: Optimize, progress: Progress) -> Updated:
        clip, entropy_coeff = (s.at(progress.env_steps, batch.advantage) for s in (self._clip, self._entropy_coeff))
        metrics, _ = optimize("policy", self.loss, batch, clip, entropy_coeff, self.kl_coeff)
        limit = self.config.target_kl
        enough = limit is not None and float(metrics["kl"]) > 1.5 * limit
        if self.config.kl_coeff and (enough or batch.last):
            self.adapt_kl_coeff(float(metrics["kl"]))
        return Updated(metrics, enough=enough)

    def loss(self, batch: RolloutBatch, clip: Tensor, entropy_coeff: Tensor, kl_coeff: Tensor) -> Loss:
        """The clipped surrogate, the critic's squared error and the entropy (eq. 9), and the KL penalty (eq. 8)."""
        log_prob_B, entropy_B, value_B = self.policy.evaluate(batch.obs, batch.action, batch.sequences)
        advantage_B = standardize(batch.advantage)
        policy_loss = clipped_surrogate(log_prob_B, batch.log_prob, advantage_B, clip).mean()
        value_loss = self.value_error(value_B, batch).mean()
        entropy = entropy_B.mean()
        kl = approx_kl(log_prob_B, batch.log_prob).mean()
        loss = policy_loss + self.config.vf_coeff * value_loss - entropy_coeff * entropy
        if self.config.kl_coeff:
            loss = loss + kl_coeff * kl
        clipped = ((log_prob_B - batch.log_prob).exp() - 1).abs() > clip
        metrics = {
            "loss": loss,
            "policy_loss": policy_loss,
            "value_loss": value_loss,
            "entropy": entropy,
            "kl": kl,
            "clip_fraction": clipped.float().mean(),
            "explained_variance": explained_variance(batch.value, batch.return_),
        }
        return Loss(loss, metrics)

    def value_error(self, value_B: Tensor, batch: RolloutBatch) -> Tensor:
        """Squared errors of the critic, (B,)."""
        if self.config.vf_clip is None:
            return torch.square(value_B - batch.return_)
        return clipped_value_error(value_B, batch.value, batch.return_, value_B.new_tensor(self.config.vf_clip))

    def adapt_kl_coeff(self, kl: float) -> None:
        """Double or halve the penalty's weight where the policy has moved too far or too little (section 4)."""
        if kl > 1.5 * self.config.kl_target:
            self.kl_coeff *= 2
        elif kl < self.config.kl_target / 1.5:
            self.kl_coeff /= 2
