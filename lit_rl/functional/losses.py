"""Losses, sample by sample: the caller takes the mean. All of one shape, usually (B,)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def huber(error: Tensor, delta: float = 1.0) -> Tensor:
    """error^2 / 2 up to `delta` > 0, delta * (|error| - delta / 2) beyond: a gradient of at most `delta`.

    Huber 1964; Mnih et al. 2015 (doi:10.1038/nature14236) with delta 1.
    """
    return F.huber_loss(error, torch.zeros_like(error), reduction="none", delta=delta)


def expectile(error: Tensor, expectile: float) -> Tensor:
    """|expectile - 1(error < 0)| error^2: a mean of such losses is least at that expectile of the targets.

    Kostrikov et al. 2021 (arXiv:2110.06169), eq. 5. `error` is target minus prediction; 0.5 is half the squared error.
    """
    return torch.where(error < 0, 1 - expectile, expectile) * error**2


def conservative(value: Tensor, log_weight: Tensor, taken: Tensor, dim: int) -> Tensor:
    """log sum_a w_a exp Q(s, a) - Q(s, recorded a), where the sum goes over `dim` of `value` and `log_weight`.

    Kumar et al. 2020 (arXiv:2006.04779), eq. 4. Weights are 1 over all discrete actions, and 1 / (N density) of N sampled
    ones, so that the sum estimates an integral.
    """
    return torch.logsumexp(value + log_weight, dim) - taken


def clipped_surrogate(log_prob: Tensor, old_log_prob: Tensor, advantage: Tensor, clip: Tensor) -> Tensor:
    """PPO's objective, negated: -min(r A, clip(r, 1 - clip, 1 + clip) A) with r = exp(log_prob - old_log_prob).

    Schulman et al. 2017 (arXiv:1707.06347), eq. 7. `clip` is 0-d, in (0, 1): a tensor, since it may be scheduled.
    """
    ratio = (log_prob - old_log_prob).exp()
    return -torch.minimum(ratio * advantage, ratio.clamp(1 - clip, 1 + clip) * advantage)


def clipped_value_error(value: Tensor, old_value: Tensor, target: Tensor, clip: Tensor) -> Tensor:
    """The larger squared error of `value` and of `value` kept within `clip` > 0 of `old_value`.

    Schulman et al. 2016 (arXiv:1506.02438) as PPO's reference code has it; `clip` is 0-d, in the units of
    the return.
    """
    kept_near = old_value + (value - old_value).clamp(-clip, clip)
    return torch.maximum((value - target) ** 2, (kept_near - target) ** 2)


def approx_kl(log_prob: Tensor, old_log_prob: Tensor) -> Tensor:
    """(r - 1) - log r >= 0 with r = exp(log_prob - old_log_prob): its mean over old samples estimates KL(old || new).

    Schulman 2020, "Approximating KL divergence", k3: unbiased, and less noisy than -log r.
    """
    log_ratio = log_prob - old_log_prob
    return log_ratio.expm1() - log_ratio


def standardize(x: Tensor) -> Tensor:
    """`x` with mean 0 and standard deviation 1 (that of the population); 0 where it does not vary."""
    return (x - x.mean()) / (x.std(correction=0) + 1e-8)


def explained_variance(prediction: Tensor, target: Tensor) -> Tensor:
    """1 - Var(target - prediction) / Var(target), 0-d: 1 is perfect, 0 no better than a constant, below 0 is worse.

    0 where the target does not vary: there is nothing to explain.
    """
    variance = target.var(correction=0)
    unexplained = (target - prediction).var(correction=0)
    varies = variance > 0
    return torch.where(varies, 1 - unexplained / torch.where(varies, variance, 1.0), 0.0)
