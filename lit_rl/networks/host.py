"""Plain networks run in numpy, on the live weights: for one or a few observations torch's overhead costs more than the maths."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import nn

HostForward = Callable[[np.ndarray], np.ndarray]


def host_forward(layers: Sequence[nn.Module] | None) -> HostForward | None:
    """The same map (N, in) → (N, out) as ``layers`` one after the other, in float32; None where numpy cannot do it.

    It reads the weights where they stand, so it follows every step that changes them in place; build it again after
    they were moved. Only Linear, ReLU and Tanh on the CPU in float32 qualify.
    """
    if layers is None:
        return None
    steps: list[tuple[str, np.ndarray | None, np.ndarray | None]] = []
    for layer in layers:
        if isinstance(layer, nn.Linear) and layer.weight.device.type == "cpu" and layer.weight.dtype == torch.float32:
            bias = None if layer.bias is None else layer.bias.detach().numpy()
            steps.append(("linear", layer.weight.detach().numpy().T, bias))
        elif isinstance(layer, nn.ReLU):
            steps.append(("relu", None, None))
        elif isinstance(layer, nn.Tanh):
            steps.append(("tanh", None, None))
        else:
            return None
    zero = np.float32(0)

    def forward(x: np.ndarray) -> np.ndarray:
        single = len(x) == 1
        if single:  # operations on a vector cost half of those on a matrix of one row
            x = x[0]
        for kind, weight, bias in steps:
            if weight is not None:
                x = np.dot(x, weight)
                if bias is not None:
                    x += bias
            elif kind == "relu":
                np.maximum(x, zero, out=x)
            else:
                np.tanh(x, out=x)
        return x[None] if single else x

    return forward
