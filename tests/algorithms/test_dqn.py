from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
import torch

from lit_rl.algorithms.base import Progress
from lit_rl.algorithms.dqn import DQN, DQNConfig
from lit_rl.data.transitions import Transitions
from lit_rl.envs.spaces import Spaces
from lit_rl.errors import UsageError
from lit_rl.optimize import GradientStep

SPACES = Spaces(gym.spaces.Box(-9, 9, (2,), np.float32), gym.spaces.Discrete(2))


def make(**settings):
    return DQN(SPACES, DQNConfig(**({"hidden_sizes": []} | settings)))


def linear(q, target):
    """A DQN without hidden layers: Q = weights @ obs, online and target."""
    dqn = make()
    with torch.no_grad():
        for net, weights in ((dqn.policy.actor, q), (dqn.target, target)):
            net.head.linear.weight.copy_(torch.tensor(weights))
            net.head.linear.bias.zero_()
    return dqn


def batch_of(next_obs, discount=(0.5, 0.0)):
    return Transitions(
        obs=torch.tensor([[1.0, 0.0], [0.0, 1.0]]),
        action=torch.tensor([0, 1]),
        reward=torch.tensor([1.0, 2.0]),
        discount=torch.tensor(discount),
        next_obs=torch.tensor(next_obs),
        weight=torch.tensor([1.0, 0.5]),
    )


@pytest.mark.parametrize("double, bootstrap", [(True, 2.0), (False, 5.0)])
def test_the_target_by_hand(double, bootstrap):
    # Of next_obs (1, 0): online Q = (4, 3), target Q = (2, 5); double takes the online choice's target value.
    dqn = linear([[4.0, 0.0], [3.0, 1.0]], [[2.0, 0.0], [5.0, 0.0]])
    dqn.config.double = double
    batch = batch_of([[1.0, 0.0], [1.0, 0.0]])
    assert dqn.bootstrap(batch.next_obs, batch.noise).tolist() == [bootstrap] * 2
    loss = dqn.q_loss(batch)
    # Q is 4 and 1; the second transition terminated, so its target is its reward.
    errors = [1 + 0.5 * bootstrap - 4, 2.0 - 1]
    assert loss.aux.tolist() == errors
    huber = [0.5 * e * e if abs(e) <= 1 else abs(e) - 0.5 for e in errors]
    assert loss.value.item() == pytest.approx((huber[0] + 0.5 * huber[1]) / 2)
    assert loss.metrics["q"].item() == 2.5


def test_no_gradient_flows_through_the_bootstrap():
    dqn = linear([[4.0, 0.0], [3.0, 1.0]], [[2.0, 0.0], [5.0, 0.0]])
    weight, bias = dqn.policy.actor.head.linear.parameters()
    batch = batch_of([[1.0, 0.0], [1.0, 0.0]])
    gradient, _ = torch.autograd.grad(dqn.q_loss(batch).value, (weight, bias))
    # d huber/dQ = -clip(error): errors -2 and 1, weights 1 and 1/2, mean of two; Q_0 of (1, 0) and Q_1 of (0, 1)
    assert gradient.tolist() == [[0.5, 0.0], [0.0, -0.25]]
    assert all(not p.requires_grad for p in dqn.target.parameters())


@pytest.mark.parametrize("every, tau", [(3, 1.0), (1, 0.25), (2, 0.5)])
def test_the_target_moves_every_so_many_updates_by_tau(every, tau):
    dqn = make(target_update_every=every, tau=tau)
    optimize = GradientStep(dqn.groups(), settings={"lr": 0.1})
    expected = [p.clone() for p in dqn.target.parameters()]
    for number in range(7):
        dqn.update(batch_of([[1.0, 2.0], [0.0, 1.0]]), optimize, Progress(number, 0))
        if (number + 1) % every == 0:
            for mine, online in zip(expected, dqn.policy.actor.parameters(), strict=True):
                mine.mul_(1 - tau).add_(online.detach(), alpha=tau)
        for mine, target in zip(expected, dqn.target.parameters(), strict=True):
            torch.testing.assert_close(mine, target)


def test_weights_from_elsewhere_reach_the_target():
    one, two = make(hidden_sizes=[4]), make(hidden_sizes=[4])
    two.policy.load_state_dict(one.policy.state_dict())
    two.start_from_policy()
    for a, b in zip(one.policy.actor.parameters(), two.target.parameters(), strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize(
    "settings",
    [
        {"gamma": -0.1},
        {"gamma": float("nan")},
        {"lr": -1.0},
        {"lr": [[0, 1e-3], [0, 1e-4]]},
        {"epsilon": 1.5},
        {"epsilon": [[0, 1.0], [100, -0.5]]},
        {"n_step": 0},
        {"batch_size": 0},
        {"buffer_size": 0},
        {"learning_starts": -1},
        {"collect_per_step": 0},
        {"update_per_step": -0.5},
        {"update_per_step": float("inf")},
        {"target_update_every": 0},
        {"tau": 0.0},
        {"tau": 1.1},
        {"hidden_sizes": [8, 0]},
        {"steps_per_iteration": 0},
        {"gradient_clip_val": 0.0},
        {"adam_eps": -1e-8},
        {"activation": "sine"},
    ],
    ids=str,
)
def test_a_setting_out_of_range_is_one_line_that_names_it(settings):
    (name,) = settings
    with pytest.raises(UsageError, match=name) as caught:
        make(**({"hidden_sizes": [4]} | settings))
    assert "\n" not in str(caught.value)
