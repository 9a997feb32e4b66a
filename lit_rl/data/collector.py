"""Collecting: a policy acts in a vector of environments, one block of whole vector steps at a time."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium.vector import AutoresetMode
from torch import Tensor

from lit_rl.data.block import Block
from lit_rl.data.finite import check_finite
from lit_rl.data.hooks import EpisodeHooks, Hooks, call
from lit_rl.data.offline.recorder import BlockRecorder
from lit_rl.data.transitions import Episode, Steps
from lit_rl.envs.frames import Frames, Stacking, frame_space
from lit_rl.envs.spaces import Spaces
from lit_rl.functional.tree import Tree, tree_leaves, tree_map
from lit_rl.policies.acting import Made, make_actor
from lit_rl.policies.base import Policy

# Env steps that random numbers are drawn for at once: a few at a time cost more than the steps they are for.
AHEAD = 1024


class Collector:
    """Drives a Gymnasium vector env with a policy.

    Args:
        envs: the environments, resetting themselves in the same or in the next step.
        spaces: the spaces of one environment.
        seeds: from the number of a restart, the reset seed of each env.
        generator: the source of exploration noise; checkpointed with the collector.
        vector_step: env steps that one vector step makes over all ranks (the number of envs on one rank).
        hooks: are told of every episode and step, and of every block.
    """

    def __init__(
        self,
        envs: gym.vector.VectorEnv,
        spaces: Spaces,
        seeds: Callable[[int], list[int]],
        generator: torch.Generator,
        vector_step: int,
        hooks: Hooks | None = None,
    ) -> None:
        self.hooks = hooks
        self._hooked = None if hooks is None else EpisodeHooks(hooks, envs)
        self.envs, self.spaces, self.seeds, self.generator = envs, spaces, seeds, generator
        self.num_envs: int = envs.num_envs
        self.vector_step = vector_step
        self.env_steps = 0  # made by this collector
        self.episodes: list[Episode] = []  # finished since they were last taken
        self.finished = 0
        self._next_step = envs.metadata["autoreset_mode"] == AutoresetMode.NEXT_STEP
        self._surplus = 0
        self._blocks: dict[int, Block] = {}
        self._frame = frame_space(spaces)  # what one environment shows
        self.stacking = Stacking.of(spaces)
        self._frames = Frames(spaces, self.num_envs) if self.stacking.depth > 1 else None
        self._obs: Tree = None  # the current observations; None before the first reset
        self._resetting = np.zeros(self.num_envs, bool)
        self._return = np.zeros(self.num_envs)
        self._began = np.zeros(self.num_envs, np.int64)  # with which vector step, of those counted by the next
        self._vector_steps = 0
        self._state: Tree = None
        self._drawn: tuple[np.ndarray, Policy] | None = None  # random numbers for the steps to come, and whose they are
        self._actors = Made(make_actor)
        self._random_actors = Made(lambda policy: make_actor(policy, random=True))
        self.recorder: BlockRecorder | None = None

    def restart(self, number: int) -> None:
        """Begin fresh episodes in all envs, seeded by ``number``; episodes under way are dropped, not counted."""
        if self.recorder is not None:
            self.recorder.cut()
        self._obs, info = self.envs.reset(seed=self.seeds(number))  # type: ignore[arg-type]
        self._resetting[:] = False
        self._return[:] = 0.0
        self._began[:] = self._vector_steps
        self._state = None
        if self._frames is not None:
            self._frames.push(self._obs, np.ones(self.num_envs, bool))
        if self._hooked is not None:
            self._hooked.begin(self._obs, info)

    def cut(self) -> None:
        """Drop the episodes under way, not counted; the next collect begins fresh ones, seeded by the env steps made so far."""
        self._obs = self._drawn = None

    def collect(
        self, n: int, policy: Policy, env_steps: int, random: bool = False, keep_state: int | None = None
    ) -> Steps:
        """Make ``n`` env steps, in whole vector steps; what is made too much is owed to the next call (which may make none).

        Args:
            n: env steps of this collector.
            policy: acts, exploring.
            env_steps: where the run stands on the x-axis, for schedules.
            random: act at random instead, whatever the policy.
            keep_state: vector steps between two of the policy's states that are kept; None keeps none.

        Raises:
            NumericsError: an observation or a reward is NaN or infinite.
            EnvError: an environment raised.
        """
        if self.hooks is not None:
            call(self.hooks.before_collect, env_steps)
        if self._obs is None:
            self.restart(self.env_steps)
        wanted = n - self._surplus
        block = self._block(max(0, -(-wanted // self.num_envs)) * (2 if self._next_step else 1) + int(self._next_step))
        block.set_obs(0, self._obs)
        frames = self._frames
        past: Tree = ()
        if frames is not None:
            past, block.age[0] = frames.past(), frames.age
        actor = (self._random_actors if random else self._actors).of(policy)
        drawn = self._draw(policy, block.capacity)
        noise = policy.scaled(drawn[: block.capacity], env_steps, self.vector_step)
        initial = policy.initial_state(self.num_envs)
        state = initial
        if initial is not None and _alike(self._state, initial):  # another policy may remember otherwise
            state = self._state
        states = _States(None if initial is None else keep_state)
        final_index: list[tuple[int, int]] = []
        final_obs: list[Tree] = []
        metrics: dict[int, dict[str, float]] = {}
        block.valid.fill(True)
        resetting = int(np.count_nonzero(self._resetting)) if self._next_step else 0
        made = t = 0
        while made < wanted:
            states.before(t, state)
            action, state = actor.act(block.get_obs(t) if frames is None else frames.see(), noise[t], state)
            taken = policy.env_action(action)
            next_obs, reward, terminated, truncated, info = self.envs.step(taken)
            block.set_action(t, action)
            block.set_obs(t + 1, next_obs)
            block.reward[t] = reward
            block.terminated[t] = terminated
            block.truncated[t] = truncated
            if self._hooked is not None:
                metrics = self._hooked.step(taken, next_obs, reward, terminated, truncated, info, self._resetting)
            made += self.num_envs
            self._return += reward
            self._vector_steps += 1
            ended = terminated | truncated
            some_ended = int(np.count_nonzero(ended))
            fresh, some_fresh = ended, some_ended
            if self._next_step:
                fresh, self._resetting = self._resetting, ended
                some_fresh, resetting = resetting, some_ended
                if some_fresh:
                    block.valid[t] = ~fresh
                    self._return[fresh] = 0.0
                    made -= some_fresh
            if some_ended:
                self._finish(t, ended, info, final_index, final_obs, metrics)
                if not self._next_step:
                    states.after(state, ended)
            if frames is not None:
                frames.push(block.get_obs(t + 1), fresh)
                block.age[t + 1] = frames.age
            if state is not None and some_fresh:
                state = reset_state(state, initial, fresh)
            t += 1
        self._drawn = drawn[t:], policy
        self._obs = tree_map(np.ndarray.copy, block.get_obs(t))
        self._state = state
        ranks = self.vector_step // self.num_envs
        begin = env_steps + ranks * self._surplus
        self._surplus += made - n
        self.env_steps += made
        steps = block.steps(t, final_index, final_obs)
        if frames is not None:
            steps = steps._replace(past=past)
        steps = states.add_to(steps, state)
        check_finite(steps, begin, ranks)
        if self.recorder is not None:
            self.recorder.add(steps, policy, env_steps, self.vector_step, random)
        if self.hooks is not None:
            steps = call(self.hooks.on_sample_end, steps) or steps
        return steps

    def _finish(
        self,
        t: int,
        ended: np.ndarray,
        info: dict[str, Any],
        final_index: list[tuple[int, int]],
        final_obs: list[Tree],
        metrics: dict[int, dict[str, float]],
    ) -> None:
        """Note the episodes that ended at step ``t``, and their true last observations where the envs have reset already."""
        for n in np.flatnonzero(ended).tolist():
            length = self._vector_steps - int(self._began[n])
            success = reported_success(info, n)
            self.episodes.append(Episode(self.finished, float(self._return[n]), length, success, metrics.get(n)))
            self.finished += 1
            if not self._next_step:
                final_index.append((t, n))
                final_obs.append(info["final_obs"][n])
        self._return[ended] = 0.0
        self._began[ended] = self._vector_steps + self._next_step

    def take_episodes(self) -> list[Episode]:
        """The episodes finished since the last call."""
        taken, self.episodes = self.episodes, []
        return taken

    def state_dict(self) -> dict[str, Any]:
        """Counters and randomness; the environments themselves cannot be saved, so a resumed run begins fresh episodes."""
        return {
            "env_steps": self.env_steps,
            "finished": self.finished,
            "surplus": self._surplus,
            "generator": self.generator.get_state(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.env_steps = state["env_steps"]
        self.finished = state["finished"]
        self._surplus = state["surplus"]
        self.generator.set_state(state["generator"])
        self.cut()

    def close(self) -> None:
        """End the environments and what is recorded of them."""
        self.envs.close()
        if self.recorder is not None:
            self.recorder.close()

    def _draw(self, policy: Policy, steps: int) -> np.ndarray:
        """Random numbers for at least ``steps`` vector steps, drawn for many steps at once."""
        if self._drawn is not None and self._drawn[1] is policy and len(self._drawn[0]) >= steps:
            return self._drawn[0]
        with _drawing_float32():
            return policy.draw(max(steps, AHEAD // self.num_envs), self.num_envs, self.generator).numpy()

    def _block(self, capacity: int) -> Block:
        block = self._blocks.get(capacity)
        if block is None:
            block = self._blocks[capacity] = Block(capacity, self.num_envs, self._frame)
        return block


@contextlib.contextmanager
def _drawing_float32() -> Iterator[None]:
    """Randomness does not depend on the precision of training: bfloat16 has no numpy, and 256 numbers below 1."""
    dtype = torch.get_default_dtype()
    torch.set_default_dtype(torch.float32)
    try:
        yield
    finally:
        torch.set_default_dtype(dtype)


def reported_success(info: dict[str, Any], n: int) -> float | None:
    """Whether env ``n`` says that its episode succeeded (``is_success`` or ``success`` in its info), or None."""
    info = info.get("final_info", info)
    for key in ("is_success", "success"):
        reports = info.get("_" + key)  # which envs do; native ones need not say
        if key in info and (reports is None or reports[n]):
            return float(info[key][n])
    return None


class _States:
    """The policy's states during a block: every few vector steps, and where episodes ended.

    Args:
        every: vector steps between two of them; None keeps none.
    """

    def __init__(self, every: int | None) -> None:
        self._every = every
        self._before: list[Tree] = []
        self._after: list[Tree] = []

    def before(self, t: int, state: Tree) -> None:
        """The state before vector step ``t``."""
        if self._every is not None and t % self._every == 0:
            self._before.append(state)

    def after(self, state: Tree, ended: np.ndarray) -> None:
        """The state before the final observations of some of the envs."""
        if self._every is not None:
            rows = torch.from_numpy(ended)
            self._after.append(tree_map(lambda x: x[rows.to(x.device)], state))

    def add_to(self, steps: Steps, state: Tree) -> Steps:
        """The block with its states; ``state`` is the last one."""
        if self._every is None:
            return steps
        states = tree_map(lambda *x: torch.stack(x), *self._before, state)
        after = self._after or [tree_map(lambda x: x[:0], state)]
        return steps._replace(state=states, final_state=tree_map(lambda *x: torch.cat(x), *after))


def _alike(state: Tree, initial: Tree) -> bool:
    """Whether a state is one of the policy that begins with ``initial``."""
    kinds = [[None if x is None else (x.shape, x.dtype, x.device) for x in tree_leaves(s)] for s in (state, initial)]
    return kinds[0] == kinds[1]


def reset_state(state: Tree, initial: Tree, fresh: np.ndarray) -> Tree:
    """A policy's state with its first value in the envs whose episode is ``fresh``."""
    rows = torch.from_numpy(fresh)

    def reset(now: Tensor, first: Tensor) -> Tensor:
        where = rows.to(now.device).view(-1, *[1] * (now.ndim - 1))
        return torch.where(where, first, now)

    return tree_map(reset, state, initial)
