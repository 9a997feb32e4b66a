"""Layers that explore by noise in their weights: Fortunato et al. 2018 (arXiv:1706.10295), factorised."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import gymnasium as gym
import torch
from torch import Tensor, nn

from lit_rl.functional.tree import Tree
from lit_rl.networks.architecture import Architecture
from lit_rl.networks.mlp import make_activation


class NoisyLinear(nn.Module):
    """(mu_w + sigma_w * f(e_out) f(e_in)^T) x + mu_b + sigma_b * f(e_out), f(e) = sign(e) sqrt|e| (eq. 9-11).

    Noise comes in, standard normal, (B, in + out) or (1, in + out) for all rows; without it the mean weights count.
    """

    def __init__(self, features: int, units: int, sigma0: float) -> None:
        super().__init__()
        bound = 1 / math.sqrt(features)
        self.features, self.noise_size = features, features + units
        self.weight = nn.Parameter(torch.empty(units, features).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(units).uniform_(-bound, bound))
        self.weight_sigma = nn.Parameter(torch.full((units, features), sigma0 * bound))
        self.bias_sigma = nn.Parameter(torch.full((units,), sigma0 * bound))

    def forward(self, x: Tensor, noise: Tensor | None = None) -> Tensor:
        mean = nn.functional.linear(x, self.weight, self.bias)
        if noise is None:
            return mean
        scaled = noise.sign() * noise.abs().sqrt()
        into, out = scaled[:, : self.features], scaled[:, self.features :]
        return mean + out * nn.functional.linear(x * into, self.weight_sigma, self.bias_sigma)


class NoisyTorso(nn.Module):
    """A torso whose hidden layers are noisy: Tree of [B, ...] -> (B, features)."""

    layers = None  # it is more than its layers one after the other

    def __init__(self, space: gym.Space[Any], architecture: Architecture, sigma0: float) -> None:
        super().__init__()
        self.encoder = architecture.encoder(space)
        sizes = [self.encoder.features, *architecture.hidden_sizes]
        self.features = sizes[-1]
        self.hidden = nn.ModuleList(NoisyLinear(*size, sigma0) for size in pairwise(sizes))
        self.activation = make_activation(architecture.activation)
        self._noise_sizes = [sum(size) for size in pairwise(sizes)]
        self.noise_size = sum(self._noise_sizes)

    def forward(self, obs: Tree, noise: Tensor | None = None) -> Tensor:
        x: Tensor = self.encoder(obs)
        parts = [None] * len(self.hidden) if noise is None else torch.split(noise, self._noise_sizes, dim=1)
        for layer, part in zip(self.hidden, parts, strict=True):
            x = self.activation(layer(x, part))
        return x
