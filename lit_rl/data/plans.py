"""What experience an algorithm wants, as frozen plans: the whole contract between algorithms and data.

A plan fixes the number of updates of an iteration, whatever rows come in, so that ranks never wait for each other.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from lit_rl.errors import UsageError
from lit_rl.functional.schedules import Schedule

if TYPE_CHECKING:
    from typing_extensions import Self

    from lit_rl.data.collector import Collector
    from lit_rl.data.experience import Source
    from lit_rl.data.offline.data_set import TrainingData


class Plan(Protocol):
    """What the datamodule needs of a plan."""

    @property
    def steps_per_iteration(self) -> int:
        """Env steps of one iteration, counted over all envs and ranks."""

    def fit(self, step_per_epoch: int, vector_step: int, frame_stack: int = 1) -> Plan:
        """The plan with the largest iteration that divides an epoch and holds whole vector steps of all ranks.

        Raises:
            UsageError: there is none, or what it keeps leaves no room for stacks of ``frame_stack`` frames.
        """

    def offline(self) -> OfflinePlan:
        """The plan by which the same algorithm learns from recorded episodes.

        Raises:
            UsageError: it needs experience of its own policy.
        """

    def refining(self, first_updates: int, offline_fraction: float) -> Plan:
        """The plan of a stage that goes on with a policy.

        Args:
            first_updates: that are made before anything is collected by what they learn, where a plan can.
            offline_fraction: share of recorded transitions in each minibatch.

        Raises:
            UsageError: there is no minibatch to mix recorded transitions into.
        """

    def make_source(
        self, collector: Collector | None, seed: int, world_size: int, data: TrainingData | None = None
    ) -> Source:
        """The source that collects (from ``collector``), or reads (from ``data``), and keeps experience by this plan.

        Raises:
            UsageError: the plan lacks what it learns from.
        """


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


def check_buffer_size(rows: int, envs: int, frame_stack: int = 1) -> None:
    """Refuse a replay buffer that leaves an env no room for a transition, a final observation and a stack of frames."""
    least = (2 + frame_stack) * envs
    if rows < least:
        raise UsageError(f"--buffer_size {rows} is too small for {envs} envs: it must be at least {least}")


@dataclass(frozen=True)
class Prioritized:
    """Replay in proportion to the TD error (Schaul et al. 2016, arXiv:1511.05952): p_i = (abs(error_i) + eps)^alpha."""

    alpha: float
    beta: Schedule  # exponent of the importance weights, over env steps
    eps: float


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
    prioritized: Prioritized | None = None  # None samples uniformly
    noise: tuple[int, ...] = (0,)  # shape of the standard normal numbers that come with every minibatch
    first_updates: int = 0  # made at once when learning starts
    offline_fraction: float = 0.0  # share of a minibatch that is drawn from recorded episodes

    def fit(self, step_per_epoch: int, vector_step: int, frame_stack: int = 1) -> ReplayPlan:
        check_buffer_size(self.buffer_size, vector_step, frame_stack)
        rows = self.buffer_size // vector_step
        if self.n_step > rows:
            raise UsageError(
                f"--n_step {self.n_step} is more than the {rows} env steps that the buffer keeps of an env"
            )
        iteration = fit_iteration(self.steps_per_iteration, step_per_epoch, vector_step)
        collect = max(n for n in range(1, min(self.collect_per_step, iteration) + 1) if iteration % n == 0)
        return dataclasses.replace(self, steps_per_iteration=iteration, collect_per_step=collect)

    def offline(self) -> OfflinePlan:
        return OfflinePlan(self.steps_per_iteration, self.batch_size, self.gamma, self.n_step, self.noise)

    def refining(self, first_updates: int, offline_fraction: float) -> ReplayPlan:
        mixed_in = round(offline_fraction * self.batch_size)
        if offline_fraction and not 0 < mixed_in < self.batch_size:
            raise UsageError(
                f"--offline_fraction {offline_fraction} is {mixed_in} of a minibatch's {self.batch_size} transitions: some of "
                "them must be recorded, and some not"
            )
        return dataclasses.replace(self, first_updates=first_updates, offline_fraction=offline_fraction)

    def make_source(
        self, collector: Collector | None, seed: int, world_size: int, data: TrainingData | None = None
    ) -> Source:
        from lit_rl.data.offline.source import OfflineSource
        from lit_rl.data.replay import ReplaySource

        assert collector is not None
        recorded = None if data is None else OfflineSource(self.offline(), data, seed + 1)
        return ReplaySource(self, collector, seed, world_size, recorded)


class FromItsOwnActing:
    """A plan of an algorithm that learns from what its own policy has just done, and from nothing else."""

    def offline(self) -> OfflinePlan:
        raise UsageError(
            "--input: this algorithm learns from its own policy's experience alone; from data learn BC, MARWIL, and those "
            "with a replay buffer, such as DQN and SAC"
        )

    def refining(self, first_updates: int, offline_fraction: float) -> Self:
        _refuse_mixing(offline_fraction)
        return self


@dataclass(frozen=True)
class RolloutPlan(FromItsOwnActing):
    """Collect a rollout → advantages → epochs x minibatches, and again (PG, A2C, PPO).

    An iteration holds one rollout or several, one after the other. A rollout is shuffled once per epoch and split into
    minibatches of ``batch_size`` transitions or a few more, so that as few as can be are left over. Of a policy that remembers,
    minibatches are made of whole sequences of ``sequence`` vector steps, so they may hold a few less.
    """

    steps_per_iteration: int
    rollout_length: int  # vector steps: env steps of each env
    epochs: int
    batch_size: int | None  # transitions of a minibatch, on each rank; None: the whole rollout
    gamma: float
    gae_lambda: float
    normalize_reward: bool = False  # by the standard deviation of discounted returns so far
    sequence: int = 1  # vector steps that stay together, in their order; 1 where the policy remembers nothing
    complete_episodes: bool = False  # learn of an episode when it has ended

    def fit(self, step_per_epoch: int, vector_step: int, frame_stack: int = 1) -> RolloutPlan:
        length, iteration = fit_rollout(self.rollout_length, self.steps_per_iteration, step_per_epoch, vector_step)
        sequence = fit_sequence(self.sequence, length)
        return dataclasses.replace(self, rollout_length=length, steps_per_iteration=iteration, sequence=sequence)

    def make_source(
        self, collector: Collector | None, seed: int, world_size: int, data: TrainingData | None = None
    ) -> Source:
        from lit_rl.data.rollout import RolloutSource

        assert collector is not None
        return RolloutSource(self, collector, seed, world_size)


@dataclass(frozen=True)
class PopulationPlan(FromItsOwnActing):
    """Score ``members`` perturbed policies, each on its share of an iteration's env steps → one update (ES)."""

    steps_per_iteration: int
    members: int  # over all ranks, in pairs of opposite perturbations
    noise_stdev: float

    def fit(self, step_per_epoch: int, vector_step: int, frame_stack: int = 1) -> PopulationPlan:
        members, iteration = fit_population(self.members, self.steps_per_iteration, step_per_epoch, vector_step)
        return dataclasses.replace(self, steps_per_iteration=iteration, members=members)

    def make_source(
        self, collector: Collector | None, seed: int, world_size: int, data: TrainingData | None = None
    ) -> Source:
        from lit_rl.data.population import PopulationSource

        assert collector is not None
        return PopulationSource(self, collector, seed, world_size)


@dataclass(frozen=True)
class OfflinePlan:
    """Recorded episodes → minibatches of their transitions (BC, MARWIL; replay algorithms with a data set).

    Nothing is collected: an iteration is a number of updates.
    """

    steps_per_iteration: int  # updates
    batch_size: int  # transitions of a minibatch, on each rank
    gamma: float
    n_step: int | None = 1  # env steps of reward before the bootstrap; None: all to the episode's end
    noise: tuple[int, ...] = (0,)  # shape of the standard normal numbers that come with every minibatch

    def fit(self, step_per_epoch: int, vector_step: int, frame_stack: int = 1) -> OfflinePlan:
        return dataclasses.replace(self, steps_per_iteration=fit_iteration(self.steps_per_iteration, step_per_epoch, 1))

    def offline(self) -> OfflinePlan:
        return self

    def refining(self, first_updates: int, offline_fraction: float) -> OfflinePlan:
        _refuse_mixing(offline_fraction)
        return self

    def make_source(
        self, collector: Collector | None, seed: int, world_size: int, data: TrainingData | None = None
    ) -> Source:
        from lit_rl.data.offline.source import OfflineSource

        if data is None:
            raise UsageError("this algorithm learns from recorded episodes alone: give --input PATH")
        return OfflineSource(self, data, seed)


def _refuse_mixing(offline_fraction: float) -> None:
    if offline_fraction:
        raise UsageError(
            f"--offline_fraction {offline_fraction}: stage 2 has no replay buffer to mix recorded transitions with: leave it out"
        )


def fit_rollout(
    rollout_length: int, steps_per_iteration: int, step_per_epoch: int, vector_step: int
) -> tuple[int, int]:
    """The largest rollout, in vector steps, that divides an epoch, and the largest iteration that holds whole ones.

    Raises:
        UsageError: an epoch is not a whole number of vector steps.
    """
    longest = max(1, min(rollout_length, step_per_epoch // vector_step))
    rollout = fit_iteration(longest * vector_step, step_per_epoch, vector_step)
    return rollout // vector_step, fit_iteration(steps_per_iteration, step_per_epoch, rollout)


def fit_sequence(sequence: int, rollout_length: int) -> int:
    """The longest sequence that cuts a rollout evenly, ``sequence`` at most; ``sequence`` itself where that is under half of it.

    The last sequence of a rollout is a shorter one then.
    """
    longest = min(sequence, rollout_length)
    even = max(n for n in range(1, longest + 1) if rollout_length % n == 0)
    return even if 2 * even > longest else longest


def fit_population(members: int, steps_per_iteration: int, step_per_epoch: int, vector_step: int) -> tuple[int, int]:
    """The most members that divide an epoch, and then the largest iteration that they divide; every env plays whole ones.

    Raises:
        UsageError: an epoch is too short or too odd for a pair of members in each env.
    """
    wave = members_at_once(vector_step)
    limit = max(wave, min(members, steps_per_iteration, step_per_epoch))
    fitting = [n for n in range(wave, limit + 1, wave) if step_per_epoch % n == 0]
    if not fitting:
        near = max(1, round(step_per_epoch / wave)) * wave
        raise UsageError(
            f"step_per_epoch {step_per_epoch} cannot be shared out among pairs of policies in each of {vector_step} "
            f"envs; use --step_per_epoch {near}"
        )
    return max(fitting), fit_iteration(steps_per_iteration, step_per_epoch, max(fitting))


def members_at_once(vector_step: int) -> int:
    """A pair of members in each env: the pairs of mirror images never part over ranks."""
    return 2 * vector_step
