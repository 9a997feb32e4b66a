"""A window on a stream of episodes: what minibatches are drawn from, in bounded memory."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor

from lit_rl.data.buffer import ReplayBuffer
from lit_rl.data.integers import Integers
from lit_rl.data.offline.data_set import Part
from lit_rl.data.offline.episodes import bytes_per_row
from lit_rl.data.transitions import Steps, Trajectory, Transitions
from lit_rl.envs.frames import Stacking
from lit_rl.errors import UsageError
from lit_rl.functional.tree import tree_map
from lit_rl.policies.units import from_env


class Rows:
    """Trajectory episodes in a replay buffer's ring, with the return of each step beside it.

    Args:
        rows: of the ring; a final observation takes one too, and one is always free.
        action: the space of actions, which are kept in the policy's own units.
        gamma: discount of returns.
        stacking: how many frames a policy sees at once.
    """

    def __init__(self, rows: int, action: gym.Space[Any], gamma: float, stacking: Stacking) -> None:
        self.buffer = ReplayBuffer(rows, 1, stacking)
        self.gamma = gamma
        self._return = torch.zeros(rows)
        self._to_end = torch.zeros(rows, dtype=torch.int64)  # steps to the final observation
        self._units = from_env(action)

    def add(self, episode: Trajectory) -> np.ndarray:
        """Take in an episode in place of the oldest rows; the rows of its steps."""
        count = len(episode.reward)
        end = np.zeros((count, 1), bool)
        end[-1] = True
        steps = Steps(
            obs=tree_map(lambda x: x[:, None], episode.obs),
            action=self._units(episode.action)[:, None],
            reward=episode.reward[:, None],
            terminated=end & episode.terminated,
            truncated=end & episode.truncated,
            valid=np.ones((count, 1), bool),
            final_index=np.array([[count - 1, 0]]),
            final_obs=tree_map(lambda x: x[-1:], episode.obs),
            age=np.arange(count + 1).clip(max=self.buffer.stacking.depth - 1).astype(np.uint8)[:, None],
        )
        rows = self.buffer.add(steps)[:count]
        self._return[rows] = torch.from_numpy(returns_to_go(episode.reward, self.gamma)).float()
        self._to_end[rows] = torch.arange(count, 0, -1)
        return rows

    def gather(self, rows: np.ndarray, n_step: int | None) -> Transitions:
        """The transitions that begin at rows (B,), over ``n_step`` steps or, with None, to their episode's end."""
        batch = self.buffer.gather(rows, n_step or 1, self.gamma)._replace(return_=self._return[rows])
        if n_step is not None:
            return batch
        steps = self._to_end[rows]
        last, final = ((torch.from_numpy(rows) + more) % self.buffer.rows for more in (steps - 1, steps))
        discount = (self.gamma ** steps.double()).float().masked_fill_(self.buffer.terminated[last], 0.0)
        return batch._replace(reward=batch.return_, discount=discount, next_obs=self.buffer.seen(final.numpy()))


class Window:
    """The newest rows of a stream of episodes.

    The stream is the part's episodes in a random order, and again in another. A part that fits is held whole. Otherwise
    as many rows come in as were drawn, so that a step is drawn once in each pass, on average, however large the part.

    Args:
        part: the episodes.
        seed: of their order.
        gamma: discount of returns.
        limit_mb: MiB of memory.
        stacking: how many frames a policy sees at once.

    Raises:
        UsageError: the limit leaves no room for the longest episode.
    """

    def __init__(self, part: Part, seed: int, gamma: float, limit_mb: float, stacking: Stacking) -> None:
        self.part, self.seed = part, seed
        whole = part.steps + len(part) + stacking.depth
        row = bytes_per_row(part.spaces)
        rows, longest = min(whole, int(limit_mb * 2**20) // row), max(part.lengths)
        if rows < longest + 2 + stacking.depth and rows < whole:
            needed = (longest + 2 + stacking.depth) * row / 2**20
            raise UsageError(
                f"--window_mb {limit_mb:g} has no room for an episode of {longest} steps: give at least {needed:.2g}"
            )
        self.whole = rows == whole
        self.rows = Rows(rows, part.spaces.action, gamma, stacking)
        self.read = 0  # episodes of the stream that came in
        self._due = 0  # rows that are to come in
        self._order: tuple[int, list[int]] = -1, []

    def fill(self) -> None:
        """Take in as much as there is room for, where nothing came in yet."""
        if self.read > 0:
            return
        room = self.rows.buffer.rows
        while self.read < len(self.part) and (self.whole or room > 0):
            room -= self._take_next()

    def draw(self, count: int, n_step: int | None, generator: torch.Generator) -> Transitions:
        """``count`` transitions, uniform over the window."""
        return self.rows.gather(self.rows.buffer.draw(count, Integers(generator)), n_step)

    def move(self, drawn: int) -> None:
        """Let in as many rows as were drawn, in whole episodes."""
        if self.whole:
            return
        self._due += drawn
        while self._due >= (rows := self._rows_of(self.read)):
            self._due -= rows
            self._take_next()

    def _take_next(self) -> int:
        """Take in the next episode of the stream; its rows, the final observation's included."""
        self.rows.add(self.part.read(self._number(self.read)))
        self.read += 1
        return self._rows_of(self.read - 1)

    def _number(self, position: int) -> int:
        """Which episode stands at a position of the stream."""
        passed, at = divmod(position, len(self.part))
        if self._order[0] != passed:
            order = np.random.default_rng([self.seed, passed]).permutation(len(self.part))
            self._order = passed, order.tolist()
        return self._order[1][at]

    def _rows_of(self, position: int) -> int:
        return self.part.lengths[self._number(position)] + 1

    def state_dict(self) -> dict[str, Any]:
        """Where in the stream it stands; the rows are read again."""
        buffer = self.rows.buffer
        return {"read": self.read, "due": self._due, "head": int(buffer.head[0])}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Stand where the saved one stood, with the same rows at the same places; another rank stands as far in its own part."""
        if self.whole:  # filled as it always is
            return
        buffer, first, rows = self.rows.buffer, state["read"], 0
        while first > 0 and rows < buffer.rows:
            first -= 1
            rows += self._rows_of(first)
        buffer.is_transition.zero_()
        buffer.filled = 0
        buffer.head[0] = (state["head"] - rows) % buffer.rows if first > 0 else 0
        self.read = first
        while self.read < state["read"]:
            self._take_next()
        self._due = state["due"]


def returns_to_go(reward: np.ndarray, gamma: float) -> np.ndarray:
    """The discounted sum of the rewards from each step (n,) to the end, without bootstrap."""
    found = np.zeros(len(reward))
    after = 0.0
    for t, r in zip(range(len(reward) - 1, -1, -1), reward[::-1].tolist(), strict=True):
        found[t] = after = r + gamma * after
    return found


def mixed(parts: list[Transitions], chosen: Tensor) -> Transitions:
    """The rows of several minibatches, one after the other, put where ``chosen`` (B,) names their minibatch."""
    order = torch.argsort(torch.argsort(chosen, stable=True), stable=True)
    first, *rest = (part[:-1] for part in parts)  # without the noise, which has no rows
    return Transitions(*tree_map(lambda *rows: torch.cat(rows)[order], first, *rest))
