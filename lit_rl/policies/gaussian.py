"""Normal distributions over continuous actions."""

from __future__ import annotations

import math

import numpy as np
import torch
from gymnasium import spaces as gs
from torch import Tensor, nn

from lit_rl.functional import distributions as d
from lit_rl.functional.tree import Tree
from lit_rl.policies.bounds import BoxUnits


class Gaussian(nn.Module):
    """Independent normals (B, A) whose spread does not depend on the observation (Schulman et al. 2015, arXiv:1502.05477).

    Its parameters are the means. Actions are unbounded here, in units in which finite bounds stand at -1 and 1; what the
    environment gets is clipped to the bounds.
    """

    def __init__(self, space: gs.Box) -> None:
        super().__init__()
        self.units = BoxUnits(space)
        self.outputs = self.units.size
        self.log_std = nn.Parameter(torch.zeros(self.outputs))

    def forward(self, output: Tensor, obs: Tree) -> Tensor:
        """Means (B, A) from a network's (B, outputs)."""
        return output

    def mode(self, mean: Tensor) -> Tensor:
        """The likeliest action."""
        return mean

    def sample(self, mean: Tensor, noise: Tensor) -> Tensor:
        """An action; the noise has its spread already."""
        return mean + noise

    def random(self, noise: Tensor, obs: Tree) -> Tensor:
        """An action around the middle of the box."""
        return noise

    def log_prob(self, mean: Tensor, action: Tensor) -> Tensor:
        """Log-density (B,) of actions."""
        return d.gaussian_log_prob(mean, self.log_std, action)

    def entropy(self, mean: Tensor) -> Tensor:
        """Entropy (B,) in nats."""
        return d.gaussian_entropy(self.log_std).expand(len(mean))

    def kl(self, mean: Tensor, other: nn.Module, other_mean: Tensor) -> Tensor:
        """KL(other || this) in nats, (B,)."""
        assert isinstance(other, Gaussian)
        return d.gaussian_kl(other_mean, other.log_std, mean, self.log_std)

    def draw(self, steps: int, envs: int, generator: torch.Generator) -> Tensor:
        """Standard normal numbers (steps, envs, A)."""
        return torch.randn(steps, envs, self.outputs, generator=generator)

    def scaled(self, drawn: np.ndarray) -> np.ndarray:
        """Normal noise (steps, envs, A) of the spread of this moment."""
        spread: np.ndarray = self.log_std.detach().float().exp().cpu().numpy()
        noise: np.ndarray = drawn * spread
        return noise

    def host_sample(self, output: np.ndarray, noise: np.ndarray | None) -> np.ndarray:
        """:meth:`sample`, or without noise :meth:`mode`, in numpy from a network's output."""
        if noise is not None:
            output += noise
        return output

    def host_log_prob(self, output: np.ndarray, action: np.ndarray) -> np.ndarray:
        """:meth:`log_prob` in numpy from a network's output."""
        log_std = self.log_std.detach().numpy()
        scaled = (action - output) * np.exp(-log_std)
        constant = float(log_std.sum()) + 0.5 * math.log(2 * math.pi) * self.outputs
        log_prob: np.ndarray = np.float32(-0.5) * np.einsum("ij,ij->i", scaled, scaled) - np.float32(constant)
        return log_prob

    @property
    def host(self) -> bool:
        """Whether :meth:`host_sample` does what :meth:`sample` does."""
        return True

    def to_env(self, action: np.ndarray) -> np.ndarray:
        """Actions as the environment takes them."""
        return self.units.to_env(action)
