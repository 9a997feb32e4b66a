"""Running normalisation: statistics as buffers, so that they travel with the weights."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from lit_rl.collectives import gathered
from lit_rl.functional.tree import Tree


class RunningNorm(nn.Module):
    """(x - mean) / sqrt(var + epsilon), cut to [-clip, clip], with the moments of all rows that `update` has seen.

    Rows are of `shape`; without any, only the cut changes x. The statistics stay float32 whatever precision the rest
    is cast to: a bfloat16 count would stand still at 256.
    """

    mean: Tensor
    var: Tensor
    count: Tensor

    def __init__(self, shape: tuple[int, ...], epsilon: float = 1e-8, clip: float = 10.0) -> None:
        super().__init__()
        self.epsilon = epsilon
        self.clip = clip
        self.register_buffer("mean", torch.zeros(shape, dtype=torch.float32))
        self.register_buffer("var", torch.ones(shape, dtype=torch.float32))
        self.register_buffer("count", torch.zeros((), dtype=torch.float32))

    def forward(self, x: Tensor) -> Tensor:
        normal = (x - self.mean) * (self.var + self.epsilon).rsqrt()
        return normal.clamp(-self.clip, self.clip).to(x.dtype)

    @torch.no_grad()
    def update(self, x: Tensor) -> None:
        """Take the rows `x`, (B, *shape), into the statistics; on several ranks, those of all, and all must call it."""
        rows = x.to(self.mean.dtype) if len(x) else self.mean[None]  # of no rows there is no mean
        mean, var = rows.mean(dim=0), rows.var(dim=0, correction=0)
        moments = torch.cat([mean.reshape(-1), var.reshape(-1), torch.full_like(self.count, len(x)).view(1)])
        for part in gathered(moments):
            if part[-1] > 0:
                both = part[:-1].view(2, *mean.shape)
                self.merge(both[0], both[1], part[-1])

    @torch.no_grad()
    def merge(self, mean: Tensor, var: Tensor, count: Tensor) -> None:
        """Take in `count` > 0 more rows by their mean and (population) variance: another rank's, say.

        Chan, Golub & LeVeque 1979, "Updating formulae and a pairwise algorithm for computing sample variances".
        """
        total = self.count + count
        share = count / total
        delta = mean - self.mean
        self.var.lerp_(var, share).add_(delta**2 * share * (1 - share))
        self.mean.add_(delta * share)
        self.count.copy_(total)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> RunningNorm:
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        for name, statistic in list(self.named_buffers(recurse=False)):
            setattr(self, name, statistic.float())
        return self


class ObservationNorm(nn.Module):
    """Normalises the float boxes of an observation, number by number; everything else passes."""

    def __init__(self, space: gym.Space[Any]) -> None:
        super().__init__()
        self.space = space
        self.norms = nn.ModuleList(RunningNorm(part.shape or ()) for part in _float_boxes(space))

    def forward(self, obs: Tree) -> Tree:
        norms = iter(self.norms)
        return _map_float_boxes(self.space, obs, lambda x: next(norms)(x))

    def update(self, obs: Tree) -> None:
        """Take a batch of observations into the statistics; on several ranks, those of all, and all must call it."""
        norms: Iterator[Any] = iter(self.norms)
        _map_float_boxes(self.space, obs, lambda x: next(norms).update(x))

    def host(self) -> Callable[[np.ndarray], np.ndarray] | None:
        """:meth:`forward` in numpy on the live statistics, where an observation is one float box on the CPU; else None."""
        if not isinstance(self.space, spaces.Box) or len(self.norms) == 0:
            return None
        norm: Any = self.norms[0]
        if norm.mean.device.type != "cpu":
            return None
        mean, var, epsilon, clip = norm.mean.numpy(), norm.var.numpy(), np.float32(norm.epsilon), np.float32(norm.clip)
        return lambda x: ((x - mean) / np.sqrt(var + epsilon)).clip(-clip, clip)


def _float_boxes(space: gym.Space[Any]) -> list[gym.Space[Any]]:
    found: list[gym.Space[Any]] = []
    if isinstance(space, spaces.Dict):
        found = [box for part in space.spaces.values() for box in _float_boxes(part)]
    elif isinstance(space, spaces.Tuple):
        found = [box for part in space.spaces for box in _float_boxes(part)]
    elif isinstance(space, spaces.Box) and np.issubdtype(space.dtype, np.floating):
        found = [space]
    return found


def _map_float_boxes(space: gym.Space[Any], obs: Tree, fn: Callable[[Tensor], Any]) -> Tree:
    if isinstance(space, spaces.Dict):
        return {key: _map_float_boxes(part, obs[key], fn) for key, part in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(_map_float_boxes(part, x, fn) for part, x in zip(space.spaces, obs, strict=True))
    return fn(obs) if _float_boxes(space) else obs
