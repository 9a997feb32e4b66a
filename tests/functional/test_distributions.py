import math

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from lit_rl.functional import distributions as D

# probabilities 1/2, 1/4, 1/4, up to a constant that softmax takes out
LOGITS = torch.tensor([[0.5, 0.25, 0.25]]).log() + 3.0


def test_categorical_log_prob_and_entropy():
    assert D.categorical_log_prob(LOGITS.expand(3, 3), torch.arange(3)).exp().tolist() == pytest.approx(
        [0.5, 0.25, 0.25]
    )
    # 1/2 ln 2 + 2 * 1/4 ln 4 = 1.5 ln 2
    assert D.categorical_entropy(LOGITS).item() == pytest.approx(1.5 * math.log(2))
    assert D.categorical_mode(LOGITS).item() == 0


def test_categorical_samples_come_with_their_probabilities():
    noise = torch.rand(20_000, 3, generator=torch.Generator().manual_seed(0))
    shares = D.categorical_sample(LOGITS.expand(20_000, 3), noise).bincount(minlength=3) / 20_000
    assert shares.tolist() == pytest.approx([0.5, 0.25, 0.25], abs=0.015)  # four standard deviations


def test_forbidden_actions_are_never_taken_and_cost_no_nan():
    logits = torch.tensor([[50.0, 0.0, 0.0]], requires_grad=True)
    masked = D.mask_logits(logits, torch.tensor([[0, 1, 1]], dtype=torch.uint8))
    assert D.categorical_mode(masked).item() == 1
    entropy = D.categorical_entropy(masked)
    assert entropy.item() == pytest.approx(math.log(2))  # two equal actions are left
    assert D.categorical_log_prob(masked, torch.tensor([2])).item() == pytest.approx(-math.log(2))
    (gradient,) = torch.autograd.grad(entropy.sum(), logits)
    assert torch.isfinite(gradient).all()
    for noise in (torch.zeros(1, 3), torch.tensor([[1 - 2**-24, 0.0, 0.0]])):  # the ends of [0, 1)
        assert D.categorical_sample(masked, noise).item() != 0


def test_no_mask_changes_nothing():
    assert D.mask_logits(LOGITS, None) is LOGITS
    assert torch.equal(D.mask_logits(LOGITS, torch.ones(1, 3, dtype=torch.bool)), LOGITS)


def test_gaussian_log_prob_entropy_and_sample():
    # std e^0 and 2, one and two stds away: -1/2 - ln(2 pi)/2, and -2 - ln 2 - ln(2 pi)/2
    mean, log_std = torch.tensor([[1.0, 0.0]]), torch.tensor([0.0, math.log(2)])
    action = D.gaussian_sample(mean, log_std, torch.tensor([[1.0, -2.0]]))
    assert action.tolist() == [[2.0, -4.0]]
    expected = -0.5 - 2 - math.log(2) - math.log(2 * math.pi)
    assert D.gaussian_log_prob(mean, log_std, action).item() == pytest.approx(expected)
    # each: log std + (1 + ln(2 pi)) / 2
    assert D.gaussian_entropy(log_std).item() == pytest.approx(math.log(2) + 1 + math.log(2 * math.pi))


def test_squashed_gaussian_is_the_density_of_the_squashed_action():
    # standard normal at u = 0.5: log N = -0.125 - ln(2 pi)/2; the slope of tanh there is 1 - tanh(0.5)^2
    u = torch.tensor([[0.5]])
    expected = -0.125 - 0.5 * math.log(2 * math.pi) - math.log(1 - math.tanh(0.5) ** 2)
    zero = torch.zeros(1, 1)
    assert D.squashed_gaussian_log_prob(zero, zero, u).item() == pytest.approx(expected)


@pytest.mark.parametrize("u", [30.0, -30.0])
def test_squashed_gaussian_is_exact_where_tanh_has_rounded_to_1(u):
    # 1 - tanh(30)^2 = 4 e^-60 to 26 digits, so its log is ln 4 - 60; the mean is at u, so log N = -ln(2 pi)/2
    at = torch.tensor([[u]], requires_grad=True)
    log_prob = D.squashed_gaussian_log_prob(at.detach(), torch.zeros(1, 1), at)
    assert log_prob.item() == pytest.approx(-0.5 * math.log(2 * math.pi) - math.log(4) + 60, rel=1e-6)
    (gradient,) = torch.autograd.grad(log_prob.sum(), at)
    assert gradient.item() == pytest.approx(math.copysign(2.0, u))  # the log of the slope falls by 2 per unit


def test_distributions_are_captured_once_and_hold_for_other_values():
    def everything(logits, mask, mean, log_std, noise):
        masked = D.mask_logits(logits, mask)
        action = D.categorical_sample(masked, noise)
        u = D.gaussian_sample(mean, log_std, noise)
        discrete = D.categorical_log_prob(masked, action) + D.categorical_entropy(masked)
        return discrete + D.squashed_gaussian_log_prob(mean, log_std, u) + D.gaussian_entropy(log_std)

    def inputs(seed):
        draw = torch.Generator().manual_seed(seed)
        mask = torch.tensor([[1, 1, 0], [1, 0, 1]], dtype=torch.uint8).roll(seed, 1)
        return [torch.randn(2, 3, generator=draw), mask, *(torch.rand(2, 3, generator=draw) for _ in range(3))]

    graph = make_fx(everything)(*inputs(0))
    assert torch.equal(graph(*inputs(1)), everything(*inputs(1)))


def test_kl_divergences_by_hand():
    # 1/2 ln(1/2 / 1/3) + 2 * 1/4 ln(1/4 / 1/3)
    by_hand = 0.5 * math.log(1.5) + 0.5 * math.log(0.75)
    assert D.categorical_kl(LOGITS, torch.zeros(1, 3)).item() == pytest.approx(by_hand, rel=1e-5)
    # N(1, 1) from N(0, 2^2): ln 2 + (1 + 1) / 8 - 1/2, and N(0, 2^2) from N(0, 1): -ln 2 + 4/2 - 1/2
    mean, log_std = torch.tensor([[1.0, 0.0]]), torch.tensor([0.0, math.log(2)])
    found = D.gaussian_kl(mean, log_std, torch.zeros(1, 2), torch.tensor([math.log(2), 0.0]))
    assert found.item() == pytest.approx(math.log(2) + 0.25 - 0.5 - math.log(2) + 1.5)
    assert D.gaussian_kl(mean, log_std, mean, log_std).item() == 0


def test_forbidden_actions_do_not_count_in_a_kl_divergence():
    mask = torch.tensor([[1, 1, 0]])
    one, other = D.mask_logits(torch.tensor([[0.0, 0.0, 9.0]]), mask), D.mask_logits(LOGITS, mask)
    # 1/2 ln(1/2 / 2/3) + 1/2 ln(1/2 / 1/3)
    assert D.categorical_kl(one, other).item() == pytest.approx(0.5 * math.log(0.75) + 0.5 * math.log(1.5), rel=1e-5)
