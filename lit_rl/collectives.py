"""What the ranks of a run say of numbers and rows, put together.

Every rank must make the same calls in the same order; one alone makes none.
"""

from __future__ import annotations

from typing import Literal, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

T = TypeVar("T")


def ranks() -> int:
    """How many there are."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def reduced(
    values: list[float], operation: Literal["sum", "min", "max"], device: torch.device | str = "cpu"
) -> list[float]:
    """The sum, min or max of each number over all ranks, the same digits on each; ``device`` is what carries them."""
    if ranks() == 1:
        return values
    x = torch.tensor(values, dtype=torch.float64, device=device)
    dist.all_reduce(x, {"sum": dist.ReduceOp.SUM, "min": dist.ReduceOp.MIN, "max": dist.ReduceOp.MAX}[operation])
    found: list[float] = x.tolist()
    return found


def averaged(x: Tensor) -> Tensor:
    """The mean over all ranks, in place."""
    if ranks() > 1:
        dist.all_reduce(x)
        x /= ranks()
    return x


def gathered(x: Tensor) -> list[Tensor]:
    """``x`` as it is on each rank, in their order."""
    if ranks() == 1:
        return [x]
    sent = x.cuda() if dist.get_backend() == "nccl" else x
    parts = [torch.empty_like(sent) for _ in range(ranks())]
    dist.all_gather(parts, sent)
    return [part.to(x.device) for part in parts]


def joined(rows: list[T]) -> list[T]:
    """The rows of all ranks, in their order; they may be of any kind."""
    if ranks() == 1:
        return rows
    parts: list[list[T]] = [[] for _ in range(ranks())]
    dist.all_gather_object(parts, rows)
    return [row for part in parts for row in part]
