"""Which algorithm takes which actions: each cell builds, acts in its space, or is refused in one line that names it."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
import torch

from lit_rl.algorithms import find_algorithm
from lit_rl.envs.spaces import Spaces, describe
from lit_rl.errors import UsageError

ACTIONS = {
    "Discrete": gym.spaces.Discrete(3, start=-1),
    "MultiDiscrete": gym.spaces.MultiDiscrete([2, 3]),
    "MultiBinary": gym.spaces.MultiBinary(2),
    "Box": gym.spaces.Box(np.array([-2.0, 0.0], np.float32), np.array([1.0, 9.0], np.float32)),
    "infinite Box": gym.spaces.Box(-np.inf, np.inf, (2,), np.float32),
}
TAKES = {
    "DQN": {"Discrete"},
    "SAC": {"Discrete", "Box"},
    "TD3": {"Box"},
    "DDPG": {"Box"},
    "ES": set(ACTIONS),
    "PG": set(ACTIONS),
    "A2C": set(ACTIONS),
    "PPO": set(ACTIONS),
}
OBSERVATION = gym.spaces.Box(-1, 1, (3,), np.float32)


@pytest.mark.parametrize("kind", ACTIONS)
@pytest.mark.parametrize("name", TAKES)
def test_each_cell(name, kind):
    algorithm, action = find_algorithm(name), ACTIONS[kind]
    spaces = Spaces(OBSERVATION, action)
    if kind not in TAKES[name]:
        with pytest.raises(UsageError) as caught:
            algorithm(spaces, algorithm.Config())
        assert describe(action) in str(caught.value) and "\n" not in str(caught.value)
        return
    policy = algorithm(spaces, algorithm.Config()).policy
    obs, generator = torch.randn(20, 3), torch.Generator().manual_seed(0)
    noise = policy.noise(1, 20, generator, 0, 20)[0]
    with torch.no_grad():
        for found in (policy.act(obs).action, policy.act(obs, noise).action, policy.random(obs, noise)):
            assert all(action.contains(a) for a in policy.env_action(found.numpy()))
