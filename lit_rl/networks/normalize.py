"""Running normalisation: statistics as buffers, so that they travel with the weights."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn


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
        """Take the rows `x`, (B, *shape), into the statistics."""
        if len(x) > 0:
            rows = x.to(self.mean.dtype)
            self.merge(rows.mean(dim=0), rows.var(dim=0, correction=0), torch.full_like(self.count, len(x)))

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
