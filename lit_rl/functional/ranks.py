"""Ranks instead of numbers: what is left of returns when their scale must not count."""

from __future__ import annotations

import torch
from torch import Tensor


def centered_ranks(x: Tensor) -> Tensor:
    """The ranks of all entries of `x` (any shape), spread evenly over [-0.5, 0.5]; equals share the mean of their ranks.

    Wierstra et al. 2014 (fitness shaping), as in Salimans et al. 2017 (arXiv:1703.03864).
    """
    flat = x.reshape(-1)
    below = (flat[:, None] > flat).sum(1)
    equal = (flat[:, None] == flat).sum(1)
    rank = below + (equal - 1) / 2
    return (rank / max(len(flat) - 1, 1) - 0.5).to(torch.float32).view(x.shape)
