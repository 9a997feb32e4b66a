"""Importance sampling, against values worked out by hand."""

from __future__ import annotations

import math

import pytest
import torch

from lit_rl.functional.off_policy import importance_sampling

EPISODE, T, REWARD = torch.tensor([0, 0, 1]), torch.tensor([0, 1, 0]), torch.tensor([1.0, 2.0, 3.0])


def estimate(*log_ratio, gamma=0.5):
    return importance_sampling(EPISODE, T, torch.tensor(log_ratio, dtype=torch.float64), REWARD, gamma)


def test_of_the_same_policy_it_is_the_mean_discounted_return():
    found = estimate(0.0, 0.0, 0.0)  # ((1 + 0.5 * 2) + 3) / 2
    assert found == pytest.approx((2.5, 2.5, 2.0))


def test_ratios_multiply_along_an_episode_and_those_that_ended_keep_their_last():
    found = estimate(math.log(2), math.log(3), math.log(0.5))
    plain = (2 * 1 + 0.5 * 6 * 2 + 0.5 * 3) / 2
    weighted = (2 / 1.25 * 1 + 0.5 * 6 / 3.25 * 2 + 0.5 / 1.25 * 3) / 2  # mean ratios: (2 + 0.5) / 2, (6 + 0.5) / 2
    assert found == pytest.approx((plain, weighted, 6.5**2 / (36 + 0.25)))


def test_an_action_that_the_policy_never_takes_ends_its_episodes_weight():
    found = estimate(-math.inf, 0.0, 0.0)
    assert found == pytest.approx((1.5, 3.0, 1.0))
    assert estimate(-math.inf, 0.0, -math.inf) == pytest.approx((0.0, 0.0, 0.0))


def test_ratios_beyond_any_number_leave_the_weighted_estimate_finite():
    found = estimate(800.0, 800.0, -900.0)
    assert found.weighted == pytest.approx((2 * 1 + 0.5 * 2 * 2) / 2)
    assert found.effective_sample_size == pytest.approx(1.0)
