"""Returns and advantages over a rollout.

All tensors are (T, N), float or bool. `next_value[t]` is the value of the observation that really came after step t:
the final one where the episode ended there, not the reset one. `ended = terminated | truncated`: a termination is
worth nothing afterwards, a truncation is worth `next_value`, and nothing flows from one episode into the one before
it. The last row bootstraps from `next_value` as well. Results are targets: they carry no gradient.
"""

from __future__ import annotations

import torch
from torch import Tensor


def discounted_return(reward: Tensor, next_value: Tensor, terminated: Tensor, ended: Tensor, gamma: float) -> Tensor:
    """The reward-to-go G_t = r_t + gamma * G_{t+1}, (T, N).

    `next_value` counts only where the rollout is cut: at truncations and in the last row (Sutton & Barto, eq. 3.9).
    """
    with torch.no_grad():
        after_cut = torch.where(ended, next_value.masked_fill(terminated, 0.0), 0.0)
        after_cut[-1] = next_value[-1].masked_fill(terminated[-1], 0.0)
        return _backwards(reward + gamma * after_cut, gamma * (~ended).to(reward.dtype))


def gae(
    reward: Tensor,
    value: Tensor,
    next_value: Tensor,
    terminated: Tensor,
    ended: Tensor,
    gamma: float,
    lam: float,
) -> tuple[Tensor, Tensor]:
    """Generalised advantage estimates and the returns `advantage + value`, both (T, N).

    Schulman et al. 2016 (arXiv:1506.02438), eq. 16. `lam` in [0, 1]: 0 is the one-step TD error, 1 the full return.
    """
    with torch.no_grad():
        delta = reward + gamma * next_value.masked_fill(terminated, 0.0) - value
        advantage = _backwards(delta, gamma * lam * (~ended).to(reward.dtype))
        return advantage, advantage + value


def vtrace(
    log_prob: Tensor,
    behaviour_log_prob: Tensor,
    reward: Tensor,
    value: Tensor,
    next_value: Tensor,
    terminated: Tensor,
    ended: Tensor,
    gamma: float,
    rho_bar: float = 1.0,
    c_bar: float = 1.0,
) -> tuple[Tensor, Tensor]:
    """V-trace value targets `vs` and policy-gradient advantages, both (T, N).

    Espeholt et al. 2018 (arXiv:1802.01561), eq. 1; the advantage is rho_t (r_t + gamma vs_{t+1} - V_t) of section 4.2.
    `log_prob` is of the actions taken, under the policy that learns; `behaviour_log_prob` under the one that acted.
    """
    with torch.no_grad():
        ratio = (log_prob - behaviour_log_prob).exp()
        rho, c = ratio.clamp(max=rho_bar), ratio.clamp(max=c_bar)
        delta = rho * (reward + gamma * next_value.masked_fill(terminated, 0.0) - value)
        vs = value + _backwards(delta, gamma * c * (~ended).to(reward.dtype))
        vs_after = torch.cat([torch.where(ended[:-1], next_value[:-1], vs[1:]), next_value[-1:]])
        advantage = rho * (reward + gamma * vs_after.masked_fill(terminated, 0.0) - value)
        return vs, advantage


def _backwards(addend: Tensor, factor: Tensor) -> Tensor:
    """x_t = addend_t + factor_t * x_{t+1} from the last row to the first, with 0 after the last.

    A long rollout by doubling: x_t gathers the terms of the next 1, 2, 4, ... rows, which costs a dozen operations.
    """
    if len(addend) <= 16:
        rows, factors = list(addend.unbind()), factor.unbind()
        for t in range(len(rows) - 2, -1, -1):
            rows[t] = torch.addcmul(rows[t], factors[t], rows[t + 1])
        return torch.stack(rows)
    reach = 1
    while reach < len(addend):
        gathered = torch.addcmul(addend[:-reach], factor[:-reach], addend[reach:])
        product = factor[:-reach] * factor[reach:]
        addend = torch.cat([gathered, addend[-reach:]])
        factor = torch.cat([product, torch.zeros_like(factor[-reach:])])
        reach *= 2
    return addend
