"""Experience replay: a ring of time-ordered rows per env, and transitions sampled from it.

Every row holds what was seen and done at one time. The row after it holds what was seen next: the next step's row, or,
where the episode ended, a row with the final observation that is no transition itself. So an observation is stored once,
and the next observation of row i is always that of row i + 1. Where a policy sees stacks of frames, rows hold single ones,
and stacks are made of the rows before when they are sampled.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lit_rl.data.collector import Collector
from lit_rl.data.experience import Source
from lit_rl.data.hooks import call
from lit_rl.data.plans import ReplayPlan, check_buffer_size
from lit_rl.data.prioritized import Priorities
from lit_rl.data.transitions import Steps, Transitions
from lit_rl.envs.frames import Stacking
from lit_rl.errors import UsageError
from lit_rl.functional.schedules import value_at
from lit_rl.functional.tree import Tree, tree_map
from lit_rl.policies.base import Policy


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
        self.is_transition = torch.zeros(num_envs * self.rows, dtype=torch.bool)
        self.ended = torch.zeros(num_envs * self.rows, dtype=torch.bool)
        self.terminated = torch.zeros(num_envs * self.rows, dtype=torch.bool)
        self.reward = torch.zeros(num_envs * self.rows)
        # frames of its own episode in the rows before each row, up to K - 1
        self.age = torch.zeros(num_envs * self.rows if stacking.depth > 1 else 0, dtype=torch.uint8)
        self.obs: Tree = None  # made when the first rows show their shapes
        self.action: Tensor = torch.zeros(0)

    def __len__(self) -> int:
        """Transitions that can be sampled."""
        return int(self.is_transition.sum())

    def add(self, steps: Steps) -> np.ndarray:
        """Keep T vector steps of N envs, each row in its own env's ring; the rows whose contents changed."""
        length = len(steps.reward)
        if length == 0:
            return np.zeros(0, np.int64)
        if self.obs is None:
            self._allocate(steps.obs, steps.action)
        inserted = np.zeros((length, self.num_envs), np.int64)  # rows for final observations
        t, n = steps.final_index.T
        inserted[t, n] = 1
        total = length + inserted.sum(0)
        first = 0
        if total.max() >= self.rows:  # of a block larger than the ring, its end only, and nothing from before it
            first = int(((1 + inserted)[::-1].cumsum(0).max(1) >= self.rows).sum())
            self.is_transition.zero_()
        order = np.arange(length)[:, None] + inserted.cumsum(0) - inserted
        at = (self.head + order) % self.rows + self._base
        rows = at[first:].reshape(-1)

        def put(room: Tensor, where: np.ndarray, values: np.ndarray) -> None:
            room.numpy()[where] = values

        tree_map(lambda room, x: put(room, rows, x[first:length].reshape(-1, *x.shape[2:])), self.obs, steps.obs)
        put(self.action, rows, steps.action[first:].reshape(-1, *steps.action.shape[2:]))
        put(self.reward, rows, steps.reward[first:].reshape(-1))
        put(self.terminated, rows, steps.terminated[first:].reshape(-1))
        put(self.ended, rows, ((steps.terminated | steps.truncated) & steps.valid)[first:].reshape(-1))
        put(self.is_transition, rows, steps.valid[first:].reshape(-1))
        final = rows[:0]
        if len(t):
            keep = t >= first
            at_end = at[t[keep], n[keep]]
            final = np.where((at_end + 1) % self.rows == 0, at_end + 1 - self.rows, at_end + 1)
            tree_map(lambda room, x: put(room, final, x[keep]), self.obs, steps.final_obs)
            self.is_transition.numpy()[final] = False
        forgotten = rows[:0]
        if self.stacking.depth > 1:
            put(self.age, rows, steps.age[first:length].reshape(-1))
            put(self.age, final, np.minimum(steps.age[t, n] + 1, self.stacking.depth - 1)[t >= first])
            if first:  # what their stacks would begin with has not been kept
                early = steps.age[first:length] > order[first:] - order[first]
                self.is_transition.numpy()[at[first:][early]] = False
        self.head = (self.head + total) % self.rows
        now = self.head + self._base
        tree_map(lambda room, x: put(room, now, x[length]), self.obs, steps.obs)
        self.is_transition.numpy()[now] = False
        if self.stacking.depth > 1:
            put(self.age, now, steps.age[length])
            forgotten = self._forget()
        self.filled = min(self.rows, self.filled + int(total.max()))
        return np.arange(len(self.reward)) if first else np.concatenate([rows, final, now, forgotten])

    def _forget(self) -> np.ndarray:
        """Rows that are no transitions any more, as the first frames of their stacks have been written over."""
        after = np.arange(1, min(self.stacking.depth, self.rows))[:, None]  # rows from the newest on: the oldest ones
        oldest = (self.head + after) % self.rows + self._base
        lost: np.ndarray = oldest[self.age.numpy()[oldest] >= after]
        self.is_transition.numpy()[lost] = False
        return lost

    def draw(self, n: int, generator: torch.Generator) -> Tensor:
        """Rows (n,) of transitions, uniform over all that are kept."""
        rows = self._candidates(n, generator)
        bad = torch.nonzero(~self.is_transition[rows]).squeeze(1)
        while len(bad):
            rows[bad] = self._candidates(len(bad), generator)
            bad = bad[~self.is_transition[rows[bad]]]
        return rows

    def _candidates(self, n: int, generator: torch.Generator) -> Tensor:
        drawn = torch.randint(self.num_envs * self.filled, (n,), generator=generator)
        return drawn if self.filled == self.rows else drawn // self.filled * self.rows + drawn % self.filled

    def gather(self, rows: Tensor, n_step: int, gamma: float) -> Transitions:
        """The transitions that begin at rows (B,), over up to ``n_step`` steps of their own episode."""
        reward = self.reward[rows].clone()
        last = rows
        discount = torch.full_like(reward, gamma)
        for _ in range(n_step - 1):
            following = self._after(last)
            goes_on = self.is_transition[following] & ~self.ended[last]
            if not goes_on.any():
                break
            reward += torch.where(goes_on, discount * self.reward[following], 0.0)
            discount = torch.where(goes_on, discount * gamma, discount)
            last = torch.where(goes_on, following, last)
        after = self._after(last)
        return Transitions(
            obs=self.seen(rows),
            action=self.action[rows],
            reward=reward,
            discount=discount.masked_fill_(self.terminated[last], 0.0),
            next_obs=self.seen(after),
            weight=torch.ones_like(reward),
        )

    def seen(self, rows: Tensor) -> Tree:
        """What a policy saw at rows (B,)."""
        if self.stacking.depth == 1:
            return tree_map(lambda x: x[rows], self.obs)
        back = torch.from_numpy(self.stacking.back(self.age[rows].numpy()))
        of_ring = (rows % self.rows)[:, None] - back  # negative where a stack begins at the ring's end
        stack = rows[:, None] - back + self.rows * (of_ring < 0)
        return tree_map(lambda stacked, x: x[stack if stacked else rows], self.stacking.parts, self.obs)

    def cut(self) -> np.ndarray:
        """End all episodes under way as truncated: what is added next begins new ones; the rows that changed."""
        if self.obs is None:
            return np.zeros(0, np.int64)
        newest = (self.head - 1) % self.rows + self._base
        followed = self.is_transition.numpy()[newest]  # by the current observation, which stays as its next one
        self.ended.numpy()[newest] |= followed
        self.head = (self.head + followed) % self.rows
        now = self.head + self._base
        self.is_transition.numpy()[now] = False
        self.filled = min(self.rows, self.filled + int(followed.any()))
        return now if self.stacking.depth == 1 else np.concatenate([now, self._forget()])

    def _after(self, rows: Tensor) -> Tensor:
        """The row that follows each row in its env's ring."""
        following = rows + 1
        return torch.where(following % self.rows == 0, following - self.rows, following)

    def _allocate(self, obs: Tree, action: np.ndarray) -> None:
        def room(x: np.ndarray) -> Tensor:
            return torch.from_numpy(np.zeros((self.num_envs * self.rows, *x.shape[2:]), x.dtype))

        self.obs, self.action = tree_map(room, obs), room(action)

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


class ReplaySource:
    """Collects into a replay buffer and samples from it, by a :class:`ReplayPlan`."""

    def __init__(self, plan: ReplayPlan, collector: Collector, seed: int, world_size: int) -> None:
        self.plan, self.collector, self.world_size = plan, collector, world_size
        self.env_steps = 0
        self.buffer = ReplayBuffer(plan.buffer_size // world_size, collector.num_envs, collector.stacking)
        self.priorities: Priorities | None = None
        if plan.prioritized is not None:
            self.priorities = Priorities(plan.prioritized, len(self.buffer.reward))
        self.generator = torch.Generator().manual_seed(seed)
        self._drawn = torch.zeros(0, dtype=torch.int64)  # rows of the newest prioritized minibatch
        self._stage_start = 0  # env steps before this source began
        self._due = 0.0  # updates earned and not made

    def experience(self, policy: Policy) -> ReplayExperience:
        return ReplayExperience(self, policy)

    def collect(self, policy: Policy) -> None:
        """Collect ``collect_per_step`` env steps over all ranks into the buffer."""
        random = self.env_steps - self._stage_start < self.plan.random_steps
        before, after = self.env_steps, self.env_steps + self.plan.collect_per_step
        share = -(-after // self.world_size) - -(-before // self.world_size)  # of this rank
        steps = self.collector.collect(share, policy, before, random)
        hooks = self.collector.hooks
        if hooks is not None:
            steps = call(hooks.on_postprocess_traj, steps, steps) or steps
        self._renew(self.buffer.add(steps))
        self.env_steps = after

    def _renew(self, rows: np.ndarray) -> None:
        if self.priorities is not None:
            self.priorities.renew(rows, self.buffer.is_transition.numpy()[rows])

    def updates_due(self) -> int:
        """Whole updates that the last collect has earned; none before ``learning_starts``."""
        if self.env_steps - self._stage_start < self.plan.learning_starts:
            return 0
        self._due += self.plan.collect_per_step * self.plan.update_per_step
        whole = int(self._due + 1e-9)
        self._due -= whole
        return whole

    def sample(self, updates: int) -> Iterator[Transitions]:
        """Minibatches for this many updates: drawn at once, or by the priorities of the moment."""
        plan, generator = self.plan, self.generator
        size = plan.batch_size
        noise = torch.randn(updates, *plan.noise, generator=generator)
        if self.priorities is None:
            whole = self.buffer.gather(self.buffer.draw(updates * size, generator), plan.n_step, plan.gamma)
            for i in range(updates):
                part = tree_map(lambda x, i=i: x[i * size : (i + 1) * size], tuple(whole[:-1]))
                yield Transitions._make((*part, noise[i]))
            return
        beta = value_at(self.priorities.plan.beta, self.env_steps)
        for i in range(updates):
            self._drawn, weight = self.priorities.draw(size, beta, generator)
            batch = self.buffer.gather(self._drawn, plan.n_step, plan.gamma)
            yield batch._replace(weight=weight, noise=noise[i])

    def feedback(self, td_error: Tensor | None) -> None:
        """The TD errors (B,) of the newest minibatch become its priorities."""
        if self.priorities is not None and td_error is not None:
            self.priorities.update(self._drawn, td_error)

    @property
    def kept(self) -> str:
        """What another source could go on with, in words."""
        return f"the replay buffer of {len(self.buffer)} transitions" if len(self.buffer) else ""

    def adopt(self, other: Source) -> bool:
        """Go on along the x-axis from another source, with its buffer where that is of the same kind and size."""
        self.env_steps = self._stage_start = other.env_steps
        if isinstance(other, ReplaySource) and _alike(self.buffer, other.buffer):
            self.buffer, self._stage_start = other.buffer, 0
            self._restore_priorities(None if other.priorities is None else other.priorities.state_dict())
            return True
        return False

    def cut(self) -> None:
        self._renew(self.buffer.cut())
        self.collector.cut()

    def state_dict(self) -> dict[str, Any]:
        return {
            "env_steps": self.env_steps,
            "stage_start": self._stage_start,
            "due": self._due,
            "buffer": self.buffer.state_dict(),
            "priorities": None if self.priorities is None else self.priorities.state_dict(),
            "generator": self.generator.get_state(),
            "collector": self.collector.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.env_steps, self._stage_start, self._due = state["env_steps"], state["stage_start"], state["due"]
        self.buffer.load_state_dict(state["buffer"])
        self._restore_priorities(state["priorities"])
        self.generator.set_state(state["generator"])
        self.collector.load_state_dict(state["collector"])
        self.cut()

    def _restore_priorities(self, state: dict[str, Any] | None) -> None:
        if self.priorities is not None and state is not None:
            self.priorities.load_state_dict(state)
        elif self.priorities is not None:
            self.priorities.renew_all(self.buffer.is_transition.numpy())


def _alike(one: ReplayBuffer, other: ReplayBuffer) -> bool:
    return (one.rows, one.num_envs) == (other.rows, other.num_envs)


class ReplayExperience:
    """One iteration of collecting and sampling in turn."""

    def __init__(self, source: ReplaySource, policy: Policy) -> None:
        self._source, self._policy = source, policy

    @property
    def env_steps(self) -> int:
        return self._source.env_steps

    def minibatches(self) -> Iterator[Transitions]:
        plan, source = self._source.plan, self._source
        device = next(self._policy.parameters()).device
        for _ in range(plan.steps_per_iteration // plan.collect_per_step):
            source.collect(self._policy)
            updates = source.updates_due()
            if updates:
                for batch in source.sample(updates):
                    yield (
                        batch if device.type == "cpu" else Transitions(*tree_map(lambda x: x.to(device), tuple(batch)))
                    )

    def feedback(self, td_error: Tensor | None, enough: bool = False) -> None:
        self._source.feedback(td_error)
