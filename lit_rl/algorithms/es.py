"""Evolution strategies: Salimans et al. 2017, "Evolution Strategies as a Scalable Alternative to Reinforcement Learning".

arXiv:1703.03864, algorithm 1 with antithetic (mirrored) sampling, centered ranks in place of returns (section 2.1), and Adam
with weight decay on the estimated gradient, as in the authors' code, where the noise's scale is left to the learning rate.
Differences from the paper: a member is scored on a fixed number of env steps (rewards per episode begun, so that an update
costs the same whatever happens in the envs), it acts greedily without action noise, there is no virtual batch
normalisation, and each rank ranks its own members.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

from lit_rl.algorithms.base import Algorithm, AlgorithmConfig, Loss, Optimize, Progress, Updated
from lit_rl.data.config import at_least
from lit_rl.data.plans import PopulationPlan
from lit_rl.data.transitions import Evaluations
from lit_rl.envs.spaces import Spaces
from lit_rl.errors import UsageError
from lit_rl.functional.ranks import centered_ranks
from lit_rl.functional.schedules import Schedule
from lit_rl.policies.actor_critic import ActorCritic
from lit_rl.policies.gaussian import Gaussian


@dataclass
class ESConfig(AlgorithmConfig):
    """ES"""

    lr: Schedule = 1e-2
    """Learning rate: a number, or [[env_step, value], ...] with straight lines between."""
    gradient_clip_val: float | None = None
    """Largest norm (or value) of a gradient; null for none."""
    steps_per_iteration: int = 10_000
    """Env steps of one update, over all envs and ranks; each member plays its share of them."""
    members: int = 40
    """Perturbed policies of one update, half of them the mirror images of the others."""
    noise_stdev: float = 0.02
    """Standard deviation of the perturbations of every weight."""
    l2: float = 0.005
    """Weight decay."""

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least("members", self.members, 2)
        at_least("l2", self.l2, 0)
        if not self.noise_stdev > 0:
            raise UsageError(f"--noise_stdev {self.noise_stdev} is out of range: it must be above 0")


class ES(Algorithm):
    """Gradient ascent on returns that are seen only through evaluations of perturbed weights."""

    Config = ESConfig
    config: ESConfig
    policy: ActorCritic

    def __init__(self, spaces: Spaces, config: ESConfig) -> None:
        policy = ActorCritic(spaces, config.architecture, critic=False)
        distribution = policy.actor.distribution
        if isinstance(distribution, Gaussian):  # members act by the mean alone
            distribution.log_std.requires_grad_(False)
        super().__init__(spaces, config, policy)

    @property
    def plan(self) -> PopulationPlan:
        c = self.config
        return PopulationPlan(c.steps_per_iteration, c.members, c.noise_stdev)

    def groups(self) -> dict[str, list[nn.Parameter]]:
        return {"actor": [p for p in self.policy.actor.parameters() if p.requires_grad]}

    def update(self, batch: Evaluations, optimize: Optimize, progress: Progress) -> Updated:
        metrics, _ = optimize("actor", self.es_loss, batch)
        return Updated(metrics | {"population_return": batch.return_.mean()})

    def es_loss(self, batch: Evaluations) -> Loss:
        """A linear function of the weights whose gradient is the estimate of section 2.1, and weight decay."""
        weights_D = torch.cat([p.reshape(-1) for p in self.policy.actor.parameters() if p.requires_grad])
        rank_P2 = centered_ranks(batch.return_)
        ascent_D = (rank_P2[:, 0] - rank_P2[:, 1]) @ batch.direction / batch.return_.numel()
        loss = 0.5 * self.config.l2 * weights_D.square().sum() - ascent_D @ weights_D
        return Loss(loss, {"loss": loss})
