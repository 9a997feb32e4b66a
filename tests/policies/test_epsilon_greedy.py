from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
import torch
from torch import nn

from lit_rl.envs.spaces import Spaces
from lit_rl.errors import UsageError
from lit_rl.networks.architecture import Architecture
from lit_rl.policies.acting import make_actor
from lit_rl.policies.base import action_mask
from lit_rl.policies.epsilon_greedy import EpsilonGreedy, QNetwork

FLAT = gym.spaces.Box(-1, 1, (3,), np.float32)
MASKED = gym.spaces.Dict({"obs": FLAT, "action_mask": gym.spaces.MultiBinary(4)})


def make_policy(epsilon=0.0, observation=FLAT, start=0, hidden=(16,), activation="relu", dueling=False):
    spaces = Spaces(observation, gym.spaces.Discrete(4, start=start))
    return EpsilonGreedy(spaces, QNetwork(spaces, Architecture(hidden, activation), dueling), epsilon)


def test_it_is_greedy_without_noise():
    policy = make_policy(1.0)
    obs = torch.randn(20, 3)
    assert torch.equal(policy.act(obs).action, policy.q_values(obs).argmax(1))


@pytest.mark.parametrize("epsilon", [0.0, 0.3, 1.0])
def test_it_explores_with_probability_epsilon(epsilon):
    policy = make_policy(epsilon)
    noise = policy.noise(200, 50, torch.Generator().manual_seed(1), 0, 50)
    share = (noise[..., 0] < 0).float().mean().item()
    assert share == pytest.approx(epsilon, abs=0.015) and (share == epsilon or epsilon == 0.3)


def test_epsilon_follows_the_env_steps_of_each_vector_step():
    policy = make_policy([[100, 1.0], [200, 0.0]])
    noise = policy.noise(20, 4000, torch.Generator().manual_seed(1), 100, 10)
    share = (noise[..., 0] < 0).float().mean(1).numpy()
    assert np.abs(share - np.clip(1 - 0.1 * np.arange(20), 0, 1)).max() < 0.03
    assert share[0] == 1 and (share[10:] == 0).all()


def test_a_fixed_epsilon_goes_before_the_schedule_and_none_returns_to_it():
    policy = make_policy(1.0)
    draw = lambda: policy.noise(50, 10, torch.Generator().manual_seed(1), 0, 1)[..., 0]  # noqa: E731
    policy.set_eps(0.0)
    assert (draw() >= 0).all()
    policy.set_eps(None)
    assert (draw() < 0).all()
    for wrong in (-0.1, 1.1, float("nan"), "0.1"):
        with pytest.raises(UsageError, match=r"must be a number in \[0, 1\]"):
            policy.set_eps(wrong)


def test_random_actions_are_uniform_over_the_allowed_ones():
    policy = make_policy(1.0, MASKED)
    mask = torch.tensor([[1, 0, 1, 1]], dtype=torch.uint8).expand(6000, 4)
    obs = {"obs": torch.zeros(6000, 3), "action_mask": mask}
    noise = policy.noise(1, 6000, torch.Generator().manual_seed(3), 0, 1)[0]
    counts = torch.bincount(policy.act(obs, noise).action, minlength=4)
    assert counts[1] == 0 and (counts[[0, 2, 3]] - 2000).abs().max() < 160  # 4.4 standard deviations


def test_a_forbidden_action_is_never_the_best():
    policy = make_policy(0.0, MASKED)
    obs = {"obs": torch.randn(200, 3), "action_mask": torch.randint(0, 2, (200, 4), dtype=torch.uint8)}
    obs["action_mask"][:, 3] = 1
    q = policy.q_values(obs)
    best = policy.act(obs).action
    assert obs["action_mask"].gather(1, best[:, None]).all()
    assert torch.isfinite(q).all() and (q[obs["action_mask"] == 0] == torch.finfo(q.dtype).min).all()
    assert action_mask(torch.zeros(2, 3)) is None and action_mask({"obs": 1}) is None


@pytest.mark.parametrize("start", [0, -2, 5])
def test_actions_reach_the_env_from_their_start(start):
    policy = make_policy(start=start)
    actions = policy.env_action(policy.act(torch.randn(50, 3)).action.numpy())
    assert all(policy.spaces.action.contains(a) for a in actions)
    assert policy.env_action(np.array([0, 3])).tolist() == [start, start + 3]


@pytest.mark.parametrize("activation", ["relu", "tanh", "gelu"])
@pytest.mark.parametrize("hidden", [(), (16,), (8, 8)])
@pytest.mark.parametrize("dueling", [False, True])
def test_the_collector_acts_as_the_policy_does_on_the_weights_of_the_moment(activation, hidden, dueling):
    policy = make_policy(0.3, hidden=hidden, activation=activation, dueling=dueling)
    actor = make_actor(policy)
    generator = torch.Generator().manual_seed(2)
    for _ in range(3):
        obs = torch.randn(64, 3)
        noise = policy.noise(1, 64, generator, 0, 1)[0]
        before = obs.clone(), noise.clone()
        action, state = actor.act(obs.numpy(), noise.numpy(), None)
        assert action.tolist() == policy.act(obs, noise).action.tolist() and state is None
        assert torch.equal(obs, before[0]) and torch.equal(noise, before[1])
        with torch.no_grad():
            for p in policy.parameters():
                p.add_(torch.randn_like(p))


@pytest.mark.parametrize("observation", [FLAT, MASKED, gym.spaces.Discrete(3, start=1)], ids=str)
def test_a_policy_that_acts_at_random_does_so_through_any_actor(observation):
    policy = make_policy(0.0, observation)
    kinds = {"obs": np.zeros((500, 3), np.float32), "action_mask": np.ones((500, 4), np.uint8)}
    obs = kinds if observation is MASKED else kinds["obs"] if observation is FLAT else np.ones(500, np.int64)
    noise = policy.noise(1, 500, torch.Generator().manual_seed(2), 0, 1)[0].numpy()
    action, _ = make_actor(policy, random=True).act(obs, noise, None)
    assert np.bincount(action, minlength=4).min() > 80
    greedy, _ = make_actor(policy).act(obs, noise, None)
    assert len(np.unique(greedy)) == 1


def test_a_discrete_action_space_is_needed():
    box = Spaces(FLAT, gym.spaces.Box(-1, 1, (2,)))
    with pytest.raises(UsageError, match=r"Discrete action space, not Box\(2,\)"):
        QNetwork(box, Architecture([4], "relu"), False)


def test_the_actor_is_all_there_is():
    policy = make_policy()
    assert isinstance(policy.actor, nn.Module) and policy.critic is None
    assert {name.split(".")[0] for name, _ in policy.named_parameters()} == {"actor"}


def test_a_number_of_numpy_is_an_epsilon():
    policy = make_policy()
    policy.set_eps(np.float32(0.5))
    assert policy.fixed_eps == 0.5 and type(policy.fixed_eps) is float
