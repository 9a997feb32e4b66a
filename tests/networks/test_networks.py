import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

from lit_rl.errors import UsageError
from lit_rl.networks.architecture import Architecture
from lit_rl.networks.heads import QHead
from lit_rl.networks.init import orthogonal_
from lit_rl.networks.mlp import ACTIVATIONS, mlp
from lit_rl.networks.torso import Torso


def kinds(network):
    return [type(layer) for layer in network]


def test_an_mlp_has_an_activation_between_layers_and_none_after_the_last():
    network = mlp([4, 8, 8, 2], "tanh")
    assert kinds(network) == [nn.Linear, nn.Tanh, nn.Linear, nn.Tanh, nn.Linear]
    assert network(torch.zeros(3, 4)).shape == (3, 2)


def test_an_mlp_can_end_in_an_activation():
    assert kinds(mlp([4, 8, 2], "relu", output="tanh")) == [nn.Linear, nn.ReLU, nn.Linear, nn.Tanh]


def test_an_mlp_without_layers_is_the_identity():
    x = torch.randn(2, 4)
    assert mlp([4], "relu")(x) is x


def test_an_unknown_activation_is_refused_with_the_known_ones():
    with pytest.raises(UsageError, match="--activation rleu is unknown; known: relu, tanh, elu, gelu, silu"):
        mlp([1, 1, 1], "rleu")


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_every_activation_learns(name):
    network = mlp([2, 3, 1], name)
    gradients = torch.autograd.grad(network(torch.ones(1, 2)).sum(), list(network.parameters()))
    assert all(torch.isfinite(gradient).all() for gradient in gradients)


def test_an_empty_layer_is_refused():
    with pytest.raises(UsageError, match=r"at least 1, not \[4, 0, 2\]"):
        mlp([4, 0, 2], "relu")


def test_a_torso_ends_in_an_activation():
    torso = Torso(spaces.Discrete(6), Architecture([8, 3], "relu"))
    features = torso(torch.arange(6))
    assert features.shape == (6, torso.features) == (6, 3)
    assert (features >= 0).all()


def test_a_torso_without_hidden_layers_is_its_encoder():
    torso = Torso(spaces.Discrete(3), Architecture([], "relu"))
    assert torso.features == 3
    assert torch.equal(torso(torch.arange(3)), torch.eye(3))


def test_a_q_head_is_linear():
    head = QHead(2, 3)
    with torch.no_grad():
        head.linear.weight.copy_(torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]))
        head.linear.bias.zero_()
    assert head(torch.tensor([[2.0, 5.0]])).tolist() == [[2.0, 5.0, 7.0]]


def test_a_dueling_head_adds_centred_advantages_to_the_state_value():
    head = QHead(1, 3, dueling=True)
    with torch.no_grad():
        head.linear.weight.zero_()
        head.linear.bias.copy_(torch.tensor([10.0, 1.0, 2.0, 6.0]))
    # advantages 1, 2, 6 with mean 3: 10 - 2, 10 - 1, 10 + 3
    assert head(torch.zeros(1, 1)).tolist() == [[8.0, 9.0, 13.0]]


def test_orthogonal_weights_keep_lengths_times_the_gain():
    network = mlp([4, 4, 4], "tanh")
    orthogonal_(network, gain=2.0)
    for layer in (network[0], network[2]):
        torch.testing.assert_close(layer.weight @ layer.weight.T, 4 * torch.eye(4), atol=1e-5, rtol=0)
        assert not layer.bias.any()


def test_orthogonal_reaches_convolutions():
    torso = Torso(spaces.Box(0, 255, (36, 36, 1), np.uint8), Architecture([], "relu"))
    orthogonal_(torso, gain=1.0)
    rows = torso.encoder.parts[0].layers[0].weight.flatten(1)
    torch.testing.assert_close(rows @ rows.T, torch.eye(32), atol=1e-5, rtol=0)
