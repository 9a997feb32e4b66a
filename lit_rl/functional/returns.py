"""Returns and advantages over a rollout.

All arrays are (T, N), float or bool. `next_value[t]` is the value of the observation that really came after step t:
the final one where the episode ended there, not the reset one. `ended = terminated | truncated`: a termination is
worth nothing afterwards, a truncation is worth `next_value`, and nothing flows from one episode into the one before
it. The last row bootstraps from `next_value` as well. Rollouts lie in the memory of the host, so this is numpy: with a
few steps of a few envs, a call of torch costs more than what it computes.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating]
Flags = NDArray[np.bool_]

SHORT = 16  # rows that are walked one by one


def discounted_return(reward: Floats, next_value: Floats, terminated: Flags, ended: Flags, gamma: float) -> Floats:
    """The reward-to-go G_t = r_t + gamma * G_{t+1}, (T, N).

    `next_value` counts only where the rollout is cut: at truncations and in the last row (Sutton & Barto, eq. 3.9).
    """
    bootstrap = _unless(terminated, next_value)
    after_cut = _unless(~ended, bootstrap)
    after_cut[-1] = bootstrap[-1]
    return _backwards(reward + gamma * after_cut, gamma * _unless(ended, np.ones_like(reward)))


def gae(
    reward: Floats,
    value: Floats,
    next_value: Floats,
    terminated: Flags,
    ended: Flags,
    gamma: float,
    lam: float,
) -> tuple[Floats, Floats]:
    """Generalised advantage estimates and the returns `advantage + value`, both (T, N).

    Schulman et al. 2016 (arXiv:1506.02438), eq. 16. `lam` in [0, 1]: 0 is the one-step TD error, 1 the full return.
    """
    delta = reward + gamma * _unless(terminated, next_value) - value
    advantage = _backwards(delta, _unless(ended, np.full_like(reward, gamma * lam)))
    return advantage, advantage + value


def vtrace(
    log_prob: Floats,
    behaviour_log_prob: Floats,
    reward: Floats,
    value: Floats,
    next_value: Floats,
    terminated: Flags,
    ended: Flags,
    gamma: float,
    rho_bar: float = 1.0,
    c_bar: float = 1.0,
) -> tuple[Floats, Floats]:
    """V-trace value targets `vs` and policy-gradient advantages, both (T, N).

    Espeholt et al. 2018 (arXiv:1802.01561), eq. 1; the advantage is rho_t (r_t + gamma vs_{t+1} - V_t) of section 4.2.
    `log_prob` is of the actions taken, under the policy that learns; `behaviour_log_prob` under the one that acted.
    """
    ratio = np.exp(log_prob - behaviour_log_prob)
    rho, c = np.minimum(ratio, rho_bar), np.minimum(ratio, c_bar)
    delta = rho * (reward + gamma * _unless(terminated, next_value) - value)
    vs = value + _backwards(delta, gamma * _unless(ended, c))
    vs_after = np.concatenate([np.where(ended[:-1], next_value[:-1], vs[1:]), next_value[-1:]])
    advantage = rho * (reward + gamma * _unless(terminated, vs_after) - value)
    return vs, advantage


def _unless(flag: Flags, x: Floats) -> Floats:
    """x, and 0 where the flag is set, whatever x is there."""
    return np.where(flag, x.dtype.type(0), x)


def _backwards(addend: Floats, factor: Floats) -> Floats:
    """x_t = addend_t + factor_t * x_{t+1} from the last row to the first, with 0 after the last.

    A long rollout by doubling: x_t gathers the terms of the next 1, 2, 4, ... rows, which costs a dozen operations.
    """
    x = addend.copy()
    if len(x) <= SHORT:
        for t in range(len(x) - 2, -1, -1):
            x[t] += factor[t] * x[t + 1]
        return x
    reach, factor = 1, factor.copy()
    while reach < len(x):
        x[:-reach] += factor[:-reach] * x[reach:]
        factor[:-reach] *= factor[reach:].copy()
        factor[-reach:] = 0
        reach *= 2
    return x
