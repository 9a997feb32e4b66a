"""Learning another algorithm's policy: what a first stage does whose second goes on with that algorithm."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lit_rl.algorithms import check_saved_model, make_algorithm, saved_algorithm
from lit_rl.algorithms.base import Algorithm
from lit_rl.envs.spaces import Spaces
from lit_rl.errors import UsageError
from lit_rl.policies.base import Policy

SHOWN = "--policy_of"


def borrowed_policy(spaces: Spaces, policy_of: Mapping[str, Any]) -> Policy:
    """A new policy as that algorithm makes it, by ``{"algo": "SAC", "hidden_sizes": [64], ...}``.

    Raises:
        UsageError: see :func:`borrowed_algorithm`; or noisy networks.
    """
    policy = borrowed_algorithm(spaces, policy_of).policy
    if getattr(policy.actor, "noise_size", 0):
        raise UsageError(f"{SHOWN}: noisy weights learn only where they are explored with: no noisy")
    return policy


def borrowed_algorithm(spaces: Spaces, policy_of: Mapping[str, Any], **own: Any) -> Algorithm:
    """That algorithm with these settings, where ``own`` says nothing else.

    A checkpoint may hold ``policy_of``, so it names what is ours, or what is imported already.

    Raises:
        UsageError: no or no known algorithm, an unknown setting, or spaces that it cannot handle.
    """
    settings = {name: value for name, value in policy_of.items() if name != "algo"}
    if "algo" not in policy_of:
        raise UsageError(f'{SHOWN} {dict(policy_of)} names no algorithm: give {SHOWN} \'{{"algo": "SAC"}}\'')
    if policy_of.get("use_lstm"):
        raise UsageError(f"{SHOWN}: a policy that remembers learns from sequences, not from single steps: no use_lstm")
    try:
        check_saved_model(settings, SHOWN)
        return make_algorithm(saved_algorithm(policy_of["algo"], SHOWN), spaces, settings | own)
    except UsageError as error:
        raise UsageError(str(error) if str(error).startswith(SHOWN) else f"{SHOWN}: {error}") from None
