"""What Lightning's loops iterate: iterations of experience, and episodes. Both have a length, and no side effect."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from lit_rl.data.experience import Experience


class ExperienceLoader:
    """An epoch of iterations, made when they are asked for.

    Without a length Lightning would fetch one ahead, and every update would be a policy behind.
    """

    def __init__(self, iterations: int, make: Callable[[], Experience]) -> None:
        self._iterations, self._make = iterations, make

    def __len__(self) -> int:
        return self._iterations

    def __iter__(self) -> Iterator[Experience]:
        for _ in range(self._iterations):
            yield self._make()


class EpisodeLoader:
    """A fixed set of episodes, played or read when it is iterated."""

    def __init__(self, episodes: int, play: Callable[[], Iterator[Any]]) -> None:
        self._episodes, self._play = episodes, play

    def __len__(self) -> int:
        return self._episodes

    def __iter__(self) -> Iterator[Any]:
        return self._play()
