from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
import torch
from tiny_envs import Counting

from lit_rl.data.collector import Collector
from lit_rl.envs.spaces import Spaces
from lit_rl.envs.vector import make_vector_env
from lit_rl.errors import UsageError
from lit_rl.functional.distributions import gaussian_log_prob
from lit_rl.networks.architecture import Architecture
from lit_rl.policies.acting import HostActor, make_actor
from lit_rl.policies.deterministic import Deterministic
from lit_rl.policies.squashed_gaussian import SquashedGaussian

FLAT = gym.spaces.Box(-1, 1, (3,), np.float32)
UNEQUAL = gym.spaces.Box(np.array([-2.0, 0.0], np.float32), np.array([1.0, 10.0], np.float32))


def deterministic(action=UNEQUAL, observation=FLAT, sigma=0.3, theta=None, hidden=(16,), activation="relu"):
    return Deterministic(Spaces(observation, action), "TD3", Architecture(hidden, activation), 2, sigma, theta)


def squashed(action=UNEQUAL, observation=FLAT, hidden=(16,), activation="relu"):
    return SquashedGaussian(Spaces(observation, action), Architecture(hidden, activation), 2, 0.5)


BOTH = pytest.mark.parametrize("make", [deterministic, squashed])


@BOTH
def test_actions_are_scaled_to_unequal_bounds(make):
    policy = make()
    found = policy.env_action(np.array([[-1.0, -1.0], [1.0, 1.0], [0.0, 0.5]], np.float32))
    assert found.tolist() == [[-2.0, 0.0], [1.0, 10.0], [-0.5, 7.5]] and found.dtype == np.float32


@BOTH
@pytest.mark.parametrize(
    "space",
    [
        gym.spaces.Box(-0.1, 0.3, (2, 3), np.float32),
        gym.spaces.Box(-3, 3, (), np.float64),
        gym.spaces.Box(np.float32(0.1), np.float32(0.7), (1,), np.float16),
        gym.spaces.Box(-5, 7, (2,), np.int64),
        gym.spaces.Box(0, 255, (1,), np.uint8),
    ],
    ids=str,
)
def test_every_action_of_any_box_lies_in_it(make, space):
    policy = make(space)
    obs = torch.randn(200, 3)
    noise = policy.noise(1, 200, torch.Generator().manual_seed(0), 0, 1)[0]
    for action in (policy.act(obs).action, policy.act(obs, noise * 9).action, policy.random(obs, noise)):
        assert (action.abs() <= 1).all()
        assert all(space.contains(a) for a in policy.env_action(action.detach().numpy()))


@BOTH
@pytest.mark.parametrize("low, high", [(-np.inf, 1.0), (0.0, np.inf), (-np.inf, np.inf)])
def test_infinite_bounds_are_refused_by_name(make, low, high):
    with pytest.raises(UsageError, match=r"bounds of the action space, and those of Box\(2,\) float32 are infinite"):
        make(gym.spaces.Box(low, high, (2,), np.float32))


@BOTH
def test_a_box_is_needed(make):
    with pytest.raises(UsageError, match=r"needs a Box action space, not Discrete\(3\)"):
        make(gym.spaces.Discrete(3))


@BOTH
def test_random_actions_are_uniform(make):
    policy = make()
    noise = policy.noise(1, 20_000, torch.Generator().manual_seed(0), 0, 1)[0]
    action = policy.random(torch.zeros(20_000, 3), noise)
    counts = torch.histc(action[:, 0], 10, -1, 1)
    assert (counts - 2000).abs().max() < 200 and (action.abs() <= 1).all()
    assert abs(np.corrcoef(action.numpy().T)[0, 1]) < 0.03


@BOTH
@pytest.mark.parametrize("activation, in_numpy", [("relu", True), ("tanh", True), ("elu", False)])
@pytest.mark.parametrize("hidden", [(), (16,), (8, 8)])
def test_the_collector_acts_as_the_policy_does_on_the_weights_of_the_moment(make, hidden, activation, in_numpy):
    policy = make(hidden=hidden, activation=activation)
    actor = make_actor(policy)
    assert isinstance(actor, HostActor) == (in_numpy or not hidden)
    generator = torch.Generator().manual_seed(2)
    for _ in range(3):
        obs = torch.randn(32, 3)
        noise = policy.noise(1, 32, generator, 0, 1)[0]
        before = obs.clone(), noise.clone()
        with torch.no_grad():
            action, _ = actor.act(obs.numpy(), noise.numpy(), None)
            np.testing.assert_allclose(action, policy.act(obs, noise).action.numpy(), rtol=1e-5, atol=1e-6)
            assert torch.equal(obs, before[0]) and torch.equal(noise, before[1])
            for p in policy.parameters():
                p.add_(torch.randn_like(p) * 0.3)


def test_the_density_of_a_squashed_action_is_that_of_the_normal_over_the_slope_of_tanh():
    policy = squashed()
    obs, noise = torch.randn(50, 3), torch.randn(50, 2)
    action, log_prob = policy.sample(obs, noise)
    mean, log_std = policy.actor(obs)
    u = mean + log_std.exp() * noise
    torch.testing.assert_close(action, u.tanh())
    expected = gaussian_log_prob(mean, log_std, u) - (1 - action**2).log().sum(1)
    torch.testing.assert_close(log_prob, expected, atol=1e-4, rtol=1e-4)


def test_the_soft_value_takes_the_smaller_critic_and_pays_for_entropy():
    policy = squashed()
    obs, noise, alpha = torch.randn(9, 3), torch.randn(9, 2), torch.tensor(0.3)
    value, log_prob = policy.soft_value(policy.critic, obs, noise, alpha)
    action, expected = policy.sample(obs, noise)
    torch.testing.assert_close(log_prob, expected)
    torch.testing.assert_close(value, policy.critic(obs, action).min(0).values - 0.3 * expected)
    assert policy.target_entropy(obs) == -2.0 and policy.log_alpha.exp().item() == pytest.approx(0.5)


def test_noise_is_added_to_the_action_and_kept_in_range():
    policy = deterministic(sigma=[[0, 0.5], [10, 0.1]])
    noise = policy.noise(11, 4000, torch.Generator().manual_seed(0), 0, 1)
    assert noise[0, :, :2].std().item() == pytest.approx(0.5, rel=0.05)
    assert noise[10, :, :2].std().item() == pytest.approx(0.1, rel=0.05)
    obs = torch.randn(4000, 3)
    with torch.no_grad():
        added = policy.act(obs, noise[0]).action - policy.act(obs).action
        assert torch.equal(policy.act(obs, noise[0]).action, (policy.act(obs).action + noise[0, :, :2]).clamp(-1, 1))
    assert added.std() > 0.3


def test_the_ornstein_uhlenbeck_process_by_hand():
    policy = deterministic(theta=0.25)
    obs, noise = torch.zeros(1, 3), torch.tensor([[0.4, -0.2, 9.0, 9.0]])
    first = policy.act(obs, noise, policy.initial_state(1))
    torch.testing.assert_close(first.state, torch.tensor([[0.4, -0.2]]))
    second = policy.act(obs, noise, first.state)
    torch.testing.assert_close(second.state, torch.tensor([[0.75 * 0.4 + 0.4, 0.75 * -0.2 - 0.2]]))
    torch.testing.assert_close(second.action, (policy.act(obs).action + second.state).clamp(-1, 1))
    greedy = policy.act(obs, None, second.state)
    assert torch.equal(greedy.state, second.state)


class Moving(Counting):
    action_space = UNEQUAL


def test_the_process_goes_on_through_an_episode_and_begins_anew_in_the_next():
    policy = deterministic(observation=Moving.observation_space, theta=0.2, sigma=0.1)
    with torch.no_grad():
        for p in policy.actor.parameters():
            p.zero_()  # so that the action is the noise
    envs = make_vector_env(Moving, {"length": 5}, 2, "sync", autoreset="same_step")
    generator = torch.Generator().manual_seed(3)
    collector = Collector(envs, policy.spaces, lambda _: [0, 1], generator, 2)
    drawn = policy.noise(4, 2, torch.Generator().manual_seed(3), 0, 2)[..., :2]
    steps = collector.collect(8, policy, 0)
    state = collector._state.clone()
    process = torch.zeros(2, 2)
    for t in range(4):
        process = 0.8 * process + drawn[t]
        np.testing.assert_allclose(steps.action[t], process, rtol=1e-5)
    assert torch.equal(state, process)
    collector.collect(2, policy, 8)  # the fifth step ends the episodes
    assert (collector._state == 0).all()
