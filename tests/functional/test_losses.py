import math

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from lit_rl.functional.losses import approx_kl, clipped_surrogate, clipped_value_error, explained_variance, huber


def test_huber_is_quadratic_then_linear():
    # 0.5 * 0.5^2 = 0.125; at 1: 0.5; beyond: 1 * (3 - 0.5) = 2.5, either sign
    error = torch.tensor([0.5, 1.0, 3.0, -3.0], requires_grad=True)
    loss = huber(error)
    assert loss.tolist() == pytest.approx([0.125, 0.5, 2.5, 2.5])
    # delta 2: 0.5 * 1 = 0.5 at 1; 2 * (3 - 1) = 4 at 3
    assert huber(error.detach(), 2.0).tolist() == pytest.approx([0.125, 0.5, 4.0, 4.0])
    loss.sum().backward()
    assert error.grad.tolist() == pytest.approx([0.5, 1.0, 1.0, -1.0])


def test_clipped_surrogate_takes_the_pessimistic_side():
    # clip 0.2, ratios 1.5, 1.5, 0.5, 0.5, 1.1 with advantages 2, -2, 2, -2, 2
    # -min(3, 2.4) = -2.4; -min(-3, -2.4) = 3; -min(1, 1.6) = -1; -min(-1, -1.6) = 1.6; -2.2
    log_prob = torch.tensor([1.5, 1.5, 0.5, 0.5, 1.1]).log().requires_grad_()
    advantage = torch.tensor([2.0, -2.0, 2.0, -2.0, 2.0])
    loss = clipped_surrogate(log_prob, torch.zeros(5), advantage, torch.tensor(0.2))
    assert loss.tolist() == pytest.approx([-2.4, 3.0, -1.0, 1.6, -2.2])
    loss.sum().backward()
    # d(-r A)/d log_prob = -r A where not clipped, 0 where the clip holds
    assert log_prob.grad.tolist() == pytest.approx([0.0, 3.0, -1.0, 0.0, -2.2])


def test_clipped_value_error_is_the_larger_one():
    # clip 0.5 around 1. value 3, target 4: (3 - 4)^2 = 1, kept at 1.5: 6.25. value 3, target 1: 4, kept: 0.25
    # value 1.2 is near enough: (1.2 - 2)^2 = 0.64 both ways
    value, target = torch.tensor([3.0, 3.0, 1.2]), torch.tensor([4.0, 1.0, 2.0])
    assert clipped_value_error(value, torch.ones(3), target, torch.tensor(0.5)).tolist() == pytest.approx(
        [6.25, 4.0, 0.64]
    )


def test_approx_kl_is_zero_for_equal_policies_and_never_negative():
    # ratio 2: 1 - ln 2; ratio 0.5: -0.5 + ln 2
    log_ratio = torch.tensor([0.0, math.log(2), -math.log(2)])
    assert approx_kl(log_ratio, torch.zeros(3)).tolist() == pytest.approx([0.0, 1 - math.log(2), math.log(2) - 0.5])


def test_explained_variance():
    target = torch.tensor([1.0, 2.0, 3.0])
    assert explained_variance(target, target).item() == 1.0
    assert explained_variance(torch.full((3,), 7.0), target).item() == pytest.approx(0.0, abs=1e-6)
    # residuals 0, 0, 1: variance 2/9 against 2/3: 1 - 1/3
    assert explained_variance(torch.tensor([1.0, 2.0, 2.0]), target).item() == pytest.approx(2 / 3)
    # the wrong way round: residuals -2, 0, 2: variance 8/3 against 2/3: 1 - 4
    assert explained_variance(target.flip(0), target).item() == pytest.approx(-3.0)
    assert explained_variance(target, torch.ones(3)).item() == 0.0  # nothing to explain, and no NaN


def test_losses_are_captured_once_and_hold_for_other_values():
    def loss(log_prob, old_log_prob, advantage, clip):
        surrogate = clipped_surrogate(log_prob, old_log_prob, advantage, clip)
        value_error = clipped_value_error(log_prob, old_log_prob, advantage, clip)
        total = (surrogate + huber(advantage) + value_error + approx_kl(log_prob, old_log_prob)).mean()
        return total + explained_variance(log_prob, advantage)

    generator = torch.Generator().manual_seed(0)
    first, second = ([torch.randn(6, generator=generator) for _ in range(3)] for _ in range(2))
    graph = make_fx(loss)(*first, torch.tensor(0.2))
    assert torch.equal(graph(*second, torch.tensor(0.4)), loss(*second, torch.tensor(0.4)))
