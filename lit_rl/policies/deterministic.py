"""A deterministic policy in a Box that explores by adding noise: Gaussian, or an Ornstein-Uhlenbeck process."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from lit_rl.envs.spaces import Spaces
from lit_rl.functional.schedules import Schedule, values_along
from lit_rl.functional.tree import Tree
from lit_rl.networks.architecture import Architecture
from lit_rl.networks.critics import ContinuousCritic
from lit_rl.networks.host import host_forward
from lit_rl.networks.torso import Torso
from lit_rl.policies.base import Acted, HostAct, Policy
from lit_rl.policies.bounds import bounded_units, uniform


class DeterministicActor(nn.Module):
    """Observations -> actions (B, A) in (-1, 1)."""

    def __init__(self, spaces: Spaces, actions: int, architecture: Architecture) -> None:
        super().__init__()
        self.torso = Torso(spaces.observation, architecture)
        self.head = nn.Linear(self.torso.features, actions)
        self.squash = nn.Tanh()

    @property
    def layers(self) -> list[nn.Module] | None:
        """The layers one after the other, where that is all there is; else None."""
        torso = self.torso.layers
        return None if torso is None else [*torso, self.head, self.squash]

    def forward(self, obs: Tree) -> Tensor:
        action: Tensor = self.squash(self.head(self.torso(obs)))
        return action


class Deterministic(Policy):
    """mu(s), and while exploring mu(s) + noise, kept in [-1, 1] and scaled to the bounds.

    Args:
        spaces: of the environment.
        algorithm: whose policy it is, for messages.
        architecture: of actor and critics.
        critics: the number K of action-value functions.
        sigma: scale of the noise, as a share of half the action range: a schedule over env steps.
        theta: None for independent Gaussian noise; else the pull to 0, in (0, 1], of an Ornstein-Uhlenbeck process
            x <- x - theta x + sigma N(0, 1) (Uhlenbeck & Ornstein 1930), which begins at 0 in every episode.
    """

    actor: DeterministicActor
    critic: ContinuousCritic

    def __init__(
        self,
        spaces: Spaces,
        algorithm: str,
        architecture: Architecture,
        critics: int,
        sigma: Schedule,
        theta: float | None = None,
    ) -> None:
        units = bounded_units(spaces.action, algorithm)
        super().__init__(spaces)
        self._units, self.size = units, units.size
        self.actor = DeterministicActor(spaces, self.size, architecture)
        self.critic = ContinuousCritic(critics, spaces, self.size, architecture)
        self.sigma, self.theta = sigma, theta

    def act(self, obs: Tree, noise: Tensor | None = None, state: Tree = None) -> Acted:
        action = self.actor(obs)
        if noise is None:
            return Acted(action, state)
        drift, state = self._drift(noise[:, : self.size], state)
        return Acted((action + drift).clamp(-1.0, 1.0), state)

    def _drift(self, noise: Tensor, state: Tree) -> tuple[Tensor, Tree]:
        """What is added to the action, and the state of the process that made it."""
        if self.theta is None:
            return noise, None
        process: Tensor = noise if state is None else (1 - self.theta) * state + noise
        return process, process

    def initial_state(self, envs: int) -> Tree:
        """Where the process begins; None where the noise has no memory."""
        return None if self.theta is None else torch.zeros(envs, self.size, device=self.actor.head.weight.device)

    def draw(self, steps: int, envs: int, generator: torch.Generator) -> Tensor:
        """Standard normal numbers (steps, envs, A)."""
        return torch.randn(steps, envs, self.size, generator=generator)

    def scaled(self, drawn: np.ndarray, env_steps: int, vector_step: int) -> np.ndarray:
        """Normal numbers (steps, envs, 2 A): scaled by sigma, then as drawn (for :meth:`random`)."""
        sigma = values_along(self.sigma, env_steps, vector_step, len(drawn))
        return np.concatenate([drawn * sigma[:, None, None], drawn], axis=2)

    def log_prob(self, obs: Tree, action: Tensor) -> Tensor:
        """Minus half the squared distance: what a normal distribution of spread 1 around mu(s) says, up to a constant."""
        return -0.5 * torch.square(action - self.actor(obs)).sum(1)

    def behaviour_log_prob(self, obs: Tree, action: Tensor, env_steps: int) -> None:
        """None: noise that is clipped, or goes on from step to step, has no density."""

    def divergence(self, other: Policy, obs: Tree) -> Tensor:
        """Half the squared distance: KL of two normal distributions of spread 1."""
        return -self.log_prob(obs, other.act(obs).action)

    def host_act(self) -> HostAct | None:
        forward = host_forward(self.actor.layers)
        if forward is None or self.theta is not None:
            return None
        size = self.size

        def act(obs: np.ndarray, noise: np.ndarray | None) -> np.ndarray:
            action = forward(obs)
            if noise is None:
                return action
            action += noise[:, :size]
            return np.clip(action, -1.0, 1.0, out=action)

        return act

    def random(self, obs: Tree, noise: Tensor) -> Tensor:
        return uniform(noise[:, self.size :])

    def env_action(self, action: np.ndarray) -> np.ndarray:
        return self._units.to_env(action)
