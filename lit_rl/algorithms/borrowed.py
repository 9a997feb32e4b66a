"""Learning another algorithm's policy: what a first stage does whose second goes on with that algorithm."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lit_rl.algorithms import make_algorithm, saved_algorithm
from lit_rl.envs.spaces import Spaces
from lit_rl.errors import UsageError
from lit_rl.policies.base import Policy

SHOWN = "--policy_of"


def borrowed_policy(spaces: Spaces, policy_of: Mapping[str, Any]) -> Policy:
    """A new policy as that algorithm makes it, by ``{"algo": "SAC", "hidden_sizes": [64], ...}``.

    Like a checkpoint, which may hold it, ``policy_of`` names algorithms of ours, or a user's whose module is imported.

    Raises:
        UsageError: no or no known algorithm, an unknown setting, or spaces that it cannot handle.
    """
    settings = {name: value for name, value in policy_of.items() if name != "algo"}
    if "algo" not in policy_of:
        raise UsageError(f'{SHOWN} {dict(policy_of)} names no algorithm: give {SHOWN} \'{{"algo": "SAC"}}\'')
    if policy_of.get("use_lstm"):
        raise UsageError(f"{SHOWN}: a policy that remembers learns from sequences, not from single steps: no use_lstm")
    try:
        return make_algorithm(saved_algorithm(policy_of["algo"], SHOWN), spaces, settings).policy
    except UsageError as error:
        raise UsageError(str(error) if str(error).startswith(SHOWN) else f"{SHOWN}: {error}") from None
