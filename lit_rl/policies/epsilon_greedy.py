"""Value-based acting: the best action by Q, or with probability epsilon any allowed one."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from gymnasium import spaces as gs
from torch import Tensor, nn

from lit_rl.envs.spaces import Spaces, describe
from lit_rl.errors import UsageError
from lit_rl.functional.distributions import mask_logits
from lit_rl.functional.schedules import Schedule, values_at
from lit_rl.functional.tree import Tree
from lit_rl.networks.heads import QHead
from lit_rl.networks.host import host_forward
from lit_rl.networks.torso import Torso
from lit_rl.policies.base import Acted, Policy, action_mask


class QNetwork(nn.Module):
    """Torso and value head: observations → (B, A) action values."""

    def __init__(self, spaces: Spaces, hidden_sizes: list[int], activation: str, dueling: bool) -> None:
        super().__init__()
        if not isinstance(spaces.action, gs.Discrete):
            raise UsageError(f"DQN needs a Discrete action space, not {describe(spaces.action)}")
        self.torso = Torso(spaces.observation, hidden_sizes, activation)
        self.head = QHead(self.torso.features, int(spaces.action.n), dueling)

    @property
    def layers(self) -> list[nn.Module] | None:
        """The layers one after the other, where that is all there is; else None."""
        torso = self.torso.layers
        return None if torso is None or self.head.dueling else [*torso, self.head.linear]

    def forward(self, obs: Tree) -> Tensor:
        return mask_logits(self.head(self.torso(obs)), action_mask(obs))


class EpsilonGreedy(Policy):
    """Epsilon-greedy over a Q-network; epsilon is a schedule over env steps, or fixed by :meth:`set_eps`."""

    actor: QNetwork

    def __init__(self, spaces: Spaces, q: QNetwork, epsilon: Schedule) -> None:
        super().__init__(spaces)
        self.actor = q
        self.epsilon = epsilon
        self.fixed_eps: float | None = None

    def set_eps(self, eps: float | None) -> None:
        """Explore with this probability, in [0, 1], whatever the schedule says; None returns to the schedule."""
        if eps is not None and not 0 <= eps <= 1:
            raise UsageError(f"epsilon {eps} must lie in [0, 1]")
        self.fixed_eps = eps

    def q_values(self, obs: Tree) -> Tensor:
        """Action values (B, A); the lowest finite number where an action is masked out."""
        values: Tensor = self.actor(obs)
        return values

    def act(self, obs: Tree, noise: Tensor | None = None, state: Tree = None) -> Acted:
        greedy = self.q_values(obs).argmax(-1)
        if noise is None:
            return Acted(greedy, None)
        return Acted(torch.where(noise[:, 0] < 0, self.random(obs, noise), greedy), None)

    def noise(self, steps: int, envs: int, generator: torch.Generator, env_steps: int, vector_step: int) -> Tensor:
        """Uniform numbers (steps, envs, 1 + A): a coin that is negative with probability epsilon, and a key for each action."""
        assert isinstance(self.spaces.action, gs.Discrete)
        noise = torch.rand(steps, envs, 1 + int(self.spaces.action.n), generator=generator)
        if self.fixed_eps is None:
            eps = values_at(self.epsilon, env_steps + vector_step * np.arange(steps))
            noise[..., 0] -= torch.from_numpy(eps.astype(np.float32))[:, None]
        else:
            noise[..., 0] -= self.fixed_eps
        return noise

    def host_act(self) -> Callable[[np.ndarray, np.ndarray], np.ndarray] | None:
        forward = host_forward(self.actor.layers)
        if forward is None:
            return None

        def act(obs: np.ndarray, noise: np.ndarray) -> np.ndarray:
            explore = noise[:, 0] < 0
            action: np.ndarray
            if explore.all():
                action = noise[:, 1:].argmax(1)
            else:
                action = forward(obs).argmax(1)
                if explore.any():
                    action = np.where(explore, noise[:, 1:].argmax(1), action)
            return action

        return act

    def random(self, obs: Tree, noise: Tensor) -> Tensor:
        keys, mask = noise[:, 1:], action_mask(obs)
        return (keys if mask is None else keys.masked_fill(~mask, -1.0)).argmax(-1)
