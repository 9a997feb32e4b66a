from __future__ import annotations

import gymnasium as gym
import numpy as np
import torch

from lit_rl.networks.architecture import Architecture
from lit_rl.networks.noisy import NoisyLinear, NoisyTorso


def test_a_noisy_layer_by_hand():
    layer = NoisyLinear(2, 1, sigma0=0.5)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[1.0, 2.0]]))
        layer.bias.fill_(0.5)
        layer.weight_sigma.copy_(torch.tensor([[0.1, 0.2]]))
        layer.bias_sigma.fill_(0.3)
    x = torch.tensor([[1.0, 1.0]])
    assert layer(x).item() == 3.5
    noise = torch.tensor([[4.0, -9.0, 16.0]])  # f: 2, -3 into; 4 out
    # weights 1 + 0.1 * 4 * 2 and 2 + 0.2 * 4 * -3, bias 0.5 + 0.3 * 4
    torch.testing.assert_close(layer(x, noise), torch.tensor([[1.8 - 0.4 + 1.7]]))


def test_noise_of_each_row_is_its_own_and_one_row_serves_all():
    torso = NoisyTorso(gym.spaces.Box(-1, 1, (3,), np.float32), Architecture([8, 4], "relu"), 0.5)
    x, noise = torch.randn(5, 3), torch.randn(5, torso.noise_size)
    together = torso(x, noise)
    for i in range(5):
        torch.testing.assert_close(together[i : i + 1], torso(x[i : i + 1], noise[i : i + 1]))
    torch.testing.assert_close(torso(x, noise[:1]), torso(x, noise[:1].expand(5, -1)))
    assert torso.noise_size == (3 + 8) + (8 + 4) and torso.features == 4


def test_noise_begins_at_sigma0_over_the_root_of_the_width():
    layer = NoisyLinear(16, 3, sigma0=0.5)
    assert (layer.weight_sigma == 0.125).all() and (layer.bias_sigma == 0.125).all()
    assert layer.weight.abs().max() <= 0.25
