"""Distributions of returns over fixed atoms: Bellemare et al. 2017 (arXiv:1707.06887). Z is the number of atoms."""

from __future__ import annotations

import torch
from torch import Tensor


def project(reward: Tensor, discount: Tensor, probability: Tensor, support: Tensor) -> Tensor:
    """The distribution of `reward + discount * z` on the atoms `support`, (B, Z): algorithm 1.

    Each atom's mass goes to its two neighbours in proportion to their nearness, and what lies beyond to the ends.

    Args:
        reward: (B,).
        discount: (B,), 0 where nothing follows.
        probability: of the atoms z of the next value, (B, Z).
        support: the atoms, (Z,), evenly spaced and ascending.
    """
    gap = support[1] - support[0]
    moved_BZ = (reward[:, None] + discount[:, None] * support).clamp(support[0], support[-1])
    nearness_BZZ = (1 - (moved_BZ[:, None, :] - support[:, None]).abs() / gap).clamp(min=0)  # (B, to, from)
    return (nearness_BZZ * probability[:, None, :]).sum(2)


def kl_to_logits(target: Tensor, logits: Tensor) -> Tensor:
    """KL(target || softmax(logits)) in nats, (B,), of probabilities and logits (B, Z)."""
    return (torch.xlogy(target, target) - target * logits.log_softmax(1)).sum(1)
