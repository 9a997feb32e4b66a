"""What a policy would earn, estimated from episodes that another one played."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class ReturnEstimates(NamedTuple):
    """Estimates of the discounted return of a policy, and how many episodes they really rest on."""

    importance: float
    weighted: float
    effective_sample_size: float


def importance_sampling(episode: Tensor, t: Tensor, log_ratio: Tensor, reward: Tensor, gamma: float) -> ReturnEstimates:
    """Per-decision importance sampling, plain and weighted, over S recorded steps of E episodes.

    With rho_t = prod_{k <= t} pi(a_k|s_k) / b(a_k|s_k): plain is the mean over episodes of sum_t gamma^t rho_t r_t (Precup,
    Sutton & Singh 2000); weighted divides each rho_t by its mean over all episodes, of which those that have ended keep
    their last rho. The effective sample size is (sum rho)^2 / sum rho^2 of the whole episodes. All in float64 and logs, as
    products of hundreds of ratios leave the range of any number.

    Args:
        episode: int64 (S,), 0 to E - 1, the number of each step's episode.
        t: int64 (S,), the step's place in its episode, 0 first; steps stand in order.
        log_ratio: (S,), log pi - log b of each action; -inf where pi never takes it.
        reward: (S,).
        gamma: discount per step.
    """
    log_ratio, reward = log_ratio.double(), reward.double()
    count, length = int(episode.max()) + 1, int(t.max()) + 1
    # running sums within each episode: without the sum at its beginning, and once -inf, for ever
    never = log_ratio.isneginf()
    total = log_ratio.masked_fill(never, 0.0).cumsum(0)
    begins = torch.nonzero(t == 0).squeeze(1)
    before = (total - log_ratio.masked_fill(never, 0.0))[begins]
    nevers = never.long().cumsum(0)
    nevers_before = (nevers - never.long())[begins]
    log_rho = (total - before[episode]).masked_fill(nevers > nevers_before[episode], -torch.inf)
    ends = torch.cat([begins[1:], begins.new_tensor([len(t)])]) - 1
    last = log_rho[ends]
    discount = gamma ** t.double()

    under_way = _log_sum_by(t, log_rho, length)
    ended = torch.logcumsumexp(_log_sum_by(t[ends] + 1, last, length + 1)[:length], 0)
    mean = torch.logaddexp(under_way, ended) - torch.log(torch.tensor(float(count), dtype=torch.float64))
    weight = (log_rho - mean[t]).exp().nan_to_num(0.0)  # where no policy goes on, nothing counts
    rho = log_rho.exp().masked_fill(reward == 0, 0.0)  # which may be infinite where it pays nothing
    plain = float((discount * rho * reward).sum() / count)
    weighted = float((discount * weight * reward).sum() / count)
    share = (last - last.max()).exp().nan_to_num(0.0)
    effective = float(share.sum() ** 2 / (share**2).sum().clamp(min=torch.finfo(torch.float64).tiny))
    return ReturnEstimates(plain, weighted, effective)


def _log_sum_by(group: Tensor, x: Tensor, groups: int) -> Tensor:
    """log sum exp of the entries of each group; -inf for one without."""
    largest = torch.full((groups,), -torch.inf, dtype=x.dtype).scatter_reduce(0, group, x, "amax")
    shift = largest.masked_fill(largest.isneginf(), 0.0)
    return torch.zeros_like(largest).scatter_add(0, group, (x - shift[group]).exp()).log() + shift
