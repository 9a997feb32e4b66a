"""Initialisation of weights."""

from __future__ import annotations

from torch import nn

from lit_rl.networks.custom import CustomEncoder


def orthogonal_(module: nn.Module, gain: float) -> None:
    """Make the weights of all Linear and Conv2d layers in `module` orthogonal times `gain`, and their biases 0.

    Those of an LSTM become orthogonal too, times 1; what a user's own encoder holds stays as it is. Saxe et al. 2014
    (arXiv:1312.6120). Draws from torch's global generator, as every module's construction does.
    """
    if isinstance(module, CustomEncoder):
        return
    if isinstance(module, (nn.Linear, nn.Conv2d)):
        nn.init.orthogonal_(module.weight, gain)
        if module.bias is not None:
            nn.init.zeros_(module.bias)
    if isinstance(module, nn.LSTM):
        for weight in module.parameters():
            if weight.ndim == 2:
                nn.init.orthogonal_(weight)
            else:
                nn.init.zeros_(weight)
    for part in module.children():
        orthogonal_(part, gain)
