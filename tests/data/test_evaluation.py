from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
import torch
from recorded_env import Recorded, RecordedDict, Scripted

from lit_rl.algorithms import find_algorithm
from lit_rl.data.evaluation import EpisodeStatistics, play_episodes
from lit_rl.data.transitions import Episode
from lit_rl.envs.make import make_env
from lit_rl.envs.spaces import Spaces
from lit_rl.envs.vector import make_vector_env, probe
from lit_rl.errors import NumericsError


class Lottery(gym.Env):
    """The reset seed decides everything: how long an episode is, what it shows, which action pays."""

    observation_space = gym.spaces.Box(-5, 5, (4,), np.float32)
    action_space = gym.spaces.Discrete(3)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.left = int(self.np_random.choice([1, 2, 3, 40]))
        return self.look(), {}

    def look(self):
        self.shown = self.np_random.normal(size=4).astype(np.float32)
        return self.shown

    def step(self, action):
        self.left -= 1
        reward = float(self.shown[action])
        return self.look(), reward, self.left == 0 and reward > 0, self.left == 0 and reward <= 0, {"is_success": True}


SEEDS = [(i, 1000 + 7 * i) for i in range(24)]


@pytest.fixture(scope="module")
def policy():
    torch.manual_seed(5)
    dqn = find_algorithm("DQN")
    return dqn(probe(Lottery, {}), dqn.Config(hidden_sizes=[32, 32])).policy


def play(policy, num_envs, seeds=SEEDS, env=Lottery, kind="sync"):
    envs = make_vector_env(env, {}, num_envs, kind, autoreset="disabled")
    try:
        return list(play_episodes(policy, envs, probe(env, {}), seeds))
    finally:
        envs.close()


def alone(policy, seed):
    """Return and length of one episode, played by hand."""
    env = make_env(Lottery, {})
    obs, _ = env.reset(seed=seed)
    total, length, over = 0.0, 0, False
    while not over:
        action = policy.act(torch.from_numpy(obs)[None].repeat(32, 1)).action[0].item()
        obs, reward, terminated, truncated, _ = env.step(action)
        total, length, over = total + reward, length + 1, terminated or truncated
    return total, length


def test_the_episodes_are_those_of_the_seeds_whatever_the_number_of_envs(policy):
    expected = [alone(policy, seed) for _, seed in SEEDS]
    assert len({length for _, length in expected}) == 4
    for num_envs, kind in ((1, "sync"), (3, "sync"), (10, "sync"), (40, "sync"), (4, "async")):
        played = play(policy, num_envs, kind=kind)
        assert [e.number for e in played] == list(range(24))
        assert [(e.return_, e.length) for e in played] == expected  # to the last bit


def test_short_episodes_are_not_over_represented(policy):
    lengths = [alone(policy, seed)[1] for _, seed in SEEDS]
    played = play(policy, 10)
    assert np.mean([e.length for e in played]) == np.mean(lengths)
    assert sum(e.length == 40 for e in played) == lengths.count(40) >= 3


def test_whoever_stops_early_has_the_first_episodes(policy):
    envs = make_vector_env(Lottery, {}, 10, "sync", autoreset="disabled")
    episodes = play_episodes(policy, envs, probe(Lottery, {}), SEEDS)
    first = [next(episodes) for _ in range(5)]
    assert first == play(policy, 3)[:5]
    # and the envs can be used again after that
    assert list(play_episodes(policy, envs, probe(Lottery, {}), SEEDS)) == play(policy, 3)


def test_playing_twice_gives_the_same(policy):
    assert play(policy, 3) == play(policy, 3)


def test_it_acts_greedily_and_leaves_the_random_numbers_alone(policy):
    policy.set_eps(1.0)
    before = torch.get_rng_state()
    explored = play(policy, 3)
    policy.set_eps(None)
    assert torch.equal(before, torch.get_rng_state())
    assert explored == play(policy, 3)


@pytest.mark.parametrize("env", [Recorded, RecordedDict])
def test_dict_observations_and_success_are_read(env):
    policy = Scripted(probe(env, {}))
    seeds = [(i, i) for i in range(7)]  # lane i: its first episode
    played = play(policy, 3, seeds, env)
    assert [e.length for e in played] == [3, 1, 4, 1, 1, 2, 5]
    assert [e.success for e in played] == [1.0] * 7


def test_no_episode_is_played_where_none_is_asked_for(policy):
    assert play(policy, 2, []) == []


def test_a_nan_observation_stops_with_episode_and_step(policy):
    class Broken(Lottery):
        def step(self, action):
            obs, *rest = super().step(action)
            if self.left == 37:
                obs[2] = np.nan
            return obs, *rest

    with pytest.raises(NumericsError, match=r"evaluation episode \d+ .*observation.* step 3"):
        play(policy, 2, env=Broken)


def test_a_return_that_is_not_finite_is_refused_by_episode():
    statistics = EpisodeStatistics()
    statistics.update(Episode(0, 1.0, 2, None))
    with pytest.raises(NumericsError, match="evaluation episode 3 has the return nan"):
        statistics.update(Episode(3, float("nan"), 2, None))


def test_statistics_by_hand():
    statistics = EpisodeStatistics()
    for episode in (Episode(1, 4.0, 30, 1.0), Episode(0, 1.0, 10, 0.0), Episode(2, 7.0, 20, 0.0)):
        statistics.update(episode)
    values = statistics.compute()
    assert values["return"] == 4.0 and values["return_min"] == 1.0 and values["return_max"] == 7.0
    assert values["return_std"] == pytest.approx(6**0.5)
    assert values["length"] == 20.0 and values["episodes"] == 3 and values["success"] == pytest.approx(1 / 3)
    statistics.reset()
    statistics.update(Episode(0, 5.0, 1, None))
    assert statistics.compute()["return_std"] == 0.0
    assert "success" not in statistics.compute()


def test_the_order_of_arrival_changes_no_digit():
    episodes = [Episode(i, x, i, None) for i, x in enumerate([0.1, 1e9, -1e9, 0.3, 1e-3])]
    results = []
    for order in (episodes, episodes[::-1], episodes[2:] + episodes[:2]):
        statistics = EpisodeStatistics()
        for episode in order:
            statistics.update(episode)
        results.append(statistics.compute())
    assert results[0] == results[1] == results[2]


def test_spaces_are_those_of_the_env():
    assert probe(Lottery, {}) == Spaces(Lottery.observation_space, Lottery.action_space)
