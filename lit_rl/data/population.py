"""Evaluations of perturbed weights: what evolution strategies learn from."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lit_rl.data.collector import Collector
from lit_rl.data.experience import Source
from lit_rl.data.plans import PopulationPlan
from lit_rl.data.transitions import Evaluations, Steps
from lit_rl.policies.base import Policy
from lit_rl.policies.population import Population


class PopulationSource:
    """Plays perturbed copies of the policy, each in one env for a fixed number of env steps, by a :class:`PopulationPlan`."""

    def __init__(self, plan: PopulationPlan, collector: Collector, seed: int, world_size: int) -> None:
        self.plan, self.collector, self.world_size = plan, collector, world_size
        self.env_steps = 0
        self.generator = torch.Generator().manual_seed(seed)
        self._population: tuple[Policy, Population] | None = None

    def experience(self, policy: Policy) -> PopulationExperience:
        return PopulationExperience(self, policy)

    def evaluate(self, policy: Policy) -> Evaluations:
        """Score this rank's share of an iteration's members, in pairs of opposite perturbations."""
        if self._population is None or self._population[0] is not policy:
            self._population = policy, Population(policy, self.collector.num_envs)
        population, envs = self._population[1], self.collector.num_envs
        members = self.plan.members // self.world_size
        length = self.plan.steps_per_iteration // self.plan.members
        direction = torch.randn(members // 2, population.size, generator=self.generator)
        device = next(policy.parameters()).device
        offset = (self.plan.noise_stdev * torch.stack([direction, -direction], 1).flatten(0, 1)).to(device)
        returns = np.zeros(members)
        for first in range(0, members, envs):
            population.scatter(offset[first : first + envs])
            self.collector.restart(self.env_steps)
            steps = self.collector.collect(envs * length, population, self.env_steps)
            returns[first : first + envs] = return_per_episode(steps)
            self.env_steps += envs * length * self.world_size
        scores = torch.from_numpy(returns.astype(np.float32)).view(-1, 2)
        return Evaluations(direction.to(device), scores.to(device))

    @property
    def generators(self) -> list[torch.Generator]:
        """Of what is sampled or shuffled."""
        return [self.generator]

    @property
    def kept(self) -> str:
        """Nothing: members are made anew for every update."""
        return ""

    def adopt(self, other: Source) -> bool:
        """Go on along the x-axis from another source; there is nothing else to take over."""
        self.env_steps = other.env_steps
        return isinstance(other, PopulationSource)

    def cut(self) -> None:
        """Nothing: every evaluation begins fresh episodes."""

    def state_dict(self) -> dict[str, Any]:
        return {
            "env_steps": self.env_steps,
            "generator": self.generator.get_state(),
            "collector": self.collector.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.env_steps = state["env_steps"]
        self.generator.set_state(state["generator"])
        self.collector.load_state_dict(state["collector"])


def return_per_episode(steps: Steps) -> np.ndarray:
    """The rewards (N,) of each env over the number of episodes that it has begun; the last one may be cut short."""
    ended = (steps.terminated | steps.truncated) & steps.valid
    last = steps.valid.shape[0] - 1 - steps.valid[::-1].argmax(0)  # the last transition of each env
    goes_on = ~ended[last, np.arange(len(last))]
    found: np.ndarray = (steps.reward * steps.valid).sum(0) / (ended.sum(0) + goes_on)
    return found


class PopulationExperience:
    """One iteration: one minibatch of evaluations."""

    def __init__(self, source: PopulationSource, policy: Policy) -> None:
        self._source, self._policy = source, policy

    @property
    def env_steps(self) -> int:
        return self._source.env_steps

    def minibatches(self) -> Iterator[Evaluations]:
        yield self._source.evaluate(self._policy)

    def feedback(self, td_error: Tensor | None, enough: bool = False) -> None:
        """There are no TD errors."""
