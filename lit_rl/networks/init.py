"""Initialisation of weights."""

from __future__ import annotations

from torch import nn


def orthogonal_(module: nn.Module, gain: float) -> None:
    """Make the weights of all Linear and Conv2d layers in `module` orthogonal times `gain`, and their biases 0.

    Saxe et al. 2014 (arXiv:1312.6120). Draws from torch's global generator, as every module's construction does.
    """
    for layer in module.modules():
        if isinstance(layer, (nn.Linear, nn.Conv2d)):
            nn.init.orthogonal_(layer.weight, gain)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
