from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
import torch

from lit_rl.envs.spaces import Spaces
from lit_rl.errors import UsageError
from lit_rl.networks.architecture import Architecture
from lit_rl.policies.acting import make_actor
from lit_rl.policies.soft_categorical import SoftCategorical

FLAT = gym.spaces.Box(-1, 1, (3,), np.float32)
MASKED = gym.spaces.Dict({"obs": FLAT, "action_mask": gym.spaces.MultiBinary(4)})


def make(observation=FLAT, start=0):
    return SoftCategorical(Spaces(observation, gym.spaces.Discrete(4, start=start)), Architecture([16], "relu"), 2, 0.5)


def masked(n):
    mask = torch.randint(0, 2, (n, 4), dtype=torch.uint8)
    mask[:, 2] = 1
    return {"obs": torch.randn(n, 3), "action_mask": mask}


def test_actions_are_drawn_by_their_probability():
    policy = make()
    obs = torch.ones(1, 3)
    noise = policy.noise(1, 20_000, torch.Generator().manual_seed(0), 0, 1)[0]
    drawn = policy.act(obs.expand(20_000, 3), noise).action
    expected = policy.actor(obs)[0, 0].softmax(0) * 20_000
    assert (torch.bincount(drawn, minlength=4) - expected).abs().max() < 300


def test_the_collector_acts_as_the_policy_does():
    policy, obs = make(), torch.randn(64, 3)
    noise = policy.noise(1, 64, torch.Generator().manual_seed(0), 0, 1)[0]
    action, _ = make_actor(policy).act(obs.numpy(), noise.numpy(), None)
    assert action.tolist() == policy.act(obs, noise).action.tolist()


def test_forbidden_actions_are_never_taken_nor_valued():
    policy, obs = make(MASKED), masked(500)
    noise = policy.noise(1, 500, torch.Generator().manual_seed(0), 0, 1)[0]
    allowed = obs["action_mask"].bool()
    for action in (policy.act(obs).action, policy.act(obs, noise).action, policy.random(obs, noise)):
        assert allowed.gather(1, action[:, None]).all()
    q = policy.q_values(obs)
    assert (q[~allowed] == torch.finfo(q.dtype).min).all()


def test_the_soft_value_is_the_sum_over_allowed_actions():
    policy, obs, alpha = make(MASKED), masked(50), torch.tensor(7.0)
    value, log_prob = policy.soft_value(policy.critic, obs, torch.zeros(50, 0), alpha)
    allowed = obs["action_mask"].bool()
    for i in range(50):
        logits = policy.actor.linear(policy.actor.torso(obs))[i][allowed[i]]
        q = policy.critic.all_values(obs).min(0).values[i][allowed[i]]
        p = logits.softmax(0)
        torch.testing.assert_close(log_prob[i], (p * p.log()).sum())
        torch.testing.assert_close(value[i], (p * (q - 7 * p.log())).sum())
    gradients = torch.autograd.grad(value.sum(), list(policy.actor.parameters()))
    assert all(torch.isfinite(g).all() for g in gradients)


def test_the_target_entropy_counts_allowed_actions():
    assert make().target_entropy(torch.zeros(5, 3)) == pytest.approx(0.98 * np.log(4))
    obs = masked(20)
    expected = 0.98 * obs["action_mask"].sum(1).float().log()
    torch.testing.assert_close(make(MASKED).target_entropy(obs), expected)


def test_actions_reach_the_env_from_their_start():
    policy = make(start=3)
    assert policy.env_action(np.array([0, 3])).tolist() == [3, 6]


def test_a_discrete_action_space_is_needed():
    with pytest.raises(UsageError, match=r"Discrete action space, not MultiDiscrete\(\[2, 3\]\)"):
        SoftCategorical(Spaces(FLAT, gym.spaces.MultiDiscrete([2, 3])), Architecture([4], "relu"), 2, 1.0)
