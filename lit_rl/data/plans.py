"""What experience an algorithm wants, as frozen plans: the whole contract between algorithms and data.

A plan fixes the number of updates of an iteration, whatever rows come in, so that ranks never wait for each other.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from lit_rl.errors import UsageError

if TYPE_CHECKING:
    from lit_rl.data.collector import Collector
    from lit_rl.data.experience import Source


class Plan(Protocol):
    """What the datamodule needs of a plan."""

    @property
    def steps_per_iteration(self) -> int:
        """Env steps of one iteration, counted over all envs and ranks."""

    def fit(self, step_per_epoch: int, vector_step: int) -> Plan:
        """The plan with the largest iteration that divides an epoch and holds whole vector steps of all ranks."""

    def make_source(self, collector: Collector, seed: int, world_size: int) -> Source:
        """The source that collects and keeps experience by this plan."""


def fit_iteration(steps_per_iteration: int, step_per_epoch: int, vector_step: int) -> int:
    """The largest divisor of ``step_per_epoch`` not above ``steps_per_iteration`` that ``vector_step`` divides.

    Raises:
        UsageError: an epoch is not a whole number of vector steps.
    """
    if step_per_epoch % vector_step:
        raise UsageError(
            f"step_per_epoch {step_per_epoch} is not a multiple of the {vector_step} env steps that all envs make at once; "
            f"use --step_per_epoch {max(1, round(step_per_epoch / vector_step)) * vector_step} or another --num_envs"
        )
    wanted = max(min(steps_per_iteration, step_per_epoch), vector_step)
    return max(n for n in range(vector_step, wanted + 1, vector_step) if step_per_epoch % n == 0)


@dataclass(frozen=True)
class ReplayPlan:
    """Collect → replay buffer → samples (DQN, DDPG, TD3, SAC).

    Every ``collect_per_step`` env steps are followed by ``collect_per_step * update_per_step`` updates on minibatches of
    ``batch_size`` transitions (a fraction is carried over), once ``learning_starts`` env steps have been collected.
    """

    steps_per_iteration: int
    collect_per_step: int
    update_per_step: float
    batch_size: int
    buffer_size: int
    learning_starts: int
    gamma: float
    n_step: int = 1
    random_steps: int = 0  # env steps at the start that act at random, whatever the policy

    def fit(self, step_per_epoch: int, vector_step: int) -> ReplayPlan:
        iteration = fit_iteration(self.steps_per_iteration, step_per_epoch, vector_step)
        collect = max(n for n in range(1, min(self.collect_per_step, iteration) + 1) if iteration % n == 0)
        return dataclasses.replace(self, steps_per_iteration=iteration, collect_per_step=collect)

    def make_source(self, collector: Collector, seed: int, world_size: int) -> Source:
        from lit_rl.data.replay import ReplaySource

        return ReplaySource(self, collector, seed, world_size)
