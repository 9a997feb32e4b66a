"""A data set: every episode checked once, split into those to learn from and those to score by."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from lit_rl.data.offline.episodes import BadEpisode, EpisodeSet
from lit_rl.data.offline.inputs import Input, open_input
from lit_rl.data.transitions import Trajectory
from lit_rl.envs.frames import Stacking
from lit_rl.envs.spaces import Spaces, describe
from lit_rl.errors import UsageError

WHOLE = Stacking()  # observations are seen one by one


@dataclass(frozen=True)
class Part:
    """Episodes that are drawn from with one probability."""

    probability: float
    sets: list[EpisodeSet]
    spaces: Spaces
    index: list[tuple[int, int]]  # (set, episode in it) of each
    lengths: list[int]  # steps of each

    def __len__(self) -> int:
        return len(self.index)

    @property
    def steps(self) -> int:
        return sum(self.lengths)

    def read(self, number: int) -> Trajectory:
        """An episode of this part, read anew."""
        at, episode = self.index[number]
        return self.sets[at].read(episode, self.spaces)

    def of(self, numbers: list[int]) -> Part:
        """These of its episodes."""
        index, lengths = [self.index[i] for i in numbers], [self.lengths[i] for i in numbers]
        return Part(self.probability, self.sets, self.spaces, index, lengths)


@dataclass(frozen=True)
class TrainingData:
    """What one rank learns from: its episodes of each part, how much of them it may hold in memory, and how they are seen."""

    parts: list[Part]
    window_mb: float
    stacking: Stacking = WHOLE


class DataSet:
    """The episodes that ``--input`` names; where a policy sees stacks of frames, they hold single ones.

    All of them are read once, one at a time, and checked; learning reads them again as it goes.

    Args:
        given: what ``--input`` takes.
        spaces: those that the episodes must have; None for what the data set says.
        validation_fraction: share of the episodes, in [0, 1), that is held out.
        seed: of the split.
        skip_bad_episodes: drop episodes that cannot be learned from instead of refusing the data set.

    Raises:
        UsageError: nothing there, a bad episode, or spaces that are not the same throughout.
    """

    def __init__(
        self,
        given: Input,
        spaces: Spaces | None = None,
        validation_fraction: float = 0.1,
        seed: int = 0,
        skip_bad_episodes: bool = False,
    ) -> None:
        self.name = given if isinstance(given, str) else ", ".join(given)
        opened = open_input(given)
        all_sets = [found for _, sets in opened for found in sets]
        self.spaces = _common_spaces(all_sets, spaces)
        self.env_id = next((found.env_id for found in all_sets if found.env_id is not None), None)
        self.skipped: list[str] = []  # what was wrong with each episode that was dropped
        self.mean_return = 0.0
        self._training: list[Part] = []
        self._held_out: list[Part] = []
        generator = np.random.default_rng([seed, 7])
        returns = 0.0
        for probability, sets in opened:
            index, lengths = [], []
            for at, found in enumerate(sets):
                for episode in range(len(found)):
                    try:
                        recorded = found.read(episode, self.spaces)
                    except BadEpisode as error:
                        if not skip_bad_episodes:
                            raise UsageError(f"--input: {error}; --skip_bad_episodes drops such episodes") from None
                        self.skipped.append(str(error))
                        continue
                    index.append((at, episode))
                    lengths.append(len(recorded.reward))
                    returns += float(recorded.reward.sum(dtype=np.float64))
            whole = Part(probability, sets, self.spaces, index, lengths)
            training, held_out = _split(whole, validation_fraction, generator)
            self._training.append(training)
            self._held_out.append(held_out)
        self.mean_return = returns / max(1, self.episodes)

    @property
    def episodes(self) -> int:
        return sum(map(len, self._training + self._held_out))

    @property
    def held_out_episodes(self) -> int:
        return sum(map(len, self._held_out))

    @property
    def steps(self) -> int:
        return sum(part.steps for part in self._training + self._held_out)

    def training(self, rank: int, ranks: int, window_mb: float, stacking: Stacking = WHOLE) -> TrainingData:
        """This rank's share of the episodes to learn from.

        Raises:
            UsageError: there are fewer episodes than ranks.
        """
        for part in self._training:
            if len(part) < ranks:
                raise UsageError(f"--input: {len(part)} episodes to learn from leave some of the {ranks} ranks nothing")
        shares = [part.of(list(range(rank, len(part), ranks))) for part in self._training]
        return TrainingData(shares, window_mb, stacking)

    def held_out(self, rank: int, ranks: int) -> Iterator[tuple[int, Trajectory]]:
        """This rank's share of the episodes to score by, each with its number, read as they are asked for."""
        number = 0
        for part in self._held_out:
            for i in range(len(part)):
                if number % ranks == rank:
                    yield number, part.read(i)
                number += 1

    def __str__(self) -> str:
        """What it holds, in a line."""
        dropped = f"; {len(self.skipped)} bad ones dropped (first: {self.skipped[0]})" if self.skipped else ""
        kept = f"{self.episodes:,} episodes, {self.steps:,} steps, mean return {self.mean_return:.2f}"
        return f"data: {self.name}: {kept}, {self.held_out_episodes:,} of them held out to score by{dropped}"


def _split(part: Part, fraction: float, generator: np.random.Generator) -> tuple[Part, Part]:
    """Episodes to learn from and episodes to score by; one of each at least, where a fraction was asked for."""
    count = len(part)
    if count == 0:
        raise UsageError(f"--input: {part.sets[0].name} holds no episode that can be learned from")
    held = min(count - 1, max(1, round(fraction * count))) if fraction > 0 else 0
    if fraction > 0 and held == 0:
        raise UsageError(
            f"--input: {part.sets[0].name} holds one episode, which cannot be split: give more, or --validation_fraction 0"
        )
    order = generator.permutation(count).tolist()
    return part.of(sorted(order[held:])), part.of(sorted(order[:held]))


def _common_spaces(sets: list[EpisodeSet], wanted: Spaces | None) -> Spaces:
    """The spaces of all sets.

    Raises:
        UsageError: none says them, or they differ.
    """
    spaces, origin = wanted, "the environment"
    for found in sets:
        if found.spaces is None:
            continue
        if spaces is None:
            spaces, origin = found.spaces, found.name
        for kind in ("observation", "action"):
            one, other = getattr(found.spaces, kind), getattr(spaces, kind)
            if one != other:
                shown = [describe(one), describe(other)]
                shown = shown if shown[0] != shown[1] else [str(one), str(other)]
                raise UsageError(
                    f"--input: {found.name} has the {kind} space {shown[0]}, and {origin} has {shown[1]}: "
                    "they must be the same"
                )
    if spaces is None:
        raise UsageError(f"--input: {sets[0].name} does not say its spaces: add --env ID, or a header line with spaces")
    return spaces
