"""The gradient of a loss, for one group of parameters, as one flat tensor."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from lit_rl.algorithms.base import Loss
from lit_rl.functional.tree import tree_map


class Gradient(NamedTuple):
    """What a loss says of a minibatch, detached."""

    flat: Tensor  # (D,): of all parameters, one after the other
    metrics: dict[str, Tensor]
    aux: Any


def gradient(loss_fn: Callable[..., Loss], parameters: Sequence[nn.Parameter], tensors: Sequence[Any]) -> Gradient:
    """The gradient of ``loss_fn(*tensors)`` for these parameters."""
    with torch.enable_grad():
        loss = loss_fn(*tensors)
        gradients = torch.autograd.grad(loss.value, parameters)
    flat = torch.cat([g.reshape(-1) for g in gradients])
    return Gradient(flat, {name: x.detach() for name, x in loss.metrics.items()}, tree_map(_detach, loss.aux))


def _detach(x: Any) -> Any:
    return x.detach() if isinstance(x, Tensor) else x
