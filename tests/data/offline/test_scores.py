"""What an evaluation on held-out episodes says, against values worked out by hand."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
import torch

from lit_rl.data.offline.scores import HeldOut, HeldOutScores
from lit_rl.data.transitions import Transitions
from lit_rl.errors import NumericsError


def held_out(number, action, reward=None, log_prob=None):
    count = len(action)
    none = torch.zeros(count)
    batch = Transitions(none, torch.as_tensor(action), none, none, none, none)
    rewards = torch.ones(count, dtype=torch.float64) if reward is None else torch.tensor(reward, dtype=torch.float64)
    known = None if log_prob is None else torch.tensor(log_prob, dtype=torch.float64)
    return HeldOut(number, batch, rewards, known)


def test_f1_is_macro_and_of_all_episodes_at_once_and_accuracy_micro():
    scores = HeldOutScores(gym.spaces.Discrete(3, start=5), 0.9)
    scores.update(held_out(0, [0, 0, 0, 1]), torch.tensor([0, 0, 1, 1]), torch.tensor([1.0, 1.0, 2.0, 0.0]), None)
    scores.update(held_out(1, [2]), torch.tensor([0]), torch.tensor([6.0]), None)
    # class 0: tp 2, fp 1, fn 1: 4/6; class 1: tp 1, fp 1, fn 0: 2/3; class 2: 0
    expected = {"f1": (4 / 6 + 2 / 3) / 3, "accuracy": 3 / 5, "loss": 10 / 5}
    assert scores.compute() == pytest.approx(expected)
    scores.reset()
    scores.update(held_out(0, [1]), torch.tensor([1]), None, None)
    assert scores.compute() == pytest.approx({"f1": 1.0, "accuracy": 1.0})


def test_each_part_of_an_action_has_its_own_f1():
    scores = HeldOutScores(gym.spaces.MultiDiscrete([2, 3]), 0.9)
    scores.update(held_out(0, [[0, 2], [1, 2]]), torch.tensor([[0, 2], [1, 1]]), None, None)
    of_second = (0 + 2 / 3) / 2  # class 1: one false positive; class 2: tp 1, fn 1
    expected = {"f1": (1 + of_second) / 2, "f1_0": 1.0, "f1_1": of_second, "accuracy": 0.75}
    assert scores.compute() == pytest.approx(expected)


def test_continuous_actions_have_a_mean_squared_error_over_all_steps():
    scores = HeldOutScores(gym.spaces.Box(-1, 1, (2,), np.float32), 0.9)
    scores.update(held_out(0, [[0.0, 0.0]]), torch.tensor([[1.0, 0.0]]), torch.tensor([4.0]), None)
    scores.update(held_out(1, [[0.0, 0.0]] * 3), torch.zeros(3, 2), torch.zeros(3), None)
    assert scores.compute() == pytest.approx({"mse": 0.5 / 4, "loss": 1.0})


def test_estimates_come_with_known_log_probabilities_and_order_changes_no_digit():
    def compute(order):
        scores = HeldOutScores(gym.spaces.Discrete(2), 0.5)
        episodes = [held_out(0, [0, 1], [1.0, 2.0], [-0.3, -0.2]), held_out(1, [1], [3.0], [-0.7])]
        for i in order:
            log_prob = episodes[i].log_prob + (0.1 if i else 0.0)
            scores.update(episodes[i], episodes[i].batch.action, torch.tensor([0.1, 0.7][: 2 - i]), log_prob)
        return scores.compute()

    found = compute([0, 1])
    assert found["is_return"] == pytest.approx((2 + 3 * np.exp(0.1)) / 2)
    assert {"wis_return", "ess"} <= found.keys() and found == compute([1, 0])


@pytest.mark.parametrize("what", ["action", "loss", "log-probability"])
def test_a_policy_that_says_nan_is_an_error_and_no_class(what):
    nan = torch.tensor([float("nan")])
    scores = HeldOutScores(gym.spaces.Box(-1, 1, (1,), np.float32), 0.9)
    says = {"action": torch.zeros(1, 1), "loss": torch.zeros(1), "log-probability": torch.zeros(1)}
    says[what] = nan[:, None] if what == "action" else nan
    with pytest.raises(NumericsError, match=f"the policy's {what} is NaN or infinite on held-out episode 3"):
        scores.update(held_out(3, [[0.0]]), *says.values())
