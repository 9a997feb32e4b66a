"""What imitation and anchors ask of every policy: how likely an action is, and how far one policy is from another."""

from __future__ import annotations

import copy
import math

import gymnasium as gym
import numpy as np
import pytest
import torch

from lit_rl.algorithms.borrowed import borrowed_policy
from lit_rl.envs.spaces import Spaces
from lit_rl.errors import UsageError

FLAT = gym.spaces.Box(-1, 1, (3,), np.float32)
DISCRETE, BOX = gym.spaces.Discrete(3), gym.spaces.Box(-2, 2, (2,), np.float32)
POLICIES = {
    "PPO": DISCRETE,
    "PPO box": BOX,
    "PPO parts": gym.spaces.MultiDiscrete([2, 4]),
    "DQN": DISCRETE,
    "SAC": DISCRETE,
    "SAC box": BOX,
    "TD3": BOX,
}


@pytest.fixture(params=POLICIES)
def pair(request):
    """Two policies of a class, with weights of their own."""
    spaces = Spaces(FLAT, POLICIES[request.param])
    policy = borrowed_policy(spaces, {"algo": request.param.split()[0], "hidden_sizes": [8]})
    other = copy.deepcopy(policy)
    for each in (policy, other):
        for p in each.parameters():
            p.data += torch.randn_like(p) / 3
    return policy, other


def test_a_policy_does_not_diverge_from_itself(pair):
    policy, other = pair
    obs = torch.randn(20, 3)
    assert torch.allclose(policy.divergence(copy.deepcopy(policy), obs), torch.zeros(20), atol=1e-6)
    found = policy.divergence(other, obs)
    assert found.shape == (20,) and (found > 0).all()


def test_descending_the_divergence_brings_a_policy_to_the_other_one(pair):
    policy, other = pair
    obs = torch.randn(200, 3)
    acting = [p for p in policy.actor.parameters() if p.requires_grad]
    optimizer = torch.optim.Adam(acting, lr=0.02)
    before = policy.divergence(other, obs).mean().item()
    for _ in range(150):
        optimizer.zero_grad()
        policy.divergence(other, obs).mean().backward()
        optimizer.step()
    assert policy.divergence(other, obs).mean().item() < 0.2 * before


def test_the_divergence_is_the_mean_difference_of_log_probabilities(pair):
    policy, other = pair
    if not hasattr(policy.actor, "squash"):  # a deterministic one has no samples
        obs = torch.randn(1, 3).expand(20_000, 3)
        noise = other.noise(20_000, 1, torch.Generator().manual_seed(0), 0, 1).squeeze(1)
        with torch.no_grad():
            if hasattr(other, "set_eps"):  # a Boltzmann distribution of the values
                action = torch.distributions.Categorical(logits=other.q_values(obs)).sample()
            else:
                action = other.act(obs, noise).action
            found = other.log_prob(obs, action) - policy.log_prob(obs, action)
            expected = policy.divergence(other, obs[:1]).item()
        spread = 5 * found.std().item() / math.sqrt(len(found))
        assert found.mean().item() == pytest.approx(expected, abs=spread)


def test_a_deterministic_policy_counts_half_the_squared_distance():
    policy = borrowed_policy(Spaces(FLAT, BOX), {"algo": "TD3", "hidden_sizes": [4]})
    obs = torch.randn(1, 3)
    action = policy.act(obs).action + torch.tensor([[0.5, -1.0]])
    assert policy.log_prob(obs, action).item() == pytest.approx(-0.5 * (0.25 + 1))


def test_an_action_on_the_bound_has_a_finite_density():
    policy = borrowed_policy(Spaces(FLAT, BOX), {"algo": "SAC", "hidden_sizes": [4]})
    found = policy.log_prob(torch.randn(2, 3), torch.tensor([[1.0, -1.0], [1.0, 1.0]]))
    found.sum().backward()
    assert torch.isfinite(found).all() and all(torch.isfinite(p.grad).all() for p in policy.actor.parameters())


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, r"^--policy_of {} names no algorithm: give --policy_of '{\"algo\": \"SAC\"}'$"),
        ({"algo": "DQM"}, "^--policy_of.*DQM is unknown; did you mean DQN"),
        ({"algo": "PPO", "clup": 1}, "^--policy_of: PPO has no setting clup; nearest: clip"),
        ({"algo": "TD3"}, r"^--policy_of: TD3 needs a Box action space, not Discrete\(3\)"),
        ({"algo": "nowhere:X"}, "import nowhere first"),
    ],
)
def test_what_cannot_be_borrowed_is_one_line(given, message):
    with pytest.raises(UsageError, match=message):
        borrowed_policy(Spaces(FLAT, DISCRETE), given)
