from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
import torch
from torch import nn

from lit_rl.envs.spaces import Spaces
from lit_rl.networks.architecture import Architecture
from lit_rl.networks.critics import ContinuousCritic, DiscreteCritic
from lit_rl.networks.ensemble import EnsembleLinear, EnsembleMLP

SPACES = Spaces(gym.spaces.Box(-1, 1, (3,), np.float32), gym.spaces.Discrete(4))


@pytest.mark.parametrize("hidden", [[], [8], [8, 5]])
def test_each_member_is_a_network_of_its_own(hidden):
    ensemble = EnsembleMLP(3, [4, *hidden, 2], "tanh")
    x = torch.randn(7, 4)
    out = ensemble(x)
    assert out.shape == (3, 7, 2)
    for k in range(3):
        y = x
        for layer in ensemble.layers:
            is_linear = isinstance(layer, EnsembleLinear)
            y = nn.functional.linear(y, layer.weight[k], layer.bias[k, 0]) if is_linear else layer(y)
        torch.testing.assert_close(out[k], y)
    assert not torch.allclose(out[0], out[1])


def test_members_begin_as_linear_layers_do():
    weight = EnsembleLinear(5, 100, 50).weight.detach()
    assert 0.095 < weight.abs().max() <= 0.1 and weight.std().item() == pytest.approx(0.1 / 3**0.5, rel=0.05)


def test_values_of_a_discrete_action_are_those_of_all_actions():
    critic = DiscreteCritic(2, SPACES, 4, Architecture([8], "relu"))
    obs, action = torch.randn(6, 3), torch.tensor([0, 1, 2, 3, 0, 1])
    every = critic.all_values(obs)
    assert every.shape == (2, 6, 4)
    assert torch.equal(critic(obs, action), every[:, torch.arange(6), action])


def test_a_continuous_critic_sees_the_action():
    critic = ContinuousCritic(2, SPACES, 2, Architecture([8], "relu"))
    obs = torch.randn(6, 3)
    one, two = critic(obs, torch.zeros(6, 2)), critic(obs, torch.ones(6, 2))
    assert one.shape == (2, 6) and not torch.allclose(one, two)
