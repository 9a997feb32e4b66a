"""A normal distribution squashed by tanh and scaled to the bounds of a Box."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from lit_rl.envs.spaces import Spaces
from lit_rl.functional.distributions import gaussian_kl, gaussian_sample, squashed_gaussian_log_prob
from lit_rl.functional.tree import Tree
from lit_rl.networks.architecture import Architecture
from lit_rl.networks.critics import ContinuousCritic
from lit_rl.networks.host import host_forward
from lit_rl.networks.torso import Torso
from lit_rl.policies.base import Acted, HostAct, Policy
from lit_rl.policies.bounds import bounded_units, uniform
from lit_rl.policies.soft import SoftPolicy

LOG_STD = (-20.0, 2.0)  # the range of the paper's code
INSIDE = 1 - 1e-6  # the largest action with a density


class GaussianActor(nn.Module):
    """Observations -> mean and log standard deviation, each (B, A), that depend on the state."""

    def __init__(self, spaces: Spaces, actions: int, architecture: Architecture) -> None:
        super().__init__()
        self.torso = Torso(spaces.observation, architecture)
        self.head = nn.Linear(self.torso.features, 2 * actions)

    @property
    def layers(self) -> list[nn.Module] | None:
        """The layers one after the other, where that is all there is; else None."""
        torso = self.torso.layers
        return None if torso is None else [*torso, self.head]

    def forward(self, obs: Tree) -> tuple[Tensor, Tensor]:
        mean, log_std = self.head(self.torso(obs)).chunk(2, dim=1)
        return mean, log_std.clamp(*LOG_STD)


class SquashedGaussian(SoftPolicy):
    """Actions tanh(u), u normal; the greedy one is tanh(mean)."""

    actor: GaussianActor

    def __init__(self, spaces: Spaces, architecture: Architecture, critics: int, alpha: float) -> None:
        units = bounded_units(spaces.action, "SAC")
        actor = GaussianActor(spaces, units.size, architecture)
        critic = ContinuousCritic(critics, spaces, units.size, architecture)
        super().__init__(spaces, actor, critic, alpha)
        self._units, self.noise_size = units, units.size

    def act(self, obs: Tree, noise: Tensor | None = None, state: Tree = None) -> Acted:
        mean, log_std = self.actor(obs)
        return Acted(torch.tanh(mean if noise is None else gaussian_sample(mean, log_std, noise)), None)

    def sample(self, obs: Tree, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Reparameterised actions (B, A) and their log-densities (B,), in units of (-1, 1)."""
        mean, log_std = self.actor(obs)
        u = gaussian_sample(mean, log_std, noise)
        return torch.tanh(u), squashed_gaussian_log_prob(mean, log_std, u)

    def log_prob(self, obs: Tree, action: Tensor) -> Tensor:
        """Actions on a bound, where tanh never arrives, count as just inside."""
        mean, log_std = self.actor(obs)
        return squashed_gaussian_log_prob(mean, log_std, torch.atanh(action.clamp(-INSIDE, INSIDE)))

    def divergence(self, other: Policy, obs: Tree) -> Tensor:
        """That of the normal distributions before tanh, which is the same."""
        assert isinstance(other, SquashedGaussian)
        return gaussian_kl(*other.actor(obs), *self.actor(obs))

    def soft_value(self, critic: nn.Module, obs: Tree, noise: Tensor, alpha: Tensor) -> tuple[Tensor, Tensor]:
        action_BA, log_prob_B = self.sample(obs, noise)
        q_B = critic(obs, action_BA).amin(0)
        return q_B - alpha * log_prob_B, log_prob_B

    def target_entropy(self, obs: Tree) -> float:
        """-A (Haarnoja et al. 2018, appendix D)."""
        return -float(self.noise_size)

    def draw(self, steps: int, envs: int, generator: torch.Generator) -> Tensor:
        """Standard normal numbers (steps, envs, A)."""
        return torch.randn(steps, envs, self.noise_size, generator=generator)

    def host_act(self) -> HostAct | None:
        forward = host_forward(self.actor.layers)
        if forward is None:
            return None
        size = self.noise_size

        def act(obs: np.ndarray, noise: np.ndarray | None) -> np.ndarray:
            out = forward(obs)
            if noise is not None:
                out[:, :size] += np.exp(np.clip(out[:, size:], *LOG_STD)) * noise
            action: np.ndarray = np.tanh(out[:, :size])
            return action

        return act

    def random(self, obs: Tree, noise: Tensor) -> Tensor:
        return uniform(noise)

    def env_action(self, action: np.ndarray) -> np.ndarray:
        return self._units.to_env(action)
