"""Weights by name, as a checkpoint holds them: whether they fit and are finite, the raw ones and their running average."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from lit_rl.errors import UsageError

Weights = dict[str, Tensor]

# what stands before the weights of a LitPolicy's policy, and before those of its running average
RAW, AVERAGE = "algorithm.policy.", "average."


def misfit(saved: Weights, own: Weights, there: str, here: str) -> str | None:
    """The first weight that is not alike on both sides, with both shapes; None where all are.

    ``there`` and ``here`` are what the message calls the two sides: "in the checkpoint", "in this network".
    """
    for name in own | saved:
        shapes = [tuple(weights[name].shape) if name in weights else None for weights in (saved, own)]
        if shapes[0] != shapes[1]:
            first, second = ("is missing" if shape is None else f"is {shape}" for shape in shapes)
            return f"{name} {first} {there} and {second} {here}"
    return None


def check_finite(saved: Weights, path: str | Path | None = None) -> None:
    """Refuse weights that would make every action NaN.

    Raises:
        UsageError: a weight is NaN or infinite; the message names it.
    """
    for name, weight in saved.items():
        if weight.is_floating_point() and not torch.isfinite(weight).all():
            raise UsageError(f"{path or 'the checkpoint'} holds NaN or infinity in {name}")


def best_policy(saved: Weights) -> Weights:
    """The weights of the policy that is evaluated, by its own names: the average where there is one."""
    prefix = AVERAGE if any(name.startswith(AVERAGE) for name in saved) else RAW
    return {name.removeprefix(prefix): x for name, x in saved.items() if name.startswith(prefix)}


def taken_over(saved: Weights, own: Weights) -> Weights:
    """A LitPolicy's saved weights for one with the weights ``own``: raw ones and their average.

    Where only one side has an average, the weights that are evaluated there are the raw ones or the average here.

    Raises:
        UsageError: a weight is missing, has another shape or no place here, or is NaN or infinite.
    """
    averages = {_raw(name): x for name, x in saved.items() if name.startswith(AVERAGE)}
    if not any(name.startswith(AVERAGE) for name in own):
        saved = {name: averages.get(name, x) for name, x in saved.items() if not name.startswith(AVERAGE)}
    raw = {name: saved[_raw(name)] for name in own if name.startswith(AVERAGE) and _raw(name) in saved}
    found = raw | saved
    if problem := misfit(found, own, "in the checkpoint", "in this network"):
        raise UsageError(f"the checkpoint does not fit: {problem}")
    check_finite(found)
    return found


def _raw(name: str) -> str:
    return RAW + name.removeprefix(AVERAGE)
