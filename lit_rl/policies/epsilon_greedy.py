"""Value-based acting: the best action by Q, or with probability epsilon any allowed one."""

from __future__ import annotations

from numbers import Real

import numpy as np
import torch
from gymnasium import spaces as gs
from torch import Tensor, nn

from lit_rl.envs.spaces import Spaces, describe
from lit_rl.errors import UsageError
from lit_rl.functional.distributions import categorical_kl, categorical_log_prob, mask_logits
from lit_rl.functional.schedules import Schedule, standing_value, value_at, values_along
from lit_rl.functional.tree import Tree
from lit_rl.networks.architecture import Architecture
from lit_rl.networks.heads import CategoricalQHead, QHead
from lit_rl.networks.host import host_forward
from lit_rl.networks.noisy import NoisyTorso
from lit_rl.networks.torso import Torso
from lit_rl.policies.base import Acted, HostAct, Policy, action_mask


class QNetwork(nn.Module):
    """Torso and value head: observations → (B, A) action values.

    Args:
        spaces: of the environment.
        architecture: of the torso.
        dueling: a state value and advantages.
        sigma0: noise at the start of noisy weights; None for plain ones.
        atoms: (number, lowest, highest) value of a distribution of returns; None for expected values alone.
    """

    def __init__(
        self,
        spaces: Spaces,
        architecture: Architecture,
        dueling: bool,
        sigma0: float | None = None,
        atoms: tuple[int, float, float] | None = None,
    ) -> None:
        super().__init__()
        if not isinstance(spaces.action, gs.Discrete):
            raise UsageError(f"DQN needs a Discrete action space, not {describe(spaces.action)}")
        observation, actions = spaces.observation, int(spaces.action.n)
        self.torso: Torso | NoisyTorso
        if sigma0 is None:
            self.torso = Torso(observation, architecture)
        else:
            self.torso = NoisyTorso(observation, architecture, sigma0)
        if atoms is None:
            self.head = QHead(self.torso.features, actions, dueling, sigma0)
        else:
            self.head = CategoricalQHead(self.torso.features, actions, dueling, sigma0, *atoms)
        self.noise_size = self.torso.noise_size + self.head.noise_size if isinstance(self.torso, NoisyTorso) else 0

    @property
    def layers(self) -> list[nn.Module] | None:
        """The layers one after the other, where that is all there is; else None."""
        torso = self.torso.layers
        plain = type(self.head) is QHead and not self.head.dueling
        return [*torso, self.head.linear] if torso is not None and plain else None

    def outputs(self, obs: Tree, noise: Tensor | None = None) -> Tensor:
        """What the head makes of observations, with noise (1 or B, noise_size) in its weights where they are noisy."""
        if noise is None or not isinstance(self.torso, NoisyTorso):
            out: Tensor = self.head(self.torso(obs))
        else:
            first, last = torch.split(noise, [self.torso.noise_size, self.head.noise_size], dim=1)
            out = self.head(self.torso(obs, first), last)
        return out

    def values(self, outputs: Tensor, obs: Tree) -> Tensor:
        """The action values (B, A) that outputs stand for; the lowest finite number where an action is masked out."""
        return mask_logits(self.head.values(outputs), action_mask(obs))

    def forward(self, obs: Tree, noise: Tensor | None = None) -> Tensor:
        return self.values(self.outputs(obs, noise), obs)


class EpsilonGreedy(Policy):
    """Epsilon-greedy over a Q-network; epsilon is a schedule over env steps, or fixed by :meth:`set_eps`.

    A noisy network explores by its weights too: new ones at every step.
    """

    actor: QNetwork

    def __init__(self, spaces: Spaces, q: QNetwork, epsilon: Schedule) -> None:
        super().__init__(spaces)
        self.actor = q
        assert isinstance(spaces.action, gs.Discrete)
        self._actions = int(spaces.action.n)
        self.epsilon = epsilon
        self.fixed_eps: float | None = None
        self._still: float | None = None  # epsilon, where it does not change any more
        self._shift = np.zeros(0, np.float32)  # of what is drawn, by the newest epsilons

    def set_eps(self, eps: float | None) -> None:
        """Explore with this probability, in [0, 1], whatever the schedule says; None returns to the schedule."""
        if eps is not None and not (isinstance(eps, Real) and 0 <= eps <= 1):
            raise UsageError(f"epsilon {eps!r} must be a number in [0, 1]")
        self.fixed_eps = None if eps is None else float(eps)

    def q_values(self, obs: Tree) -> Tensor:
        """Action values (B, A); the lowest finite number where an action is masked out."""
        values: Tensor = self.actor(obs)
        return values

    def log_prob(self, obs: Tree, action: Tensor) -> Tensor:
        """Under the Boltzmann distribution of the action values, at temperature 1."""
        return categorical_log_prob(self.q_values(obs), action)

    def behaviour_log_prob(self, obs: Tree, action: Tensor, env_steps: int) -> Tensor | None:
        """Epsilon included; None for a noisy network, whose weights of the moment are not known."""
        if self.actor.noise_size:
            return None
        epsilon = float(value_at(self.epsilon, env_steps)) if self.fixed_eps is None else self.fixed_eps
        values, mask = self.q_values(obs), action_mask(obs)
        allowed = self._actions if mask is None else mask.sum(1)
        random = torch.zeros_like(values[:, 0]) + epsilon / allowed
        return (random + (1 - epsilon) * (values.argmax(1) == action)).log()

    def divergence(self, other: Policy, obs: Tree) -> Tensor:
        """Of the Boltzmann distributions of the action values, at temperature 1."""
        assert isinstance(other, EpsilonGreedy)
        return categorical_kl(other.q_values(obs), self.q_values(obs))

    def act(self, obs: Tree, noise: Tensor | None = None, state: Tree = None) -> Acted:
        if noise is None:
            return Acted(self.q_values(obs).argmax(-1), None)
        greedy = self.actor(obs, noise[:, 1 + self._actions :]).argmax(-1)
        return Acted(torch.where(noise[:, 0] < 0, self.random(obs, noise), greedy), None)

    def draw(self, steps: int, envs: int, generator: torch.Generator) -> Tensor:
        """Numbers (steps, envs, 1 + A + K): uniform ones for a coin and for each action, normal ones for noisy weights."""
        drawn = torch.rand(steps, envs, 1 + self._actions, generator=generator)
        if not self.actor.noise_size:
            return drawn
        return torch.cat([drawn, torch.randn(steps, envs, self.actor.noise_size, generator=generator)], dim=2)

    def scaled(self, drawn: np.ndarray, env_steps: int, vector_step: int) -> np.ndarray:
        """The same numbers with a coin that is negative with probability epsilon."""
        epsilon = self.epsilon if self.fixed_eps is None else self.fixed_eps
        still = standing_value(epsilon, env_steps)
        if still is None or still != self._still:
            along = values_along(epsilon, env_steps, vector_step, len(drawn))
            self._still, self._shift = still, np.zeros((len(along), 1, drawn.shape[2]), np.float32)
            self._shift[:, 0, 0] = along
        noise: np.ndarray = drawn - self._shift
        return noise

    def host_act(self) -> HostAct | None:
        forward = host_forward(self.actor.layers)
        if forward is None:
            return None

        def act(obs: np.ndarray, noise: np.ndarray | None) -> np.ndarray:
            if noise is None:
                greedy: np.ndarray = forward(obs).argmax(1)
                return greedy
            explore = noise[:, 0] < 0
            some = np.count_nonzero(explore)
            if some == len(noise):
                anything: np.ndarray = noise[:, 1:].argmax(1)
                return anything
            action: np.ndarray = forward(obs).argmax(1)
            if some:
                action[explore] = noise[explore, 1:].argmax(1)
            return action

        return act

    def random(self, obs: Tree, noise: Tensor) -> Tensor:
        keys, mask = noise[:, 1 : 1 + self._actions], action_mask(obs)
        return (keys if mask is None else keys.masked_fill(~mask, -1.0)).argmax(-1)
