from __future__ import annotations

import copy

import torch
from torch import nn

from lit_rl.optimize import FlatGroup


def make_net():
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2, bias=False))


def test_parameters_keep_their_values_and_follow_the_flat_one():
    net = make_net()
    before = copy.deepcopy(net.state_dict())
    group = FlatGroup(net.parameters())
    assert group.attached and group.flat.numel() == 12 + 4 + 8
    assert all(torch.equal(before[name], x) for name, x in net.state_dict().items())
    with torch.no_grad():
        group.flat.add_(1)
    assert all(torch.equal(before[name] + 1, x) for name, x in net.state_dict().items())


def test_loading_weights_keeps_the_views():
    net, other = make_net(), make_net()
    group = FlatGroup(net.parameters())
    net.load_state_dict(other.state_dict())
    assert group.attached
    assert torch.equal(group.flat, torch.cat([p.reshape(-1) for p in other.parameters()]))


def test_attach_mends_views_after_the_module_was_moved():
    net = make_net()
    group = FlatGroup(net.parameters())
    flat = group.flat
    net.double()
    values = torch.cat([p.detach().reshape(-1) for p in net.parameters()])
    assert not group.attached
    group.attach()
    assert group.attached and group.flat is flat  # the optimizer's parameter for good
    assert {p.dtype for p in net.parameters()} == {torch.float64} and torch.equal(flat.detach(), values)


def test_attach_is_free_of_effect_where_nothing_moved():
    net = make_net()
    group = FlatGroup(net.parameters())
    before, pointers = group.flat.detach().clone(), [p.data_ptr() for p in net.parameters()]
    group.attach()
    assert torch.equal(group.flat, before)
    assert group.attached and len(pointers) == 3


def test_parameters_are_the_same_objects_for_good():
    net = make_net()
    objects = list(net.parameters())
    FlatGroup(net.parameters())
    assert all(a is b for a, b in zip(objects, net.parameters(), strict=True))
    net(torch.randn(5, 3)).sum().backward()
    assert all(p.grad is not None for p in objects)
