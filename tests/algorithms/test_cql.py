"""CQL on one-dimensional linear networks, with numbers worked out by hand."""

from __future__ import annotations

import math

import gymnasium as gym
import pytest
import torch
from algorithms.test_actor_critics import BOX, DISCRETE, batch_of, set_critic, set_linear

from lit_rl.algorithms.base import Progress
from lit_rl.algorithms.cql import CQL, CQLConfig
from lit_rl.algorithms.dqn import DQN, DQNConfig
from lit_rl.algorithms.sac import SAC, SACConfig
from lit_rl.envs.spaces import Spaces
from lit_rl.errors import UsageError
from lit_rl.functional.losses import conservative
from lit_rl.optimize import GradientStep


def discrete(**settings):
    """Q(s) = (s, 0), for the states 1 and 2 with the actions 0 and 1."""
    cql = CQL(DISCRETE, CQLConfig(**({"hidden_sizes": [], "batch_size": 2} | settings)))
    linear = cql.policy.actor.head.linear
    with torch.no_grad():
        linear.weight.copy_(torch.tensor([[1.0], [0.0]]))
        linear.bias.zero_()
    cql.start_from_policy()
    return cql, batch_of(torch.zeros(3, 0))._replace(action=torch.tensor([0, 1]), return_=torch.tensor([3.0, -1.0]))


GAPS = math.log(math.e + 1) - 1, math.log(math.exp(2) + 1) - 0


def test_the_term_is_a_soft_maximum_minus_what_was_recorded():
    value, weight = torch.tensor([[1.0, 0.0], [2.0, 0.0]]), torch.zeros(2, 2)
    assert conservative(value, weight, torch.tensor([1.0, 0.0]), 1).tolist() == pytest.approx(GAPS)


def test_discrete_actions_add_the_term_over_all_of_them_to_dqns_loss():
    cql, batch = discrete(cql_alpha=0.25)
    plain = cql.learner.q_loss(batch)
    loss = cql.value_loss(torch.tensor(0.25), batch)
    assert loss.value.item() == pytest.approx(plain.value.item() + 0.25 * sum(GAPS) / 2)
    assert loss.metrics["conservative"].item() == pytest.approx(sum(GAPS) / 2)
    assert torch.equal(loss.aux, plain.aux)


def test_no_value_is_lowered_below_the_recorded_return():
    cql, batch = discrete(calibrated=True)
    by_hand = (3 + math.log(2) - 1, GAPS[1])  # the first return is above both values, the second below
    assert cql.gap_discrete(batch).item() == pytest.approx(sum(by_hand) / 2)
    collected = batch._replace(return_=torch.zeros(0))
    assert cql.gap_discrete(collected).item() == pytest.approx(sum(GAPS) / 2), "whose return is not known yet"


def test_the_term_of_a_box_estimates_the_integral():
    samples = 3000
    cql = CQL(BOX, CQLConfig(hidden_sizes=[], cql_actions=samples, batch_size=2))
    set_linear(cql.policy.actor.head, [[0.0], [0.0]])  # tanh of a standard normal
    set_critic(cql.policy.critic, [[1.0, 2.0], [0.5, -1.0]])
    assert cql.plan.noise == (2 + 3 * samples, 2, 1)
    noise = torch.randn(cql.plan.noise, generator=torch.Generator().manual_seed(0))
    found = cql.gap_box(batch_of(noise)).item()
    expected = 0.0
    for by_obs, by_action in ((1.0, 2.0), (0.5, -1.0)):  # the integral of exp(w a) over (-1, 1) is 2 sinh(w) / w
        for obs, action in ((1.0, 0.5), (2.0, -0.5)):
            integral = by_obs * obs + math.log(2 * math.sinh(by_action) / by_action)
            expected += (integral - by_obs * obs - by_action * action) / 2
    assert found == pytest.approx(expected, abs=0.05)


@pytest.mark.parametrize(("spaces", "plain", "config"), [(DISCRETE, DQN, DQNConfig), (BOX, SAC, SACConfig)])
def test_without_its_term_it_is_dqn_or_sac(spaces, plain, config):
    shared = {"hidden_sizes": [4], "batch_size": 2, "lr": 1e-2, "tau": 0.1, "gradient_clip_val": None}
    shared |= {"n_step": 1, "gamma": 0.9}
    torch.manual_seed(0)
    cql = CQL(spaces, CQLConfig(**shared, cql_alpha=0.0))
    torch.manual_seed(0)
    other = plain(spaces, config(**shared, **({"target_update_every": 1} if plain is DQN else {})))
    noise = torch.randn(cql.plan.noise)
    batch = batch_of(noise)
    batch = batch._replace(action=torch.tensor([0, 1])) if plain is DQN else batch
    for updates in range(3):
        for algorithm, seen in ((cql, batch), (other, batch._replace(noise=noise[:2] if plain is SAC else noise))):
            if updates == 0:
                algorithm.step = GradientStep(algorithm.groups(), settings={"lr": 1e-2})
            algorithm.update(seen, algorithm.step, Progress(updates, 0))
    for name, x in other.policy.state_dict().items():
        torch.testing.assert_close(cql.policy.state_dict()[name], x)
    for one, two in zip(cql.target.parameters(), other.target.parameters(), strict=True):
        torch.testing.assert_close(one, two)


def test_it_learns_the_policy_of_the_algorithm_that_goes_on():
    cql = CQL(DISCRETE, CQLConfig(policy_of={"algo": "DQN", "dueling": True, "hidden_sizes": [6]}, batch_size=9))
    assert cql.policy.actor.head.dueling and cql.policy.actor.head.linear.in_features == 6
    assert cql.plan.batch_size == 9, "how it learns is its own"
    for spaces, algo in ((BOX, "TD3"), (DISCRETE, "SAC"), (DISCRETE, "PPO")):
        with pytest.raises(UsageError, match="--policy_of"):
            CQL(spaces, CQLConfig(policy_of={"algo": algo}))


def test_the_weight_may_fall():
    cql, batch = discrete(cql_alpha=[[0, 1.0], [10, 0.0]])
    step = GradientStep(cql.groups(), settings={"lr": 1e-9})
    losses = [cql.update(batch, step, Progress(0, at)).metrics["loss"].item() for at in (0, 5, 10)]
    assert losses[0] - losses[2] == pytest.approx(sum(GAPS) / 2, abs=1e-4)
    assert losses[1] == pytest.approx((losses[0] + losses[2]) / 2, abs=1e-4)


def test_actions_that_are_masked_out_stay_out_of_the_term():
    shown = gym.spaces.Dict({"obs": DISCRETE.observation, "action_mask": gym.spaces.MultiBinary(2)})
    cql = CQL(Spaces(shown, DISCRETE.action), CQLConfig(hidden_sizes=[], batch_size=2, calibrated=True))
    linear = cql.policy.actor.head.linear
    with torch.no_grad():
        linear.weight.copy_(torch.tensor([[1.0], [0.0]]))
        linear.bias.zero_()
    obs = {"obs": torch.tensor([[1.0], [2.0]]), "action_mask": torch.tensor([[1, 0], [1, 0]], dtype=torch.uint8)}
    batch = batch_of(torch.zeros(3, 0))._replace(
        obs=obs, action=torch.tensor([0, 0]), return_=torch.tensor([3.0, -1.0])
    )
    # the soft maximum over the one allowed action is its value, lifted to the return of 3 in the first row
    assert cql.gap_discrete(batch).item() == pytest.approx(((3.0 - 1.0) + (2.0 - 2.0)) / 2)
