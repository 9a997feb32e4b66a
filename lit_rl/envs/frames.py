"""Frame stacking: a policy sees the newest frames of an episode at once; environments and buffers keep single ones.

A stack is what gymnasium's FrameStackObservation makes by default: (K, *frame), oldest first, and where the episode is
younger than K frames, its first frame is repeated. Every Box of an observation is stacked, in dicts and tuples too;
other parts, and a mask of actions, are seen as they are now.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box, Dict, Tuple

from lit_rl.envs.masks import MASK
from lit_rl.envs.spaces import Spaces, describe, storage
from lit_rl.errors import UsageError
from lit_rl.functional.tree import Tree, tree_leaves, tree_map


@dataclass(frozen=True)
class Stacking:
    """How many frames a policy sees at once, and for each part of an observation whether it is stacked."""

    depth: int = 1
    parts: Tree = False

    @classmethod
    def of(cls, spaces: Spaces) -> Stacking:
        """What these spaces say; depth 1 stacks nothing."""
        stacks = spaces.frame_stack > 1
        return cls(spaces.frame_stack, tree_map(lambda box: box and stacks, _stacked_parts(spaces.observation)))

    def back(self, age: np.ndarray) -> np.ndarray:
        """How far behind the newest each frame of a stack lies, (..., K), oldest first.

        Args:
            age: frames of its own episode before the newest one, (...); what is beyond K - 1 makes no difference.
        """
        back: np.ndarray = np.minimum(np.arange(self.depth - 1, -1, -1), age[..., None])
        return back


def stack_spaces(spaces: Spaces, depth: int) -> Spaces:
    """The spaces of an environment whose policy sees ``depth`` frames at once.

    Raises:
        UsageError: nothing of an observation can be stacked.
    """
    if depth == 1:
        return spaces
    if not any(tree_leaves(_stacked_parts(spaces.observation))):
        shown = describe(spaces.observation)
        raise UsageError(f"--frame_stack {depth} needs observations with a Box, not {shown}: leave it out")

    def stack(space: gym.Space[Any]) -> gym.Space[Any]:
        if not isinstance(space, Box):
            return space
        low, high = (np.repeat(bound[None], depth, 0) for bound in (space.low, space.high))
        return Box(low, high, (depth, *space.shape), space.dtype.type)

    return Spaces(_map_boxes(stack, spaces.observation), spaces.action, depth)


def frame_space(spaces: Spaces) -> gym.Space[Any]:
    """The space of one frame: what one environment shows."""
    if spaces.frame_stack == 1:
        return spaces.observation

    def newest(space: gym.Space[Any]) -> gym.Space[Any]:
        if not isinstance(space, Box):
            return space
        return Box(space.low[-1], space.high[-1], space.shape[1:], space.dtype.type)

    return _map_boxes(newest, spaces.observation)


def _map_boxes(fn: Any, space: gym.Space[Any], outermost: bool = True) -> gym.Space[Any]:
    if isinstance(space, Dict):
        parts = space.spaces.items()
        return Dict([(k, x if outermost and k == MASK else _map_boxes(fn, x, False)) for k, x in parts])
    if isinstance(space, Tuple):
        return Tuple([_map_boxes(fn, part, False) for part in space.spaces])
    mapped: gym.Space[Any] = fn(space)
    return mapped


def _stacked_parts(space: gym.Space[Any], outermost: bool = True) -> Tree:
    if isinstance(space, Dict):
        parts = space.spaces.items()
        return {k: False if outermost and k == MASK else _stacked_parts(x, False) for k, x in parts}
    if isinstance(space, Tuple):
        return tuple(_stacked_parts(part, False) for part in space.spaces)
    return isinstance(space, Box)


class Frames:
    """The stacks of N environments that show single frames.

    ``age`` (N,) counts the frames of each env's episode before its newest one, up to K - 1.
    """

    def __init__(self, spaces: Spaces, envs: int) -> None:
        self.stacking = Stacking.of(spaces)
        self.age = np.zeros(envs, np.uint8)
        self._stacks = tree_map(lambda kind: np.zeros((envs, *kind.shape), kind.dtype), storage(spaces.observation))

    def push(self, frame: Tree, fresh: np.ndarray) -> None:
        """Take in the newest frames (N, *frame), those of the envs where ``fresh`` (N,) the first of an episode."""
        self.age = np.where(fresh, 0, np.minimum(self.age + 1, self.stacking.depth - 1)).astype(np.uint8)

        def push(stacked: bool, stack: np.ndarray, x: np.ndarray) -> None:
            if stacked:
                stack[:, :-1] = stack[:, 1:]
                stack[:, -1] = x
                stack[fresh] = stack[fresh, -1:]
            else:
                stack[:] = x

        tree_map(push, self.stacking.parts, self._stacks, frame)

    def see(self) -> Tree:
        """The stacks (N, K, *frame), in memory that the next frames are written to."""
        return self._stacks

    def past(self) -> Tree:
        """The frames before the newest, (K - 1, N, *frame), oldest first; nothing of parts that are not stacked."""

        def past(stacked: bool, stack: np.ndarray) -> np.ndarray:
            return stack[:, :-1].swapaxes(0, 1).copy() if stacked else stack[None][:0]

        return tree_map(past, self.stacking.parts, self._stacks)


class StackFrames(gym.Wrapper[Any, Any, Any, Any]):
    """One environment as a policy of these spaces sees it: for acting with a trained one."""

    def __init__(self, env: gym.Env[Any, Any], depth: int) -> None:
        super().__init__(env)
        spaces = stack_spaces(Spaces(env.observation_space, env.action_space), depth)
        self.observation_space = spaces.observation
        self._frames = Frames(spaces, 1)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """As Gymnasium's."""
        frame, info = self.env.reset(seed=seed, options=options)
        return self._seen(frame, True), info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """As Gymnasium's."""
        frame, reward, terminated, truncated, info = self.env.step(action)
        return self._seen(frame, False), reward, terminated, truncated, info

    def _seen(self, frame: Any, fresh: bool) -> Any:
        self._frames.push(tree_map(lambda x: np.asarray(x)[None], frame), np.array([fresh]))
        return tree_map(lambda x: x[0].copy(), self._frames.see())
