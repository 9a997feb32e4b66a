"""The encoder: any observation that the project keeps -> one flat vector of floats."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from lit_rl.envs.masks import MASK
from lit_rl.errors import UsageError
from lit_rl.functional.tree import Tree
from lit_rl.networks.cnn import NatureCNN, sides

Path = tuple[str | int, ...]


class Encoder(nn.Module):
    """Observations of `space` -> (B, features) in the module's dtype; what is kept apart is concatenated in order.

    | space | code |
    |---|---|
    | Box of floats or ints, MultiBinary | flattened; a one-dimensional float box costs nothing |
    | Box of uint8, an image (two sides >= 36) | NatureCNN on pixels in 0..1 |
    | Box of uint8, otherwise | flattened, divided by the space's upper bound |
    | Discrete, MultiDiscrete | one-hot |
    | Dict, Tuple | their parts, nested to any depth; the outermost dict's `action_mask` is left out |
    """

    like: Tensor

    def __init__(self, space: gym.Space[Any]) -> None:
        """Raises UsageError where a part of `space` is of another kind, or where nothing is left to see."""
        super().__init__()
        leaves = list(_leaves(space))
        self.paths = [path for path, _ in leaves]
        parts = [_make_part(leaf) for _, leaf in leaves]
        self.parts = nn.ModuleList(parts)
        self.features = sum(part.features for part in parts)
        if self.features == 0:
            raise UsageError(f"the observation space {space} has nothing that a policy could see")
        # follows .to(dtype), which an encoder without weights would otherwise not notice
        self.register_buffer("like", torch.zeros(()), persistent=False)

    @property
    def is_identity(self) -> bool:
        """Whether observations are what the network sees: a one-dimensional box of floats."""
        part = self.parts[0]
        return (
            len(self.parts) == 1
            and isinstance(part, Flat)
            and not part.flatten
            and part.scale == 1.0
            and not self.paths[0]
        )

    def forward(self, obs: Tree) -> Tensor:
        dtype = self.like.dtype
        encoded = [part(_at(obs, path), dtype) for path, part in zip(self.paths, self.parts, strict=True)]
        return encoded[0] if len(encoded) == 1 else torch.cat(encoded, dim=1)


class Flat(nn.Module):
    """(B, *shape) -> (B, features), divided by `scale`."""

    def __init__(self, shape: tuple[int, ...], scale: float = 1.0) -> None:
        super().__init__()
        self.features = math.prod(shape)
        self.flatten = len(shape) != 1
        self.scale = scale

    def forward(self, x: Tensor, dtype: torch.dtype) -> Tensor:
        if self.flatten:
            x = x.reshape(x.shape[0], self.features)
        x = x.to(dtype)
        return x if self.scale == 1.0 else x / self.scale


class OneHot(nn.Module):
    """Integers, (B,) or (B, ...) -> the one-hot codes of each, side by side; `starts` are their smallest values."""

    def __init__(self, sizes: list[int], starts: list[int]) -> None:
        super().__init__()
        self.features = sum(sizes)
        self.ranges = [(start, start + size) for start, size in zip(starts, sizes, strict=True)]

    def forward(self, x: Tensor, dtype: torch.dtype) -> Tensor:
        # compared, not scattered or torch's one_hot: those look at values, which a captured graph cannot
        columns = x.reshape(x.shape[0], len(self.ranges), 1).unbind(dim=1)
        codes = [
            column == torch.arange(low, high, device=x.device)
            for column, (low, high) in zip(columns, self.ranges, strict=True)
        ]
        return (codes[0] if len(codes) == 1 else torch.cat(codes, dim=1)).to(dtype)


def _leaves(space: gym.Space[Any], path: Path = ()) -> Iterator[tuple[Path, gym.Space[Any]]]:
    if isinstance(space, spaces.Dict):
        for key, part in space.spaces.items():
            if (*path, key) != (MASK,):
                yield from _leaves(part, (*path, key))
    elif isinstance(space, spaces.Tuple):
        for i, part in enumerate(space.spaces):
            yield from _leaves(part, (*path, i))
    else:
        yield path, space


def _at(obs: Tree, path: Path) -> Tensor:
    for key in path:
        obs = obs[key]
    tensor: Tensor = obs
    return tensor


def _make_part(space: gym.Space[Any]) -> Flat | OneHot | NatureCNN:
    if isinstance(space, spaces.Box) and space.dtype == np.uint8:
        scale = max(float(space.high.max(initial=0)), 1.0)
        return NatureCNN(space.shape, scale) if sides(space.shape) else Flat(space.shape, scale)
    if isinstance(space, (spaces.Box, spaces.MultiBinary)):
        return Flat(space.shape)
    if isinstance(space, spaces.Discrete):
        return OneHot([int(space.n)], [int(space.start)])
    if isinstance(space, spaces.MultiDiscrete):
        return OneHot(space.nvec.flatten().tolist(), space.start.flatten().tolist())
    raise UsageError(
        f"observations of {type(space).__name__} cannot be encoded; "
        "known: Box, Discrete, MultiDiscrete, MultiBinary, Dict, Tuple"
    )
