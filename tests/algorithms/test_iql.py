"""IQL on one-dimensional linear networks, with numbers worked out by hand."""

from __future__ import annotations

import math

import gymnasium as gym
import numpy as np
import pytest
import torch
from algorithms.test_actor_critics import BOX, DISCRETE, batch_of, set_critic, set_linear

from lit_rl.algorithms.base import Progress
from lit_rl.algorithms.iql import IQL, IQLConfig
from lit_rl.envs.spaces import Spaces
from lit_rl.errors import UsageError
from lit_rl.functional.losses import expectile
from lit_rl.optimize import GradientStep
from lit_rl.policies.deterministic import Deterministic
from lit_rl.policies.soft_categorical import SoftCategorical


def make_iql(spaces=BOX, **settings):
    """Recorded actions are worth 1.5 and -2.5 by the targets; their states 0.5 and 1, the ones after them 1.5 and 0."""
    iql = IQL(spaces, IQLConfig(**({"hidden_sizes": [], "beta": 1.0} | settings)))
    set_critic(iql.policy.critic, [[1.0, 2.0], [2.0, 0.0]])
    set_critic(iql.target, [[1.0, 1.0], [0.0, 5.0]])
    set_linear(iql.value[1].linear, [0.5])
    return iql


def test_an_expectile_weighs_what_is_above_more():
    assert expectile(torch.tensor([2.0, -2.0]), 0.7).tolist() == pytest.approx([2.8, 1.2])
    at = torch.linspace(0, 1, 1001)
    losses = expectile(torch.tensor([[0.0], [1.0]]) - at, 0.9).mean(0)
    assert at[losses.argmin()].item() == pytest.approx(0.9), "of 0 and 1"


def test_the_value_is_an_expectile_of_the_smaller_target_critic():
    loss = make_iql().value_loss(batch_of(torch.zeros(0)))
    assert loss.aux.tolist() == pytest.approx([1.0, -3.5])
    assert loss.value.item() == pytest.approx((0.7 * 1.0 + 0.3 * 12.25) / 2)


def test_the_critics_bootstrap_from_the_value():
    loss = make_iql().critic_loss(batch_of(torch.zeros(0)))  # targets 1 + 0.5 * 1.5 and 2, values (2, 1) and (2, 4)
    assert loss.value.item() == pytest.approx((0.0625 + 0.5 * 1.0) / 2 + (0.0625 + 0.5 * 4.0) / 2)
    assert loss.aux.tolist() == pytest.approx([-0.25, -0.5])


@pytest.mark.parametrize(
    ("beta", "weights"), [(0.0, [1.0, 1.0]), (1.0, [math.e, math.exp(-3.5)]), (10.0, [100.0, 0.0])]
)
def test_the_policy_imitates_by_the_exponential_of_the_advantage(beta, weights):
    iql = make_iql(beta=beta)
    batch = batch_of(torch.zeros(0))
    loss = iql.actor_loss(batch, torch.tensor([1.0, -3.5]))
    log_prob = iql.policy.log_prob(batch.obs, batch.action)
    assert loss.value.item() == pytest.approx(-(torch.tensor(weights) * log_prob).mean().item(), rel=1e-4)
    assert loss.metrics["weight"].item() == pytest.approx(sum(weights) / 2, rel=1e-4)


def test_an_update_moves_the_target_and_nothing_of_the_temperature():
    iql = make_iql(tau=0.5)
    before = iql.target.mlp.output.weight.clone()
    updated = iql.update(batch_of(torch.zeros(0)), GradientStep(iql.groups(), settings={"lr": 0.1}), Progress(0, 0))
    expected = (before + iql.policy.critic.mlp.output.weight) / 2
    torch.testing.assert_close(iql.target.mlp.output.weight, expected)
    assert updated.td_error.shape == (2,) and {"loss", "value_loss", "actor_loss"} <= updated.metrics.keys()
    assert iql.policy.log_alpha.item() == 0 and not iql.policy.log_alpha.requires_grad


def test_it_learns_the_policy_of_the_algorithm_that_goes_on():
    borrowed = IQL(BOX, IQLConfig(policy_of={"algo": "TD3", "hidden_sizes": [7]}))
    assert isinstance(borrowed.policy, Deterministic) and borrowed.policy.actor.head.in_features == 7
    assert isinstance(IQL(DISCRETE, IQLConfig()).policy, SoftCategorical)
    with pytest.raises(
        UsageError, match="IQL learns action values, and --policy_of .*PPO.* has no critic for them: use SAC"
    ):
        IQL(DISCRETE, IQLConfig(policy_of={"algo": "PPO"}))
    parts = gym.spaces.MultiDiscrete([2, 2])
    with pytest.raises(UsageError, match="SAC needs a Box or Discrete action space, not MultiDiscrete"):
        IQL(Spaces(gym.spaces.Box(-9, 9, (1,), np.float32), parts), IQLConfig())


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"expectile": 1.0}, "--expectile 1.0 is out of range"),
        ({"max_weight": 0.0}, "--max_weight 0.0"),
        ({"beta": -1}, "--beta"),
    ],
)
def test_settings_out_of_range_are_refused(setting, message):
    with pytest.raises(UsageError, match=message):
        IQLConfig(**setting)
