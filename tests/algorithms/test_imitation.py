"""BC and MARWIL: what their losses are, and whose policies they learn."""

from __future__ import annotations

import math

import gymnasium as gym
import numpy as np
import pytest
import torch
from algorithms.tester import Recorder, snapshot
from tiny_runs import Signs

from lit_rl.algorithms import make_algorithm
from lit_rl.algorithms.base import Progress
from lit_rl.algorithms.bc import BC, BCConfig
from lit_rl.algorithms.marwil import MARWIL, MARWILConfig
from lit_rl.data.transitions import Transitions
from lit_rl.envs.spaces import Spaces
from lit_rl.envs.vector import probe
from lit_rl.errors import UsageError
from lit_rl.optimize import GradientStep

FLAT = gym.spaces.Box(-1, 1, (2,), np.float32)
DISCRETE, BOX = Spaces(FLAT, gym.spaces.Discrete(3)), Spaces(FLAT, gym.spaces.Box(-1, 1, (2,), np.float32))


def batch_of(spaces, reward=(1.0, 2.0, 3.0, 4.0)):
    generator = torch.Generator().manual_seed(0)
    obs = torch.randn(4, 2, generator=generator)
    discrete = isinstance(spaces.action, gym.spaces.Discrete)
    action = torch.tensor([0, 1, 2, 1]) if discrete else torch.rand(4, 2, generator=generator) - 0.5
    return Transitions(obs, action, torch.tensor(reward), torch.zeros(4), obs, torch.ones(4))


def make(algorithm, spaces, **settings):
    torch.manual_seed(0)
    return algorithm(spaces, algorithm.Config(hidden_sizes=[8], **settings))


def test_the_loss_of_discrete_actions_is_their_cross_entropy():
    bc, batch = make(BC, DISCRETE), batch_of(DISCRETE)
    logits = bc.policy.actor(batch.obs).squeeze(1)
    expected = torch.nn.functional.cross_entropy(logits, batch.action)
    torch.testing.assert_close(bc.policy_loss(batch).value, expected)


def test_the_loss_of_continuous_actions_is_their_likelihood_or_squared_error():
    batch = batch_of(BOX)
    bc = make(BC, BOX)
    error = batch.action - bc.policy.actor(batch.obs)
    expected = (0.5 * error**2 + 0.5 * math.log(2 * math.pi)).sum(1).mean()  # the spread begins at 1
    torch.testing.assert_close(bc.policy_loss(batch).value, expected)
    torch.testing.assert_close(make(BC, BOX, loss="mse").policy_loss(batch).value, (error**2).mean())
    with pytest.raises(UsageError, match=r"--loss mse needs a Box action space, not Discrete\(3\); use log_prob"):
        make(BC, DISCRETE, loss="mse")


def test_exact_data_do_not_make_the_spread_vanish():
    bc = make(BC, BOX, min_std=0.2)
    spread = bc.policy.actor.distribution.log_std
    spread.data.fill_(-5.0)
    bc.update(batch_of(BOX), GradientStep(bc.groups()), Progress(0, 0))
    assert spread.exp().tolist() == pytest.approx([0.2, 0.2])


def test_marwil_without_beta_is_behaviour_cloning():
    bc, marwil = make(BC, DISCRETE), make(MARWIL, DISCRETE, beta=0.0)
    bc.policy.actor.load_state_dict(marwil.policy.actor.state_dict())
    steps = {algorithm: Recorder(algorithm) for algorithm in (bc, marwil)}
    for number in range(5):
        for algorithm, optimize in steps.items():
            optimize.step.set_lr("policy", 0.01)
            algorithm.update(batch_of(DISCRETE), optimize, Progress(number, number))
    one, other = snapshot(bc.policy.actor), snapshot(marwil.policy.actor)
    for name, weight in one.items():
        assert torch.equal(weight, other[name]), name


def test_marwil_weighs_actions_by_their_scaled_advantage():
    marwil, batch = make(MARWIL, DISCRETE, beta=2.0, norm_rate=0.25, max_weight=3.0), batch_of(DISCRETE)
    optimize = Recorder(marwil)
    for lr in ("value", "policy"):
        optimize.step.set_lr(lr, 0.0 if lr == "policy" else 1e-3)
    with torch.no_grad():
        advantage = batch.reward - marwil.policy.value(batch.obs)
        log_prob = marwil.policy.log_prob(batch.obs, batch.action)
    first = (advantage**2).mean()
    weight = (2 * advantage / first.sqrt()).exp().clamp(max=3.0)
    seen = {}

    def spying(group, loss_fn, *tensors):
        seen[group] = loss_fn(*tensors)
        return optimize.step(group, loss_fn, *tensors)

    marwil.update(batch, spying, Progress(0, 0))
    torch.testing.assert_close(marwil.square, first)  # the average begins at the first minibatch
    torch.testing.assert_close(seen["policy"].value.detach(), -(weight * log_prob).mean())
    with torch.no_grad():
        second = ((batch.reward - marwil.policy.value(batch.obs)) ** 2).mean()
    marwil.update(batch, spying, Progress(1, 1))
    torch.testing.assert_close(marwil.square, 0.75 * first + 0.25 * second)


def test_a_return_that_was_cut_off_bootstraps():
    marwil, batch = make(MARWIL, DISCRETE), batch_of(DISCRETE)
    cut = batch._replace(discount=torch.full((4,), 0.5), next_obs=-batch.obs)
    with torch.no_grad():
        value = marwil.policy.value(batch.obs)
        expected = batch.reward + 0.5 * marwil.policy.value(-batch.obs) - value
    torch.testing.assert_close(marwil.value_loss(cut).aux.detach(), expected)


@pytest.mark.parametrize("algorithm", [BC, MARWIL])
@pytest.mark.parametrize(
    ("spaces", "algo"), [(DISCRETE, "PPO"), (DISCRETE, "SAC"), (BOX, "SAC"), (BOX, "TD3"), (BOX, "PPO")]
)
def test_another_algorithms_policy_learns_and_its_critic_waits(algorithm, spaces, algo):
    learner = make(algorithm, spaces, policy_of={"algo": algo, "hidden_sizes": [6]})
    before = snapshot(learner.policy)
    optimize = Recorder(learner)
    for number in range(3):
        for group in learner.groups():
            optimize.step.set_lr(group, 1e-2)
        learner.update(batch_of(spaces), optimize, Progress(number, number))
    moved = {name for name, x in learner.policy.state_dict().items() if not torch.equal(x, before[name])}
    critic_learns = algorithm is MARWIL and algo == "PPO"  # which has a state value, as MARWIL
    assert {name.split(".")[0] for name in moved} == {"actor"} | ({"critic"} if critic_learns else set())


@pytest.mark.parametrize(
    ("config", "wrong", "reason"),
    [
        (BCConfig, {"batch_size": 0}, "--batch_size 0 is out of range"),
        (BCConfig, {"min_std": 0.0}, "--min_std 0.0 is out of range"),
        (BCConfig, {"hidden_sizes": [0]}, "--hidden_sizes .* must be positive"),
        (MARWILConfig, {"beta": -1.0}, "--beta -1.0 is out of range"),
        (MARWILConfig, {"norm_rate": 2.0}, "--norm_rate 2.0 is out of range"),
        (MARWILConfig, {"max_weight": 0.0}, "--max_weight 0.0 is out of range"),
    ],
)
def test_settings_out_of_range_are_named(config, wrong, reason):
    with pytest.raises(UsageError, match=reason):
        config(**wrong)


@pytest.mark.parametrize("algo", ["BC", "MARWIL", "IQL"])
def test_what_a_users_network_has_frozen_stays_so(algo):
    spaces = probe(Signs, {"start": 2})
    algorithm = make_algorithm(algo, spaces, {"custom_model": "own_nets:HalfFrozen", "hidden_sizes": [4]})
    frozen = [p for name, p in algorithm.named_parameters() if "frozen" in name]
    assert frozen and not any(p.requires_grad for p in frozen)
    grouped = {id(p) for group in algorithm.groups().values() for p in group}
    assert not grouped & {id(p) for p in frozen}


def test_a_noisy_policy_is_refused_as_it_learns_only_by_acting():
    spaces = probe(Signs, {"start": 2})
    with pytest.raises(
        UsageError, match="--policy_of: noisy weights learn only where they are explored with: no noisy"
    ):
        make_algorithm("BC", spaces, {"policy_of": {"algo": "DQN", "noisy": True}})
