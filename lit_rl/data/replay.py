"""Experience replay: collect into a buffer, sample from it, learn, in turn."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from lit_rl.data.buffer import ReplayBuffer
from lit_rl.data.collector import Collector
from lit_rl.data.experience import Source
from lit_rl.data.hooks import call
from lit_rl.data.integers import Integers
from lit_rl.data.plans import ReplayPlan
from lit_rl.data.prioritized import Priorities
from lit_rl.data.transitions import Transitions
from lit_rl.functional.schedules import value_at
from lit_rl.functional.tree import Tree, tree_map
from lit_rl.policies.base import Policy

if TYPE_CHECKING:
    from lit_rl.data.offline.source import OfflineSource

AT_ONCE = 256  # minibatches that are drawn together
AHEAD = 64  # minibatches whose rows' random numbers are drawn at once, where nothing else is drawn between them


class ReplaySource:
    """Collects into a replay buffer and samples from it, by a :class:`ReplayPlan`, and from ``recorded`` episodes too."""

    def __init__(
        self, plan: ReplayPlan, collector: Collector, seed: int, world_size: int, recorded: OfflineSource | None = None
    ) -> None:
        self.plan, self.collector, self.world_size = plan, collector, world_size
        self._mixed_in = 0 if recorded is None else round(plan.offline_fraction * plan.batch_size)
        self.recorded = recorded if self._mixed_in else None
        self.env_steps = 0
        self.buffer = ReplayBuffer(plan.buffer_size // world_size, collector.num_envs, collector.stacking)
        self.priorities: Priorities | None = None
        if plan.prioritized is not None:
            self.priorities = Priorities(plan.prioritized, len(self.buffer.reward))
        self.generator = torch.Generator().manual_seed(seed)
        self._drawn = np.zeros(0, np.int64)  # rows of the newest prioritized minibatch
        self._no_noise = torch.zeros(plan.noise) if 0 in plan.noise else None
        self._integers = Integers(self.generator, 0 if self._no_noise is None else AHEAD * plan.batch_size)
        self._whole: Transitions | None = None  # what was gathered last
        self._parts: list[Transitions] = []  # its minibatches
        self._stage_start = 0  # env steps before this source began
        self._due = float(plan.first_updates)  # updates earned and not made

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
        """Minibatches for this many updates."""
        for first in range(0, updates, AT_ONCE):
            count = min(AT_ONCE, updates - first)
            if self.recorded is None:
                yield from self._sample(count)
                continue
            recorded = self.recorded.draw(count * self._mixed_in)[:-1]
            parts = zip(*(minibatches(x, self._mixed_in) for x in recorded), strict=True)
            for batch, part in zip(self._sample(count), parts, strict=True):
                yield mixed(batch, Transitions(*part))

    def _sample(self, updates: int) -> Iterator[Transitions]:
        """What the buffer gives: drawn at once, or by the priorities of the moment."""
        plan, generator = self.plan, self.generator
        size = plan.batch_size - self._mixed_in
        noise = torch.randn(updates, *plan.noise, generator=generator) if self._no_noise is None else None
        if self.priorities is None:
            drawn = self.buffer.draw(updates * size, self._integers)
            parts = self._cut(self.buffer.gather(drawn, plan.n_step, plan.gamma), size)
            if noise is None:
                yield from parts
            else:
                yield from (part._replace(noise=x) for part, x in zip(parts, noise, strict=True))
            return
        beta = value_at(self.priorities.plan.beta, self.env_steps)
        for i in range(updates):
            self._drawn, weight = self.priorities.draw(size, beta, generator)
            (batch,) = self._cut(self.buffer.gather(self._drawn, plan.n_step, plan.gamma), size)
            batch = batch._replace(weight=weight)
            yield batch if noise is None else batch._replace(noise=noise[i])

    def _cut(self, whole: Transitions, size: int) -> list[Transitions]:
        """Minibatches as views of what was gathered, which mostly lies where it lay before."""
        if whole is not self._whole:
            *rows, no_return, noise = whole
            noise = noise if self._no_noise is None else self._no_noise
            parts = zip(*(minibatches(x, size) for x in rows), strict=True)
            self._whole, self._parts = whole, [Transitions._make((*part, no_return, noise)) for part in parts]
        return self._parts

    def feedback(self, td_error: Tensor | None) -> None:
        """The TD errors (B,) of the newest minibatch become its priorities."""
        if self.priorities is not None and td_error is not None:
            self.priorities.update(self._drawn, td_error[: len(self._drawn)])

    @property
    def generators(self) -> list[torch.Generator]:
        """Of what is sampled or shuffled."""
        return [self.generator, *([] if self.recorded is None else self.recorded.generators)]

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
        self._integers.cut()
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
            "recorded": None if self.recorded is None else self.recorded.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.env_steps, self._stage_start, self._due = state["env_steps"], state["stage_start"], state["due"]
        self.buffer.load_state_dict(state["buffer"])
        self._restore_priorities(state["priorities"])
        self.generator.set_state(state["generator"])
        self.collector.load_state_dict(state["collector"])
        if self.recorded is not None and state["recorded"] is not None:
            self.recorded.load_state_dict(state["recorded"])
        self.cut()

    def _restore_priorities(self, state: dict[str, Any] | None) -> None:
        if self.priorities is not None and state is not None:
            self.priorities.load_state_dict(state)
        elif self.priorities is not None:
            self.priorities.renew_all(self.buffer.is_transition.numpy())


def minibatches(part: Tree, size: int) -> Iterable[Tree]:
    """Rows of a tree, ``size`` at a time, as views."""
    if isinstance(part, Tensor):
        return torch.split(part, size)
    children = [minibatches(child, size) for child in (part.values() if isinstance(part, dict) else part)]
    rejoin = (lambda cut: dict(zip(part, cut, strict=True))) if isinstance(part, dict) else tuple
    return map(rejoin, zip(*children, strict=True))


def mixed(collected: Transitions, recorded: Transitions) -> Transitions:
    """One minibatch of both. What was collected has no return yet: it is minus infinity, which bounds nothing."""
    unknown = collected._replace(return_=torch.full_like(collected.reward, -torch.inf))
    joined = tree_map(lambda x, y: torch.cat([x, y]), tuple(unknown[:-1]), tuple(recorded[:-1]))
    return Transitions(*joined)._replace(noise=collected.noise)


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
