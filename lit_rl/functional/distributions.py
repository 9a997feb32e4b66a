"""Distributions over actions as functions of their parameters.

Noise is an argument, drawn by the caller from its own generator: the same noise gives the same action, and a captured
graph stays pure. No torch.distributions: its objects cost time and branch on values.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor


def mask_logits(logits: Tensor, mask: Tensor | None) -> Tensor:
    """`logits` (or action values), (B, A), with the lowest finite number where `mask` (bool or 0/1, (B, A)) forbids.

    Finite, so that 0 * log 0 of a forbidden action stays 0 in an entropy. None: nothing is forbidden.
    """
    return logits if mask is None else logits.masked_fill(mask == 0, torch.finfo(logits.dtype).min)


def categorical_log_prob(logits: Tensor, action: Tensor) -> Tensor:
    """Log-probability, (B,), of `action` (int64, (B,), 0..A-1) under `logits` (B, A)."""
    return logits.log_softmax(dim=-1).gather(-1, action.unsqueeze(-1)).squeeze(-1)


def categorical_entropy(logits: Tensor) -> Tensor:
    """Entropy in nats, (B,), of `logits` (B, A)."""
    log_prob = logits.log_softmax(dim=-1)
    return -(log_prob.exp() * log_prob).sum(dim=-1)


def categorical_kl(logits: Tensor, other: Tensor) -> Tensor:
    """KL divergence in nats, (B,), of the distribution of `logits` from that of `other`, both (B, A): KL(logits || other).

    Forbidden actions (the lowest finite number) must be the same on both sides.
    """
    log_prob = logits.log_softmax(dim=-1)
    return (log_prob.exp() * (log_prob - other.log_softmax(dim=-1))).sum(dim=-1)


def categorical_mode(logits: Tensor) -> Tensor:
    """The likeliest action, int64 (B,), the first of equals."""
    return logits.argmax(dim=-1)


def gumbel(noise: Tensor) -> Tensor:
    """Standard Gumbel noise from `noise` that is uniform in [0, 1): argmax(logits + it) is a sample of the categorical."""
    # torch.rand can give exactly 0: its Gumbel is -inf and would tie with forbidden actions
    return -noise.clamp(min=torch.finfo(noise.dtype).tiny).log().neg().log()


def categorical_sample(logits: Tensor, noise: Tensor) -> Tensor:
    """An action, int64 (B,), from `logits` (B, A) by the Gumbel-max trick; `noise` (B, A) is uniform in [0, 1)."""
    return (logits + gumbel(noise)).argmax(dim=-1)


def gaussian_sample(mean: Tensor, log_std: Tensor, noise: Tensor) -> Tensor:
    """mean + exp(log_std) * noise, with standard normal `noise` of the mean's shape (B, A)."""
    return mean + log_std.exp() * noise


def gaussian_log_prob(mean: Tensor, log_std: Tensor, action: Tensor) -> Tensor:
    """Log-density, (B,), of `action` (B, A) under independent normals; `log_std` is (B, A) or (A,)."""
    scaled = (action - mean) * (-log_std).exp()
    return -(0.5 * scaled**2 + log_std + 0.5 * math.log(2 * math.pi)).sum(dim=-1)


def gaussian_entropy(log_std: Tensor) -> Tensor:
    """Entropy in nats of independent normals, summed over the last dimension of `log_std`."""
    return (log_std + 0.5 * math.log(2 * math.pi * math.e)).sum(dim=-1)


def gaussian_kl(mean: Tensor, log_std: Tensor, other_mean: Tensor, other_log_std: Tensor) -> Tensor:
    """KL divergence in nats, (B,), of independent normals from others, KL(this || other); log_std is (B, A) or (A,)."""
    spread = (2 * (log_std - other_log_std)).exp()
    distance = ((mean - other_mean) * (-other_log_std).exp()) ** 2
    return (other_log_std - log_std + 0.5 * (spread + distance - 1)).sum(dim=-1)


def squashed_gaussian_log_prob(mean: Tensor, log_std: Tensor, pre_tanh: Tensor) -> Tensor:
    """Log-density, (B,), of the action tanh(pre_tanh) in (-1, 1), where `pre_tanh` (B, A) is normal.

    Haarnoja et al. 2018 (arXiv:1801.01290), eq. 21, with log(1 - tanh(u)^2) = 2 (log 2 - u - softplus(-2u)): exact
    where tanh has rounded to 1.
    """
    log_slope = 2 * (math.log(2) - pre_tanh - F.softplus(-2 * pre_tanh))
    return gaussian_log_prob(mean, log_std, pre_tanh) - log_slope.sum(dim=-1)
