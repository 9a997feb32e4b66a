"""A running average of weights."""

from __future__ import annotations

import copy

import torch
from torch import nn


class WeightAverage:
    """Keeps ``module`` as an exponential moving average of ``source``: average ← decay · average + (1 - decay) · weights.

    Buffers (running statistics) are copied, not averaged. Polyak and Juditsky, 1992.
    """

    def __init__(self, source: nn.Module, decay: float) -> None:
        self.source, self.decay = source, decay
        self.module = copy.deepcopy(source).requires_grad_(False)

    @torch.no_grad()
    def update(self) -> None:
        """Move the average towards the present weights."""
        torch._foreach_lerp_(list(self.module.parameters()), list(self.source.parameters()), 1 - self.decay)

    @torch.no_grad()
    def copy_buffers(self) -> None:
        """Take over the source's buffers."""
        for mine, theirs in zip(self.module.buffers(), self.source.buffers(), strict=True):
            mine.copy_(theirs)
