from __future__ import annotations

import copy

import torch
from torch import nn

from lit_rl.algorithms.base import Loss
from lit_rl.optimize import GradientStep


def loss_of(net, x):
    value = net(x).square().mean()
    return Loss(value, {"loss": value})


def test_a_step_is_torchs_rmsprop():
    net = nn.Sequential(nn.Linear(3, 2), nn.Tanh(), nn.Linear(2, 1))
    twin = copy.deepcopy(net)
    settings = {"alpha": 0.9, "eps": 1e-3}
    optimize = GradientStep({"all": list(net.parameters())}, "rmsprop", settings)
    optimize.set_lr("all", 0.01)
    expected = torch.optim.RMSprop(twin.parameters(), lr=0.01, **settings)
    for _ in range(5):
        x = torch.randn(8, 3)
        optimize("all", loss_of, net, x)
        expected.zero_grad()
        loss_of(twin, x).value.backward()
        expected.step()
        for mine, theirs in zip(net.parameters(), twin.parameters(), strict=True):
            torch.testing.assert_close(mine, theirs)


def test_a_saved_optimizer_goes_on_with_the_same_steps():
    net = nn.Linear(3, 1)
    optimize = GradientStep({"all": list(net.parameters())}, "rmsprop")
    optimize("all", loss_of, net, torch.ones(2, 3))
    twin = copy.deepcopy(net)
    again = GradientStep({"all": list(twin.parameters())}, "rmsprop")
    again.optimizer.load_state_dict(copy.deepcopy(optimize.optimizer.state_dict()))
    for step, module in ((optimize, net), (again, twin)):
        step("all", loss_of, module, torch.ones(2, 3) / 2)
    assert torch.equal(net.weight, twin.weight)
