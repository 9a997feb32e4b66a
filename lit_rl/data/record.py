"""Episodes as they are played, step by step, for whoever keeps them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from lit_rl.data.collector import reported_success
from lit_rl.data.transitions import Trajectory
from lit_rl.functional.tree import Tree, tree_map


class _Open:
    """An episode under way."""

    def __init__(self, number: int, seed: int, obs: Tree) -> None:
        self.number, self.seed, self.obs = number, seed, [obs]
        self.action: list[np.ndarray] = []
        self.reward: list[float] = []

    def closed(self, terminated: bool, truncated: bool, success: float | None) -> Trajectory:
        obs = tree_map(lambda *steps: np.stack(steps), *self.obs)
        reward = np.array(self.reward, np.float64)
        return Trajectory(
            self.number, self.seed, obs, np.stack(self.action), reward, terminated, truncated, success, None
        )


class Recorder:
    """Is shown every step of the envs that an evaluation plays, and hands over each episode as a :class:`Trajectory`.

    Args:
        keep: takes an episode as soon as it ends; None counts the steps only.

    Attributes:
        steps: env steps that it was shown.
    """

    def __init__(self, keep: Callable[[Trajectory], None] | None = None) -> None:
        self._keep = keep
        self.steps = 0
        self._open: dict[int, _Open] = {}  # by the number of the env

    def saw(self, number: Sequence[int], seeds: Sequence[int], obs: Tree) -> None:
        """The observations (N, ...) before a step; ``number`` is the episode of each env, -1 where none is played."""
        self.steps += sum(episode >= 0 for episode in number)
        for i, episode in enumerate(number if self._keep is not None else ()):
            if episode >= 0 and i not in self._open:
                self._open[i] = _Open(episode, seeds[i], _row(obs, i))

    def made(
        self,
        action: np.ndarray,
        reward: np.ndarray,
        terminated: np.ndarray,
        truncated: np.ndarray,
        obs: Tree,
        info: dict[str, Any],
    ) -> None:
        """A step: actions as the envs took them, and what came of them."""
        for i, episode in list(self._open.items()):
            episode.action.append(np.array(action[i]))
            episode.reward.append(float(reward[i]))
            episode.obs.append(_row(obs, i))
            if terminated[i] or truncated[i]:
                success = reported_success(info, i)
                self._hand_over(self._open.pop(i).closed(bool(terminated[i]), bool(truncated[i]), success))

    def cut(self) -> None:
        """Nothing more is played: the episodes under way count as truncated."""
        for i in sorted(self._open):
            episode = self._open.pop(i)
            if episode.reward:
                self._hand_over(episode.closed(False, True, None))

    def _hand_over(self, trajectory: Trajectory) -> None:
        assert self._keep is not None
        self._keep(trajectory)


def _row(obs: Tree, i: int) -> Tree:
    return tree_map(lambda x: np.array(x[i]), obs)
