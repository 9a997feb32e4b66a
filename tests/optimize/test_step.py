from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from lit_rl.algorithms.base import Loss
from lit_rl.errors import NumericsError
from lit_rl.optimize import GradientStep


class Two(nn.Module):
    """Two groups that one loss reads."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(3, 2), nn.Linear(2, 1)

    def groups(self):
        return {"a": list(self.a.parameters()), "b": list(self.b.parameters())}

    def loss(self, x):
        value = self.b(torch.tanh(self.a(x))).square().mean()
        return Loss(value, {"loss": value, "size": x.norm()}, (value, {"kept": 1}, x * value))


def values(module):
    return {name: p.detach().clone() for name, p in module.named_parameters()}


def moved(before, module):
    return {name for name, p in module.named_parameters() if not torch.equal(before[name], p)}


def test_only_the_named_group_moves():
    net = Two()
    optimize = GradientStep(net.groups(), settings={"lr": 0.1})
    for group in ("a", "b", "a"):
        before = values(net)
        optimize(group, net.loss, torch.randn(8, 3))
        assert moved(before, net) == {f"{group}.weight", f"{group}.bias"}
        assert all(p.grad is None for p in net.parameters())


def test_metrics_and_aux_come_back_without_gradients():
    net = Two()
    metrics, aux = GradientStep(net.groups())("a", net.loss, torch.ones(2, 3))
    assert set(metrics) == {"loss", "size"} and not any(x.requires_grad for x in metrics.values())
    assert not aux[0].requires_grad and aux[1] == {"kept": 1} and not aux[2].requires_grad


def test_a_step_is_adams():
    net = Two()
    twin = copy.deepcopy(net)
    optimize = GradientStep(net.groups(), settings={"lr": 0.01, "eps": 1e-5})
    adam = torch.optim.Adam(twin.parameters(), lr=0.01, eps=1e-5)
    for _ in range(5):
        x = torch.randn(8, 3)
        optimize("a", net.loss, x)
        twin.loss(x).value.backward()
        for p in twin.b.parameters():
            p.grad = None  # Adam passes over what has no gradient
        adam.step()
        adam.zero_grad()
    for p, q in zip(net.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(p, q)


def quadratic(weights, slope):
    """One group of three weights and a loss whose gradient is ``slope``."""
    parameters = [nn.Parameter(torch.zeros(1)), nn.Parameter(torch.zeros(1, 2))]

    def loss(x):
        return Loss((torch.cat([p.reshape(-1) for p in parameters]) * x).sum(), {})

    return parameters, loss


@pytest.mark.parametrize(
    "clip, algorithm, expected",
    [
        (None, "norm", [3.0, -4.0, 12.0]),
        (26.0, "norm", [3.0, -4.0, 12.0]),  # the norm is 13
        (6.5, "norm", [1.5, -2.0, 6.0]),
        (3.5, "value", [3.0, -3.5, 3.5]),
    ],
)
def test_gradients_are_clipped_by_norm_or_value(clip, algorithm, expected, monkeypatch):
    parameters, loss = quadratic(3, None)
    optimize = GradientStep({"w": parameters}, clip=clip, clip_algorithm=algorithm)
    stepped = []
    monkeypatch.setattr(optimize, "_step", lambda name, group, gradient: stepped.append(gradient.tolist()))
    optimize("w", loss, torch.tensor([3.0, -4.0, 12.0]))
    assert stepped[0] == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("bad, word", [(float("nan"), "NaN"), (float("inf"), "infinite")])
@pytest.mark.parametrize("clip", [None, 1.0])
@pytest.mark.parametrize("algorithm", ["norm", "value"])
def test_a_gradient_that_is_not_finite_is_refused_and_moves_nothing(bad, word, clip, algorithm):
    parameters, loss = quadratic(3, None)
    optimize = GradientStep({"w": parameters}, clip=clip, clip_algorithm=algorithm)
    with pytest.raises(NumericsError, match=f"gradient of the w loss is {word}"):
        optimize("w", loss, torch.tensor([1.0, bad, 1.0]))
    assert all(not p.detach().any() for p in parameters)


def test_a_learning_rate_is_its_groups_own():
    net = Two()
    optimize = GradientStep(net.groups(), settings={"lr": 0.1})
    optimize.set_lr("a", 0.0)
    before = values(net)
    optimize("a", net.loss, torch.randn(8, 3))
    assert not moved(before, net)
    optimize("b", net.loss, torch.randn(8, 3))
    assert moved(before, net) == {"b.weight", "b.bias"}


def test_steps_work_where_gradients_are_switched_off():
    net = Two()
    before = values(net)
    with torch.no_grad():
        GradientStep(net.groups(), settings={"lr": 0.1})("a", net.loss, torch.randn(8, 3))
    assert moved(before, net)


def test_a_saved_optimizer_goes_on_with_the_same_steps(tmp_path):
    net = Two()
    optimize = GradientStep(net.groups(), settings={"lr": 0.1})
    inputs = torch.randn(6, 8, 3)
    for x in inputs[:3]:
        optimize("a", net.loss, x)
    optimize("b", net.loss, inputs[0])
    torch.save({"net": net.state_dict(), "opt": optimize.optimizer.state_dict()}, tmp_path / "x")
    other = Two()
    again = GradientStep(other.groups(), settings={"lr": 0.5})
    saved = torch.load(tmp_path / "x", weights_only=True)
    other.load_state_dict(saved["net"])
    again.optimizer.load_state_dict(saved["opt"])
    for x in inputs[3:]:
        for group in ("a", "b"):
            optimize(group, net.loss, x)
            again(group, other.loss, x)
    assert not moved(values(net), other)
    assert all(g.attached for g in again.groups.values())
