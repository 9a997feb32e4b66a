"""How a collector asks a policy for actions: in numpy where the policy is a plain network on the CPU, else through torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from lit_rl.functional.tree import Tree, tree_map
from lit_rl.policies.base import Policy

T = TypeVar("T")


class Made(Generic[T]):
    """Something made of a policy, and made again when the policy is another or its weights were moved."""

    def __init__(self, make: Callable[[Policy], T]) -> None:
        self._make = make
        self._last: tuple[Policy, nn.Parameter, int, T] | None = None

    def of(self, policy: Policy) -> T:
        """What is made of this policy."""
        last = self._last
        if last is None or last[0] is not policy or last[1].data_ptr() != last[2]:
            weight = next(policy.parameters())  # walking a module's parameters costs more than a step
            last = self._last = policy, weight, weight.data_ptr(), self._make(policy)
        return last[3]


class Actor(Protocol):
    """A policy seen from the environments' side: observations and actions are numpy arrays."""

    def act(self, obs: Tree, noise: np.ndarray | None, state: Tree) -> tuple[np.ndarray, Tree]:
        """Actions (N, ...) in the policy's units, greedy without noise, and the policy's next state."""


class TorchActor:
    """Any policy, wherever it lives; what it sees goes to its device and its actions come back to the host's envs."""

    def __init__(self, policy: Policy, random: bool = False) -> None:
        self._policy, self._random = policy, random
        self._device = next(policy.parameters()).device

    @torch.no_grad()
    def act(self, obs: Tree, noise: np.ndarray | None, state: Tree) -> tuple[np.ndarray, Tree]:
        seen = tree_map(lambda x: torch.from_numpy(x).to(self._device), obs)
        drawn = None if noise is None else torch.from_numpy(noise).to(self._device)
        if self._random:
            assert drawn is not None
            return to_host(self._policy.random(seen, drawn)), state
        action, state = self._policy.act(seen, drawn, state)
        return to_host(action), state


def to_host(action: Tensor) -> np.ndarray:
    """A policy's actions for the environments, in numpy, which has no bfloat16."""
    host: np.ndarray = (action.float() if action.dtype == torch.bfloat16 else action).cpu().numpy()
    return host


class HostActor:
    """A policy without state that can act in numpy."""

    def __init__(self, policy: Policy) -> None:
        act = policy.host_act()
        assert act is not None
        self._act = act

    def act(self, obs: Tree, noise: np.ndarray | None, state: Tree) -> tuple[np.ndarray, Tree]:
        return self._act(obs, noise), None


def make_actor(policy: Policy, random: bool = False) -> Actor:
    """The faster way to act with this policy as it stands; make it again after its weights were moved.

    Args:
        policy: acts, exploring.
        random: act at random instead, whatever the policy.
    """
    if random or policy.host_act() is None:
        return TorchActor(policy, random)
    return HostActor(policy)
