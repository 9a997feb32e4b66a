"""The replay buffer: a ring of time-ordered rows per env, and transitions sampled from it.

Every row holds what was seen and done at one time. The row after it holds what was seen next: the next step's row, or,
where the episode ended, a row with the final observation that is no transition itself. So an observation is stored once,
and the next observation of row i is always that of row i + 1. Where a policy sees stacks of frames, rows hold single ones,
and stacks are made of the rows before when they are sampled.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lit_rl.data.integers import Integers
from lit_rl.data.plans import check_buffer_size
from lit_rl.data.room import Room, room_for
from lit_rl.data.transitions import Steps, Transitions
from lit_rl.envs.frames import Stacking
from lit_rl.errors import UsageError
from lit_rl.functional.tree import Tree, tree_map

Rows = np.ndarray | slice


class ReplayBuffer:
    """The newest ``capacity`` rows of N envs; oldest first out. Rows count final observations too, one per episode.

    Args:
        capacity: rows over all envs.
        num_envs: N; each env has its own ring of ``capacity // N`` rows.
        stacking: how many frames a policy sees at once; None for one.

    Raises:
        UsageError: the capacity leaves an env too few rows for one transition.
    """

    def __init__(self, capacity: int, num_envs: int, stacking: Stacking | None = None) -> None:
        stacking = stacking or Stacking()
        check_buffer_size(capacity, num_envs, stacking.depth)
        self.num_envs, self.stacking = num_envs, stacking
        self.rows = capacity // num_envs
        self.head = np.zeros(num_envs, np.int64)  # where the current observation of each env stands
        self.filled = 0  # rows in use, of the env that uses the most
        self._base = np.arange(num_envs) * self.rows
        total = num_envs * self.rows
        self._following = np.arange(1, total + 1)  # the row after each, in its env's ring
        self._following[self.rows - 1 :: self.rows] = self._base
        # numpy's own indexing costs a third of torch's, and the memory is one
        self._is_transition, self._ended, self._terminated = (np.zeros(total, bool) for _ in range(3))
        self._reward = np.zeros(total, np.float32)
        # frames of its own episode in the rows before each row, up to K - 1
        self._age = np.zeros(total if stacking.depth > 1 else 0, np.uint8)
        self._obs: Tree = None  # made when the first rows show their shapes
        self._action = np.zeros(0)
        self._room: Room | None = None  # of the newest minibatch
        self.is_transition, self.ended, self.terminated, self.reward, self.age = map(
            torch.from_numpy, (self._is_transition, self._ended, self._terminated, self._reward, self._age)
        )
        self.obs: Tree = None
        self.action: Tensor = torch.zeros(0)

    def __len__(self) -> int:
        """Transitions that can be sampled."""
        return int(self.is_transition.sum())

    def add(self, steps: Steps) -> np.ndarray:
        """Keep T vector steps of N envs, each row in its own env's ring; the rows whose contents changed."""
        length, begin = len(steps.reward), int(self.head[0])
        if length == 0:
            return np.zeros(0, np.int64)
        if self.obs is None:
            self._allocate(steps.obs, steps.action)
        end = begin + length
        if self.num_envs == 1 and not len(steps.final_index) and end < self.rows:
            # rows that lie side by side, as a single env's mostly do: slices cost a third of what indices cost
            self._write(steps, lambda x: x[:, 0], slice(begin, end), slice(end, end + 1), slice(begin, end + 1))
            self.head[0] = end
            self.filled = min(self.rows, self.filled + length)
            changed = [np.arange(begin, end + 1)]
            if self.stacking.depth > 1:
                changed.append(self._forget())
            return changed[0] if len(changed) == 1 else np.concatenate(changed)
        # of the rows in each env's ring, the current observation's too
        order: np.ndarray = np.arange(length + 1)[:, None]
        longest = length
        t, n = steps.final_index.T
        if len(t):  # final observations have rows of their own
            inserted = np.zeros((length + 1, self.num_envs), np.int64)
            inserted[t + 1, n] = 1
            order = order + inserted.cumsum(0)
            longest = int(order[-1].max())
        first = 0
        if longest >= self.rows:  # of a block larger than the ring, its end only, and nothing from before it
            first = int(((order[-1] - order[:-1]).max(1) >= self.rows).sum())
            self._is_transition[:] = False
        at = (self.head + order) % self.rows + self._base
        seen = at[first:].reshape(-1)
        rows, now = seen[: -self.num_envs], seen[-self.num_envs :]
        self._write(steps, lambda x: x[first:].reshape(-1, *x.shape[2:]), rows, now, seen)
        self.head = now - self._base
        self.filled = min(self.rows, self.filled + longest)
        changed = [seen]
        if len(t):
            keep = t >= first
            final = self._following[at[t[keep], n[keep]]]
            tree_map(lambda room, x: room.__setitem__(final, x[keep]), self._obs, steps.final_obs)
            self._is_transition[final] = False
            changed.append(final)
        if self.stacking.depth > 1:
            if len(t):
                self._age[final] = np.minimum(steps.age[t, n] + 1, self.stacking.depth - 1)[keep]
            if first:  # what their stacks would begin with has not been kept
                early = steps.age[first:length] > order[first:length] - order[first]
                self._is_transition[at[first:length][early]] = False
            changed.append(self._forget())
        if first:
            return np.arange(len(self._reward))
        return seen if len(changed) == 1 else np.concatenate(changed)

    def _write(self, steps: Steps, flat: Callable[[np.ndarray], np.ndarray], rows: Rows, now: Rows, seen: Rows) -> None:
        """Write what ``flat`` makes of steps into ``rows``, and the current observations into ``now``: both are ``seen``."""
        if isinstance(self._obs, np.ndarray):
            self._obs[seen] = flat(steps.obs)
        else:
            tree_map(lambda room, x: room.__setitem__(seen, flat(x)), self._obs, steps.obs)
        self._action[rows] = flat(steps.action)
        self._reward[rows] = flat(steps.reward)
        self._terminated[rows] = flat(steps.terminated)
        self._ended[rows] = flat((steps.terminated | steps.truncated) & steps.valid)
        self._is_transition[rows] = flat(steps.valid)
        self._is_transition[now] = False
        if self.stacking.depth > 1:
            self._age[seen] = flat(steps.age)

    def _forget(self) -> np.ndarray:
        """Rows that are no transitions any more, as the first frames of their stacks have been written over."""
        after = np.arange(1, min(self.stacking.depth, self.rows))[:, None]  # rows from the newest on: the oldest ones
        oldest = (self.head + after) % self.rows + self._base
        lost: np.ndarray = oldest[self._age[oldest] >= after]
        self._is_transition[lost] = False
        return lost

    def draw(self, n: int, integers: Integers) -> np.ndarray:
        """Rows (n,) of transitions, uniform over all that are kept."""
        rows = self._candidates(n, integers)
        good = self._is_transition.take(rows)
        if np.count_nonzero(good) < n:
            (bad,) = (~good).nonzero()
            while len(bad):
                again = rows[bad] = self._candidates(len(bad), integers)
                bad = bad[~self._is_transition.take(again)]
        return rows

    def _candidates(self, n: int, integers: Integers) -> np.ndarray:
        drawn = integers.below(self.num_envs * self.filled, n)
        if self.num_envs == 1 or self.filled == self.rows:  # the same rows, without the arithmetic
            return drawn
        spread: np.ndarray = drawn // self.filled * self.rows + drawn % self.filled
        return spread

    def gather(self, rows: np.ndarray, n_step: int, gamma: float) -> Transitions:
        """The transitions that begin at rows (B,), over up to ``n_step`` steps of their own episode.

        They lie where those that were gathered before lay, if there were as many.
        """
        room = self._room
        if room is None or len(room.reward) != len(rows):
            room = self._room = Room(len(rows), self._obs, self._action, self.stacking)
        _take(self._reward, rows, room.reward)
        discount: np.ndarray | np.float32 = np.float32(gamma)
        last = rows
        for _ in range(n_step - 1):
            following = self._following.take(last)
            goes_on = self._is_transition.take(following) & ~self._ended.take(last)
            if not goes_on.any():
                break
            room.reward += np.where(goes_on, discount * self._reward.take(following), np.float32(0))
            discount = np.where(goes_on, discount * np.float32(gamma), discount)
            last = np.where(goes_on, following, last)
        np.multiply(discount, ~self._terminated.take(last), out=room.discount)
        _take(self._action, rows, room.action)
        self._see(rows, room.obs)
        self._see(self._following.take(last), room.next_obs)
        return room.minibatch

    def seen(self, rows: np.ndarray) -> Tree:
        """What a policy saw at rows (B,)."""
        room = room_for(len(rows), self._obs, self.stacking)
        self._see(rows, room)
        return tree_map(torch.from_numpy, room)

    def _see(self, rows: np.ndarray, room: Tree) -> None:
        if isinstance(room, np.ndarray) and self.stacking.depth == 1:
            _take(self._obs, rows, room)
        elif self.stacking.depth == 1:
            tree_map(lambda x, out: _take(x, rows, out), self._obs, room)
        else:
            back = self.stacking.back(self._age.take(rows))
            # a stack may begin at the ring's end
            stack = rows[:, None] - back + self.rows * ((rows % self.rows)[:, None] < back)
            parts = self.stacking.parts
            tree_map(lambda stacked, x, out: _take(x, stack if stacked else rows, out), parts, self._obs, room)

    def cut(self) -> np.ndarray:
        """End all episodes under way as truncated: what is added next begins new ones; the rows that changed."""
        if self._obs is None:
            return np.zeros(0, np.int64)
        newest = (self.head - 1) % self.rows + self._base
        followed = self._is_transition[newest]  # by the current observation, which stays as its next one
        self._ended[newest] |= followed
        self.head = (self.head + followed) % self.rows
        now = self.head + self._base
        self._is_transition[now] = False
        self.filled = min(self.rows, self.filled + int(followed.any()))
        return now if self.stacking.depth == 1 else np.concatenate([now, self._forget()])

    def _allocate(self, obs: Tree, action: np.ndarray) -> None:
        def room(x: np.ndarray) -> np.ndarray:
            return np.zeros((self.num_envs * self.rows, *x.shape[2:]), x.dtype)

        self._obs, self._action = tree_map(room, obs), room(action)
        self.obs, self.action = tree_map(torch.from_numpy, self._obs), torch.from_numpy(self._action)

    def state_dict(self) -> dict[str, Any]:
        """The filled part of the ring, as tensors."""
        used = min(self.filled + 1, self.rows)

        def part(x: Tensor) -> Tensor:
            return x.view(self.num_envs, self.rows, *x.shape[1:])[:, :used].clone()

        fields = {
            "is_transition": self.is_transition,
            "ended": self.ended,
            "terminated": self.terminated,
            "reward": self.reward,
        }
        if self.stacking.depth > 1:
            fields["age"] = self.age
        state: dict[str, Any] = {
            "head": torch.from_numpy(self.head.copy()),
            "filled": self.filled,
            "rows": self.rows,
            "num_envs": self.num_envs,
        }
        state |= {name: part(x) for name, x in fields.items()}
        if self.obs is not None:
            state |= {"obs": tree_map(part, self.obs), "action": part(self.action)}
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a saved ring.

        Raises:
            UsageError: the ring had another size or number of envs.
        """
        if (state["rows"], state["num_envs"]) != (self.rows, self.num_envs):
            raise UsageError(
                f"the checkpoint's replay buffer holds {state['rows']} rows for each of {state['num_envs']} envs, "
                f"this run's {self.rows} for {self.num_envs}: keep --buffer_size and --num_envs"
            )
        self.head, self.filled = state["head"].numpy().copy(), state["filled"]
        self.is_transition.zero_()  # rows that are not in the checkpoint are none
        if "obs" in state:
            self._allocate(tree_map(lambda x: x.numpy(), state["obs"]), state["action"].numpy())

        def restore(room: Tensor, saved: Tensor) -> None:
            room.view(self.num_envs, self.rows, *room.shape[1:])[:, : saved.shape[1]] = saved

        for name in ("is_transition", "ended", "terminated", "reward", *(["age"] if self.stacking.depth > 1 else [])):
            restore(getattr(self, name), state[name])
        if self.obs is not None:
            tree_map(restore, self.obs, state["obs"])
            restore(self.action, state["action"])


def _take(x: np.ndarray, rows: np.ndarray, out: np.ndarray) -> None:
    """Write ``x[rows]`` into ``out``; rows are in range, and numpy copies once where it need not check that."""
    x.take(rows, 0, out, "clip")
