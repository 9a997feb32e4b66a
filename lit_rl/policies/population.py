"""Many policies as one: each environment is acted in by a member with weights of its own."""

from __future__ import annotations

import copy

import numpy as np
import torch
from torch import Tensor, nn

from lit_rl.functional.tree import Tree, tree_map
from lit_rl.policies.base import Acted, HostAct, Policy


class Population(Policy):
    """N copies of a policy; member n acts, greedily, for environment n."""

    def __init__(self, policy: Policy, members: int) -> None:
        super().__init__(policy.spaces)
        self._leader = [p for p in policy.actor.parameters() if p.requires_grad]  # a list: no parameters of this one
        learns = [p.requires_grad for p in policy.actor.parameters()]
        self.policies = [copy.deepcopy(policy) for _ in range(members)]
        self._weights = [
            [p for p, is_learned in zip(member.actor.parameters(), learns, strict=True) if is_learned]
            for member in self.policies
        ]
        self.members = nn.ModuleList(self.policies).requires_grad_(False)

    @property
    def size(self) -> int:
        """D, the numbers that are learned in a member's actor."""
        return sum(p.numel() for p in self._leader)

    @torch.no_grad()
    def scatter(self, offset: Tensor) -> None:
        """Give member n the weights that the policy has now, plus row n of ``offset`` (N, D)."""
        sizes = [p.numel() for p in self._leader]
        for weights, row in zip(self._weights, offset, strict=True):
            for mine, center, part in zip(weights, self._leader, torch.split(row, sizes), strict=True):
                mine.copy_(center + part.view_as(center))

    def act(self, obs: Tree, noise: Tensor | None = None, state: Tree = None) -> Acted:
        seen = [tree_map(lambda x, n=n: x[n : n + 1], obs) for n in range(len(self.policies))]
        return Acted(torch.cat([m.act(row).action for m, row in zip(self.policies, seen, strict=True)]), None)

    def draw(self, steps: int, envs: int, generator: torch.Generator) -> Tensor:
        """None needed, (steps, envs, 0): the members are as far apart as they are to explore."""
        return torch.zeros(steps, envs, 0)

    def host_act(self) -> HostAct | None:
        acts = [member.host_act() for member in self.policies]

        def act(obs: np.ndarray, noise: np.ndarray | None) -> np.ndarray:
            return np.concatenate([a(obs[n : n + 1], None) for n, a in enumerate(acts) if a is not None])

        return None if None in acts else act

    def env_action(self, action: np.ndarray) -> np.ndarray:
        return self.policies[0].env_action(action)
