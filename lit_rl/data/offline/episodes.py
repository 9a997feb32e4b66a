"""A recorded episode, and what it must be like before anything learns from it."""

from __future__ import annotations

from typing import Any, Protocol

import gymnasium as gym
import numpy as np

from lit_rl.data.transitions import Trajectory
from lit_rl.envs.spaces import Spaces, Stored, describe, storage
from lit_rl.errors import UsageError
from lit_rl.functional.tree import Tree, tree_leaves, tree_map


class BadEpisode(UsageError):
    """A recorded episode that cannot be learned from; the message names file, episode and what is wrong."""


class EpisodeSet(Protocol):
    """The episodes of one file or folder, read one by one."""

    name: str  # for messages
    spaces: Spaces | None  # None where it does not say
    env_id: str | None

    def __len__(self) -> int: ...

    def read(self, index: int, spaces: Spaces) -> Trajectory:
        """The episode of this index, checked against ``spaces``.

        Raises:
            BadEpisode: it cannot be learned from.
        """


def checked(
    spaces: Spaces, number: int, obs: Any, action: Any, reward: Any, terminated: bool, log_prob: Any = None
) -> Trajectory:
    """An episode from what a file holds: trees and lists of any kind of number. One that did not terminate is truncated.

    Raises:
        BadEpisode: what is wrong, without file and episode, which the caller knows.
    """
    rewards = _numbers("rewards", reward, np.float64)
    count = len(rewards)
    if rewards.ndim != 1:
        raise BadEpisode(f"its rewards have the shape {rewards.shape}, not one number a step")
    if count == 0:
        raise BadEpisode("it has no step")
    actions = _checked_actions(spaces.action, action, count)
    seen = _checked_observations(spaces.observation, obs, count)
    log_probs = None if log_prob is None else _numbers("action_logp", log_prob, np.float64)
    if log_probs is not None and log_probs.shape != (count,):
        raise BadEpisode(f"it has action_logp of the shape {log_probs.shape} for {count} steps")
    for name, x in (("a reward", rewards), ("an action_logp", log_probs)):
        if x is not None and not np.isfinite(x).all():
            step = int(np.flatnonzero(~np.isfinite(x))[0])
            raise BadEpisode(f"{name} is {x[step]} at step {step}")
    return Trajectory(number, None, seen, actions, rewards, terminated, not terminated, None, log_probs)


def _numbers(name: str, values: Any, dtype: Any) -> np.ndarray:
    try:
        found = np.asarray(values)
    except ValueError:
        found = np.zeros(0, object)
    if found.dtype.kind not in "biuf":
        if found.size == 0 and found.ndim == 1 and found.dtype.kind != "O":
            return found
        raise BadEpisode(f"its {name} are no array of numbers: every step needs the same shape, without null")
    return found if dtype is None else found.astype(dtype, copy=False)


def _checked_observations(space: gym.Space[Any], obs: Any, count: int) -> Tree:
    def cast(kind: Stored, x: Any) -> np.ndarray:
        array = _numbers("observations", x, kind.dtype)
        if len(array) == count:
            raise BadEpisode(f"it has {count} observations for {count} steps: the last observation is missing")
        if array.shape != (count + 1, *kind.shape):
            wanted = (count + 1, *kind.shape)
            raise BadEpisode(f"its observations have the shape {array.shape}, and {describe(space)} needs {wanted}")
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            step = int(np.argwhere(~np.isfinite(array))[0][0])
            raise BadEpisode(f"observation {step} holds NaN or infinity")
        return array

    try:
        seen = tree_map(cast, storage(space), obs)
        _check_indices(space, seen)
    except (KeyError, TypeError, IndexError, ValueError) as error:
        if isinstance(error, BadEpisode):
            raise
        raise BadEpisode(f"its observations are not shaped as {describe(space)}") from None
    return seen


def _check_indices(space: gym.Space[Any], seen: Tree) -> None:
    """Refuse indices that no network has an input for."""
    if isinstance(space, gym.spaces.Dict):
        for key, part in space.spaces.items():
            _check_indices(part, seen[key])
    elif isinstance(space, gym.spaces.Tuple):
        for part, x in zip(space.spaces, seen, strict=True):
            _check_indices(part, x)
    elif isinstance(space, gym.spaces.Discrete | gym.spaces.MultiDiscrete):
        inside = _inside(space, seen)
        if not inside.all():
            raise BadEpisode(f"observation {int(np.argwhere(~inside)[0][0])} lies outside {describe(space)}")


def _checked_actions(space: gym.Space[Any], action: Any, count: int) -> np.ndarray:
    actions = _numbers("actions", action, None)
    if len(actions) != count:
        raise BadEpisode(f"it has {len(actions)} actions and {count} rewards")
    shape = (count, *(space.shape or ()))
    if actions.shape != shape:
        raise BadEpisode(f"its actions have the shape {actions.shape}, and {describe(space)} needs {shape}")
    if actions.dtype.kind == "f" and not np.isfinite(actions).all():
        raise BadEpisode(f"action {int(np.argwhere(~np.isfinite(actions))[0][0])} is NaN or infinite")
    inside = _inside(space, actions)
    if not inside.all():
        step = int(np.argwhere(~inside)[0][0])
        raise BadEpisode(f"action {actions[step].tolist()} at step {step} lies outside {describe(space)}")
    return actions.astype(space.dtype, copy=False)


def _inside(space: gym.Space[Any], values: np.ndarray) -> np.ndarray:
    """Which numbers lie in the space, those of a Box but for rounding."""
    if isinstance(space, gym.spaces.Box):
        slack = 1e-6 * np.maximum(1.0, np.abs(values))
        found: np.ndarray = (values >= space.low - slack) & (values <= space.high + slack)
        return found
    if isinstance(space, gym.spaces.MultiBinary):
        first, past = np.asarray(0), np.asarray(2)
    elif isinstance(space, gym.spaces.Discrete):
        first, past = np.asarray(space.start), np.asarray(space.start + space.n)
    else:
        assert isinstance(space, gym.spaces.MultiDiscrete)
        first, past = space.start, space.start + space.nvec
    inside: np.ndarray = (values >= first) & (values < past) & (values == np.round(values))
    return inside


def bytes_per_row(spaces: Spaces) -> int:
    """What one step takes in memory, without its surroundings."""
    seen = sum(int(np.prod(kind.shape)) * kind.dtype.itemsize for kind in tree_leaves(storage(spaces.observation)))
    taken = int(np.prod(spaces.action.shape or ())) * 8
    return int(seen + taken + 16)
