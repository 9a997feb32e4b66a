"""Where episodes end and what is paid, whatever the environment says."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest

from lit_rl.envs.config import EnvConfig
from lit_rl.envs.environments import Environments
from lit_rl.envs.make import make_env
from lit_rl.envs.rules import Rules
from lit_rl.envs.wrappers import Wrappers
from lit_rl.errors import UsageError


class Count(gym.Env[np.ndarray, int]):
    """Shows how many steps it has made since it was reset, pays -3 for each, and terminates after five."""

    observation_space = gym.spaces.Box(0, 9, (1,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.t += 1
        return np.full(1, self.t, np.float32), -3.0, self.t == 5, False, {}


def play(rules: Rules, steps: int) -> list[tuple[float, float, bool, bool]]:
    """What each step shows, pays and ends; the env is reset, without a seed, where an episode ends."""
    env = make_env(Count, {}, Wrappers(rules=rules))
    env.reset(seed=0)
    seen = []
    for _ in range(steps):
        obs, reward, terminated, truncated, _ = env.step(0)
        seen.append((float(obs[0]), reward, terminated, truncated))
        if terminated or truncated:
            env.reset()
    return seen


def test_an_episode_is_truncated_at_the_limit():
    assert play(Rules(max_episode_steps=2), 4) == [
        (1, -3, False, False),
        (2, -3, False, True),
        (1, -3, False, False),
        (2, -3, False, True),
    ]


def test_a_soft_reset_goes_on_from_where_the_limit_cut():
    seen = play(Rules(max_episode_steps=2, soft_reset=True), 7)
    assert [obs for obs, *_ in seen] == [1, 2, 3, 4, 5, 1, 2]
    assert [end for _, _, *end in seen] == [
        [False, False],
        [False, True],
        [False, False],
        [False, True],
        [True, False],  # ended by itself, so it is reset
        [False, False],
        [False, True],
    ]


def test_a_reset_with_a_seed_is_a_real_one():
    env = make_env(Count, {}, Wrappers(rules=Rules(max_episode_steps=1, soft_reset=True)))
    env.reset(seed=0)
    env.step(0)
    assert env.reset(seed=1)[0] == 0


def test_no_termination_lets_the_bootstrap_go_on():
    assert play(Rules(no_termination=True), 5)[-1] == (5, -3, False, True)


def test_clipped_rewards_are_signs_and_evaluation_sees_raw_ones():
    assert play(Rules(clip_rewards=True), 1) == [(1, -1, False, False)]
    environments = Environments(EnvConfig(Count, clip_rewards=True))
    for envs, reward in ((environments.training(), -1.0), (environments.evaluation(1), -3.0)):
        envs.reset(seed=[0])
        assert envs.step(np.zeros(1, np.int64))[1] == reward
        envs.close()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"max_episode_steps": 0}, "--max_episode_steps is 0; give a whole number of at least 1"),
        ({"soft_reset": True}, "--soft_reset goes on where --max_episode_steps cuts: give that too"),
        ({"clip_rewards": True, "vector_env": "native"}, "--clip_rewards needs envs that can be wrapped"),
    ],
)
def test_rules_that_cannot_be_kept_are_refused(settings, message):
    with pytest.raises(UsageError, match=message):
        EnvConfig(**settings)
