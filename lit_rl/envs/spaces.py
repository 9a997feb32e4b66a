"""Spaces: as plain data for checkpoints, how their observations are kept, and how errors name them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple

from lit_rl.errors import UsageError
from lit_rl.functional.tree import Tree, tree_leaves, tree_map

SUPPORTED = "Box, Discrete, MultiDiscrete, MultiBinary, Dict and Tuple"


@dataclass(frozen=True)
class Spaces:
    """What a policy sees of one environment, and what the environment takes."""

    observation: gym.Space[Any]
    action: gym.Space[Any]
    frame_stack: int = 1  # newest frames that an observation shows at once (envs/frames.py)

    def to_plain(self) -> dict[str, Any]:
        """Dicts, lists, numbers, strings and (for unequal bounds) tensors: loads under ``weights_only=True``.

        Raises UsageError for a kind of space that is not supported.
        """
        plain: dict[str, Any] = {"observation": _to_plain(self.observation), "action": _to_plain(self.action)}
        return plain | {"frame_stack": self.frame_stack}

    @classmethod
    def from_plain(cls, plain: dict[str, Any]) -> Spaces:
        """The spaces that ``to_plain`` described; raises UsageError for anything else."""
        try:
            return cls(_from_plain(plain["observation"]), _from_plain(plain["action"]), int(plain["frame_stack"]))
        except (KeyError, TypeError, AttributeError, ValueError, AssertionError) as error:
            raise UsageError(f"this is no description of spaces ({type(error).__name__}: {error})") from None


def _to_plain(space: gym.Space[Any]) -> dict[str, Any]:
    if isinstance(space, Box):
        bounds = {"low": _bound_to_plain(space.low), "high": _bound_to_plain(space.high)}
        return {"type": "Box", "shape": list(space.shape), "dtype": str(space.dtype), **bounds}
    if isinstance(space, Discrete):
        return {"type": "Discrete", "n": int(space.n), "start": int(space.start), "dtype": str(space.dtype)}
    if isinstance(space, MultiDiscrete):
        sizes = {"nvec": space.nvec.tolist(), "start": space.start.tolist()}
        return {"type": "MultiDiscrete", **sizes, "dtype": str(space.dtype)}
    if isinstance(space, MultiBinary):
        return {"type": "MultiBinary", "n": list(space.n) if isinstance(space.n, tuple) else int(space.n)}
    if isinstance(space, Dict):
        return {"type": "Dict", "spaces": [[key, _to_plain(part)] for key, part in space.spaces.items()]}
    if isinstance(space, Tuple):
        return {"type": "Tuple", "spaces": [_to_plain(part) for part in space.spaces]}
    raise unsupported(space)


def _from_plain(plain: dict[str, Any]) -> gym.Space[Any]:
    kind = plain["type"]
    if kind == "Box":
        shape, dtype = tuple(plain["shape"]), np.dtype(plain["dtype"])
        low, high = (_bound_from_plain(plain[side], shape, dtype) for side in ("low", "high"))
        return Box(low, high, shape, dtype.type)
    if kind == "Discrete":
        dtype = np.dtype(plain["dtype"])
        if dtype == np.int64:  # the only one that Gymnasium before 1.3 has
            return Discrete(plain["n"], start=plain["start"])
        return Discrete(plain["n"], start=plain["start"], dtype=dtype)
    if kind == "MultiDiscrete":
        dtype = np.dtype(plain["dtype"])
        return MultiDiscrete(np.array(plain["nvec"], dtype), dtype, start=np.array(plain["start"], dtype))
    if kind == "MultiBinary":
        return MultiBinary(plain["n"])
    if kind == "Dict":
        # Pairs, not a dict, whose keys Gymnasium would sort: the order is that of the network's inputs.
        return Dict([(key, _from_plain(part)) for key, part in plain["spaces"]])
    if kind == "Tuple":
        return Tuple([_from_plain(part) for part in plain["spaces"]])
    raise ValueError(f"unknown kind {kind!r}")


def _bound_to_plain(bound: np.ndarray) -> float | int | torch.Tensor:
    """One number where all entries are the same: a stack of images would fill the checkpoint with bounds."""
    if bound.size and (bound == bound.flat[0]).all():
        number: float | int = bound.flat[0].item()
        return number
    return torch.from_numpy(bound.copy())


def _bound_from_plain(bound: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
    if isinstance(bound, torch.Tensor):
        return bound.cpu().numpy().astype(dtype)
    return np.full(shape, bound, dtype)


@dataclass(frozen=True)
class Stored:
    """How an array is kept: its shape for one environment, and its dtype."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]


def storage(space: gym.Space[Any]) -> Tree:
    """How an observation of ``space`` is kept: its tree with a pair (shape, dtype) at each leaf.

    float Box: float32; uint8 and bool Box, MultiBinary: uint8; other Box, Discrete, MultiDiscrete: int64.
    Raises UsageError for a kind of space that is not supported.
    """
    if isinstance(space, Dict):
        return {key: storage(part) for key, part in space.spaces.items()}
    if isinstance(space, Tuple):
        return tuple(storage(part) for part in space.spaces)
    if isinstance(space, Box):
        if np.issubdtype(space.dtype, np.floating):
            return Stored(space.shape, np.dtype(np.float32))
        small = space.dtype in (np.dtype(np.uint8), np.dtype(np.bool_))
        return Stored(space.shape, np.dtype(np.uint8 if small else np.int64))
    if isinstance(space, Discrete):
        return Stored((), np.dtype(np.int64))
    if isinstance(space, MultiDiscrete):
        return Stored(space.shape, np.dtype(np.int64))
    if isinstance(space, MultiBinary):
        return Stored(space.shape, np.dtype(np.uint8))
    raise unsupported(space)


def cast_observation(space: gym.Space[Any], obs: Tree) -> tuple[Tree, bool]:
    """One observation, or a batch with a leading axis, as a batch in the dtypes of ``storage``; and whether it was one.

    Raises UsageError where its structure or shape is not the space's.
    """
    try:
        leaves = tree_map(lambda part, x: np.asarray(x).astype(part.dtype, copy=False), storage(space), obs)
        extra = set(tree_leaves(tree_map(lambda part, x: x.ndim - len(part.shape), storage(space), leaves)))
        shapes = tree_leaves(
            tree_map(lambda part, x: x.shape[x.ndim - len(part.shape) :] == part.shape, storage(space), leaves)
        )
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise UsageError(f"this is no observation of {describe(space)}: {error}") from None
    if extra not in ({0}, {1}) or not all(shapes):
        shown = tree_map(lambda x: x.shape, leaves)
        raise UsageError(f"an observation of shape {shown} is neither one of {describe(space)} nor a batch of them")
    single = extra == {0}
    return (tree_map(lambda x: x[None], leaves) if single else leaves), single


def describe(space: gym.Space[Any]) -> str:
    """One short line for error messages, bounds left out where they are long: ``Box(4,) float32``."""
    if isinstance(space, Box):
        return f"Box{space.shape} {space.dtype}"
    if isinstance(space, Discrete):
        return f"Discrete({space.n})" if space.start == 0 else f"Discrete({space.n}, start={space.start})"
    if isinstance(space, MultiDiscrete):
        return f"MultiDiscrete({space.nvec.tolist()})"
    if isinstance(space, MultiBinary):
        return f"MultiBinary({space.n})"
    if isinstance(space, Dict):
        return f"Dict({', '.join(f'{key}: {describe(part)}' for key, part in space.spaces.items())})"
    if isinstance(space, Tuple):
        return f"Tuple({', '.join(describe(part) for part in space.spaces)})"
    return type(space).__name__


def unsupported(space: gym.Space[Any]) -> UsageError:
    """The error for a kind of space that nothing here can keep or feed to a network."""
    return UsageError(f"{describe(space)} spaces are not supported; use {SUPPORTED}")


def check_observation(space: gym.Space[Any], observation: Tree) -> None:
    """Raise UsageError where ``observation`` has not the structure, shape or kind of number that ``space`` declares."""
    try:
        tree_map(_check_leaf, _leaves(space), observation)
    except (KeyError, IndexError, TypeError, ValueError) as error:
        shown = tree_map(lambda leaf: f"{type(leaf).__name__}{np.shape(leaf)}", observation)
        reason = f" ({error})" if isinstance(error, UsageError) else ""
        raise UsageError(f"the observation is {shown}, but observation_space is {describe(space)}{reason}") from None


def _leaves(space: gym.Space[Any]) -> Tree:
    if isinstance(space, Dict):
        return {key: _leaves(part) for key, part in space.spaces.items()}
    if isinstance(space, Tuple):
        return tuple(_leaves(part) for part in space.spaces)
    return space


def _check_leaf(space: gym.Space[Any], observation: Any) -> None:
    array = np.asarray(observation)
    if array.shape != space.shape:
        raise UsageError(f"shape {array.shape} instead of {space.shape}")
    if not np.can_cast(array.dtype, np.dtype(space.dtype), "same_kind"):  # what a vector env casts
        raise UsageError(f"{array.dtype} instead of {space.dtype}")
    if isinstance(space, Discrete | MultiDiscrete):
        first, past = np.asarray(space.start), np.asarray(space.start) + _counts(space)
        if not ((array >= first) & (array < past)).all():
            raise UsageError(f"the value {array.tolist()} lies outside {describe(space)}")


def _counts(space: Discrete | MultiDiscrete) -> np.ndarray:
    return np.asarray(space.n if isinstance(space, Discrete) else space.nvec)
