from __future__ import annotations

import warnings

import gymnasium as gym
import numpy as np
import pytest
import torch
from recorded_env import (
    MIXED,
    Recorded,
    RecordedDict,
    Scripted,
    action_at,
    as_rows,
    collect,
    is_truncated,
    length_of,
    make_collector,
    reward_of,
)

from lit_rl.data.collector import Collector, reported_success
from lit_rl.data.finite import _is_finite
from lit_rl.envs.vector import make_vector_env, probe
from lit_rl.errors import EnvError, NumericsError

NATIVE = {"vector_env": "native", "env": "RecordedNative-v0"}
KINDS = {
    "sync": {},
    "async": {"vector_env": "async"},
    "reusing": {"reuses": True},
    "reusing async": {"reuses": True, "vector_env": "async"},
    "dict": {"env": RecordedDict},
    "native": NATIVE,
    "native reusing": NATIVE | {"reuses": True},
}


def transitions_of(steps):
    """{(lane, episode, t): (action, reward, terminated, truncated, next observation)} of the valid rows."""
    obs, final = as_rows(steps.obs), as_rows(steps.final_obs)
    finals = {tuple(index): row for index, row in zip(steps.final_index.tolist(), final.tolist(), strict=True)}
    found = {}
    for t, n in torch.nonzero(steps.valid).tolist():
        after = finals.get((t, n), obs[t + 1, n].tolist())
        row = (int(steps.action[t, n]), float(steps.reward[t, n]))
        row += (bool(steps.terminated[t, n]), bool(steps.truncated[t, n]), after)
        key = tuple(int(x) for x in obs[t, n])
        assert key not in found
        found[key] = row
    return found


def truth(lane, episode, t, lengths=MIXED):
    """What :func:`transitions_of` should say of one step."""
    over, truncates = t + 1 == length_of(lane, episode, lengths), is_truncated(lane, episode)
    action = action_at(episode, t)
    reward = reward_of(lane, episode, t, action)
    return action, reward, over and not truncates, over and truncates, [lane, episode, t + 1]


def first_steps(lane, count, lengths=MIXED):
    """The first ``count`` steps of a lane as (lane, episode, t)."""
    keys, episode = [], 0
    while len(keys) < count:
        keys += [(lane, episode, t) for t in range(length_of(lane, episode, lengths))]
        episode += 1
    return keys[:count]


@pytest.mark.parametrize("kind", KINDS)
def test_every_transition_is_the_true_one_whatever_the_blocks(kind):
    collector, policy = make_collector(3, **KINDS[kind])
    found, made = {}, 0
    for n in (3, 6, 3, 21, 3, 3, 60, 9):
        steps = collect(collector, policy, n, made)
        made += n
        rows = transitions_of(steps)
        assert not found.keys() & rows.keys()
        found |= rows
    collector.close()
    assert collector.env_steps - made == collector._surplus
    assert len(found) == collector.env_steps
    for key, row in found.items():
        assert row == truth(*key), key
    if kind not in ("native", "native reusing"):  # whose envs make different numbers of steps
        assert found.keys() == {key for lane in range(3) for key in first_steps(lane, made // 3)}


def test_native_envs_make_the_steps_that_were_asked_for_and_each_env_its_own_first_ones():
    collector, policy = make_collector(3, **NATIVE, lengths=(1,))  # every second row is a reset
    found = {}
    for _ in range(10):
        found |= transitions_of(collect(collector, policy, 6))
    assert found.keys() == {key for lane in range(3) for key in first_steps(lane, 20, (1,))}
    assert [e.length for e in collector.take_episodes()] == [1] * 60
    collector.close()


def test_a_native_cartpole_never_shows_a_step_that_joins_two_episodes():
    spaces = probe("CartPole-v1", {})
    envs = make_vector_env("CartPole-v1", {}, 4, "native", autoreset="same_step")
    generator = torch.Generator().manual_seed(0)
    collector = Collector(envs, spaces, lambda _: [3, 4, 5, 6], generator, 4)

    class Random(Scripted):
        def act(self, obs, noise=None, state=None):
            return super().act(obs)._replace(action=(noise[:, 0] * 2).long())

    steps = collect(collector, Random(spaces), 400)
    assert int(steps.valid.sum()) >= 400 and len(collector.episodes) > 10
    x, speed, after = steps.obs[:-1, :, 0], steps.obs[:-1, :, 1], steps.obs[1:, :, 0]
    error = (after - (x + 0.02 * speed)).abs()
    assert error[steps.valid].max() < 1e-5
    assert error[~steps.valid].max() > 1e-3
    assert sum(e.length for e in collector.episodes) + int(
        (collector._vector_steps - collector._began)[~collector._resetting].sum()
    ) == int(steps.valid.sum())


@pytest.mark.parametrize("lengths", [(1,), (2,), MIXED])
def test_blocks_that_end_with_an_episode_begin_the_next_one_right(lengths):
    one, policy = make_collector(2, lengths=lengths)
    whole = transitions_of(collect(one, policy, 40))
    parts = {}
    other, policy = make_collector(2, lengths=lengths)
    for _ in range(20):
        parts |= transitions_of(collect(other, policy, 2))
    assert parts == whole == {key: truth(*key, lengths) for key in whole}


def test_a_surplus_is_owed_to_the_next_call():
    collector, policy = make_collector(4)
    made = [4 * len(collect(collector, policy, n).reward) for n in (1, 1, 1, 1, 1, 6, 2, 3)]
    assert made == [4, 0, 0, 0, 4, 4, 4, 0]  # after 1, 2, 3, 4, 5, 11, 13, 16 that were asked for
    assert collector.env_steps == 16
    collect(collector, policy, 3)  # 19 asked for, 20 made
    collector.load_state_dict(collector.state_dict())
    assert [len(collect(collector, policy, 1).reward) for _ in range(2)] == [0, 1]


def test_an_empty_collect_shows_the_current_observations_and_nothing_else():
    collector, policy = make_collector(4)
    before = collect(collector, policy, 1)
    steps = collect(collector, policy, 1, 1)
    assert steps.reward.shape == (0, 4) and steps.final_index.shape == (0, 2)
    assert torch.equal(steps.obs[0], before.obs[1])


def test_the_policy_sees_the_observation_it_acts_on_and_nothing_ahead():
    collector, policy = make_collector(2)
    collect(collector, policy, 20)
    assert policy.seen == 20


@pytest.mark.parametrize("kind", ["sync", "async", "native"])
def test_episode_statistics_are_whole_raw_returns(kind):
    collector, policy = make_collector(2, **KINDS[kind])
    for _ in range(6):
        collect(collector, policy, 7)
    episodes = collector.take_episodes()
    collector.close()
    assert not collector.take_episodes()
    expected = []
    for lane in range(2):
        for episode in range(20):
            length = length_of(lane, episode)
            rewards = [reward_of(lane, episode, t, action_at(episode, t)) for t in range(length)]
            expected.append((sum(rewards), length, float(episode % 3 == 0)))
    assert [e.number for e in episodes] == list(range(len(episodes)))
    assert all((e.return_, e.length, e.success) in expected for e in episodes)
    assert len({e.return_ for e in episodes}) == len(episodes) >= 14


def test_rewards_as_ints_and_arrays_arrive_as_numbers():
    class Odd(Recorded):
        def step(self, action):
            obs, reward, *rest = super().step(action)
            return obs, (np.array([reward]) if self.t % 2 else int(reward)), *rest

    collector, policy = make_collector(1, env=Odd, lengths=(4,))
    steps = collect(collector, policy, 4)
    assert steps.reward[:, 0].tolist() == [0.0, float(int(1.25)), 2.5, 3.0]
    assert collector.episodes[0].return_ == 6.5


def test_random_steps_do_not_ask_the_policy():
    collector, policy = make_collector(2)
    steps = collect(collector, policy, 60, random=True)
    assert policy.seen == 0
    assert set(steps.action.flatten().tolist()) == {0, 1, 2}


def test_exploration_is_the_same_from_a_saved_collector():
    def actions(collector, policy):
        return collect(collector, policy, 20, random=True).action

    collector, policy = make_collector(2)
    collect(collector, policy, 10)
    state = collector.state_dict()
    collector.cut()  # a resumed one begins fresh episodes
    expected = actions(collector, policy)
    other, policy = make_collector(2)
    other.load_state_dict(state)
    assert torch.equal(actions(other, policy), expected)
    assert not torch.equal(actions(other, policy), expected)


def test_a_restart_is_seeded_by_its_env_step_and_drops_the_episodes_under_way():
    asked = []

    def seeds(number):
        asked.append(number)
        return [5, 6]

    collector, policy = make_collector(2, seeds=seeds, lengths=(4,))
    collect(collector, policy, 6)
    collector.load_state_dict(collector.state_dict())
    steps = collect(collector, policy, 8, 6)
    assert asked == [0, 6]
    assert steps.obs[0].tolist() == [[5, 0, 0], [6, 0, 0]]
    assert [e.length for e in collector.take_episodes()] == [4, 4]


class Poisoned(Recorded):
    """Returns NaN or infinity at one of its steps, counted from 1 over all episodes."""

    def __init__(self, at, what, **kwargs):
        super().__init__(**kwargs)
        self.at, self.what, self.made = at, what, 0

    def step(self, action):
        obs, reward, terminated, truncated, info = super().step(action)
        self.made += 1
        if self.lane == 1 and self.made == self.at:
            if self.what == "reward":
                reward = float("nan")
            else:
                obs = obs.copy()
                obs[1] = np.inf
        return obs, reward, terminated, truncated, info


@pytest.mark.parametrize("lengths", [(50,), (1,)])
@pytest.mark.parametrize("what, tensor", [("reward", "reward"), ("observation", "observation")])
def test_nan_stops_with_env_step_and_tensor(what, tensor, lengths):
    collector, policy = make_collector(3, env=Poisoned, at=9, what=what, lengths=lengths)
    asked = 100  # where the run stands on the x-axis
    for n in (4, 8, 6):
        collect(collector, policy, n, asked)
        asked += n
    # 18 were made in 6 vector steps; env 1's ninth is in the ninth: 24 before it, and it is the second of that one.
    with pytest.raises(NumericsError, match=rf"env 1 .*{tensor}.*env step {100 + 24 + 2}\b"):
        collect(collector, policy, 30, asked)


def test_nan_of_a_native_env_is_found_at_its_env_step():
    class Vector(gym.vector.VectorWrapper):
        def step(self, actions):
            obs, reward, terminated, truncated, info = self.env.step(actions)
            self.made = getattr(self, "made", 0) + 1
            if self.made == 5:
                reward = reward.copy()
                reward[0] = np.nan
            return obs, reward, terminated, truncated, info

    collector, policy = make_collector(2, **NATIVE, lengths=(2,))
    collector.envs = Vector(collector.envs)
    # Vector steps 1, 2, 4, 5 are transitions of both envs, 3 is a reset of both.
    with pytest.raises(NumericsError, match=r"env 0 .*reward nan.*env step 7\b"):
        collect(collector, policy, 20)


def test_an_env_that_raises_is_named_with_its_own_traceback():
    class Raising(Recorded):
        def step(self, action):
            if self.episode == 1:
                next(iter(()))
            return super().step(action)

    collector, policy = make_collector(1, env=Raising, lengths=(3,))
    with pytest.raises(EnvError, match=r"env 0, step 4 .*StopIteration") as caught:
        collect(collector, policy, 10)
    assert "next(iter(()))" in str(caught.value)


def test_success_is_read_where_the_env_reports_it():
    assert reported_success({}, 0) is None
    some = {"is_success": np.array([1, 0]), "_is_success": np.array([True, False])}
    assert reported_success(some, 0) == 1.0 and reported_success(some, 1) is None
    assert reported_success({"final_info": some, "success": np.array([0, 0])}, 0) == 1.0
    assert reported_success({"success": np.array([False, True])}, 1) == 1.0  # native envs know no "_success"


def test_very_large_rewards_are_no_error_and_no_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert _is_finite(np.full(3, 1e30, np.float32)) and not _is_finite(np.array([np.nan, 1.0]))
