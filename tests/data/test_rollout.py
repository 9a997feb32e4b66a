from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from recorded_env import (
    MIXED,
    Recorded,
    RecordedDict,
    Scripted,
    as_rows,
    is_truncated,
    length_of,
    make_collector,
    reward_of,
)
from torch import nn

from lit_rl.data.collector import Collector
from lit_rl.data.plans import ReplayPlan, RolloutPlan
from lit_rl.data.rollout import RewardScale, RolloutSource, evaluate_rollout
from lit_rl.data.transitions import RolloutBatch, Steps
from lit_rl.envs.vector import make_vector_env, probe
from lit_rl.networks.architecture import Architecture
from lit_rl.policies.actor_critic import ActorCritic
from lit_rl.policies.base import Evaluated

GAMMA, LAMBDA = 0.5, 0.5
NATIVE = {"vector_env": "native", "env": "RecordedNative-v0"}
KINDS = {
    "sync": {},
    "async": {"vector_env": "async"},
    "reusing": {"reuses": True},
    "dict": {"env": RecordedDict},
    "native": NATIVE,
    "native reusing": NATIVE | {"reuses": True},
}
PLAN = RolloutPlan(steps_per_iteration=24, rollout_length=4, epochs=2, batch_size=4, gamma=GAMMA, gae_lambda=LAMBDA)


def value_of(lane, episode, t):
    """What the critic below says; exact in float32."""
    return lane * 4 + episode + t / 8


class Valuing(Scripted):
    """Does what its parent does, values by :func:`value_of`, and gives every action its own log-probability."""

    def __init__(self, spaces):
        super().__init__(spaces)
        self.forwards = 0

    def evaluate(self, obs, action, sequences=()):
        self.forwards += 1
        return Evaluated(-1.0 - action.float(), torch.zeros(len(action)), self.value(obs))

    def value(self, obs, state=None):
        lane, episode, t = as_rows(obs).float().unbind(-1)
        return lane * 4 + episode + t / 8


def make_source(num_envs=2, plan=PLAN, world_size=1, **kwargs):
    collector, policy = make_collector(num_envs, **kwargs)
    return RolloutSource(plan, collector, 0, world_size), Valuing(policy.spaces)


def keys_of(batch):
    return [tuple(int(x) for x in row) for row in as_rows(batch.obs)]


def truth(keys, lengths=MIXED):
    """Advantage of each step of a rollout (its steps by lane, in time order), step by step from the last one."""
    found = {}
    for lane in {key[0] for key in keys}:
        following = 0.0
        for number, (_, episode, t) in enumerate(reversed([key for key in keys if key[0] == lane])):
            over = t + 1 == length_of(lane, episode, lengths)
            terminated = over and not is_truncated(lane, episode)
            after = 0.0 if terminated else value_of(lane, episode, t + 1)
            reward = reward_of(lane, episode, t, (episode + t) % 3)
            delta = reward + GAMMA * after - value_of(lane, episode, t)
            following = delta if over or number == 0 else delta + GAMMA * LAMBDA * following
            found[lane, episode, t] = following
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_every_advantage_is_the_true_one(kind):
    source, policy = make_source(3, **KINDS[kind])
    seen = set()
    for _ in range(8):
        rollout = source.collect(policy)
        keys = keys_of(rollout)
        assert not seen & set(keys) and len(set(keys)) == len(keys)
        seen |= set(keys)
        expected = truth(sorted(keys))
        assert rollout.advantage.tolist() == [expected[key] for key in keys]
        values = [value_of(*key) for key in keys]
        assert rollout.value.tolist() == values
        assert rollout.return_.tolist() == [expected[key] + value for key, value in zip(keys, values, strict=True)]
        assert rollout.log_prob.tolist() == [-1.0 - (episode + t) % 3 for _, episode, t in keys]
    assert source.env_steps == 8 * 3 * PLAN.rollout_length
    assert policy.forwards == 8, "one batched forward for a whole rollout, not one a step"
    source.collector.close()


def test_shuffled_minibatches_outlive_the_block_that_they_were_collected_in():
    source, policy = make_source()
    batches = list(source.split(source.collect(policy)))
    before = [keys_of(batch) for batch in batches]
    source.collect(policy)
    assert before == [keys_of(batch) for batch in batches]


@pytest.mark.parametrize(
    "batch_size, count, size", [(4, 2, 4), (3, 2, 4), (5, 1, 8), (1, 8, 1), (100, 1, 8), (None, 1, 8)]
)
def test_each_epoch_shows_every_transition_once(batch_size, count, size):
    source, policy = make_source(plan=dataclasses.replace(PLAN, batch_size=batch_size))
    rollout = source.collect(policy)
    batches = list(source.split(rollout))
    assert [len(batch.value) for batch in batches] == [size] * count * PLAN.epochs
    epochs = [batches[i * count : (i + 1) * count] for i in range(PLAN.epochs)]
    orders = [[key for batch in epoch for key in keys_of(batch)] for epoch in epochs]
    for order in orders:
        assert sorted(order) == sorted(keys_of(rollout))
    assert (orders[0] != orders[1]) == (count > 1), "shuffled anew, unless there is but one minibatch"
    assert [bool(batch.last) for batch in batches] == [False] * (len(batches) - 1) + [True]
    whole = dict(zip(keys_of(rollout), rollout.advantage.tolist(), strict=True))
    for batch in batches:
        assert [whole[key] for key in keys_of(batch)] == batch.advantage.tolist()


def test_what_does_not_divide_is_left_over_but_for_less_than_one_of_each_minibatch():
    source, policy = make_source(plan=dataclasses.replace(PLAN, rollout_length=11, batch_size=4))
    batches = list(source.split(source.collect(policy)))
    assert [len(batch.value) for batch in batches] == [4] * 5 * PLAN.epochs


@pytest.mark.parametrize("lengths", [(1,), (2,), MIXED])
def test_envs_that_reset_in_the_next_step_change_neither_number_nor_size_of_minibatches(lengths):
    source, policy = make_source(3, **NATIVE, lengths=lengths)
    made = set()
    for _ in range(6):
        rollout = source.collect(policy)
        made.add(len(rollout.value))
        batches = list(source.split(rollout))
        assert [len(batch.value) for batch in batches] == [4] * 3 * PLAN.epochs
        assert {key for batch in batches for key in keys_of(batch)} <= set(keys_of(rollout))
    assert len(made) > 1 or lengths == (1,) or lengths == (2,)
    source.collector.close()


def test_a_rollout_is_collected_only_when_it_is_pulled_and_by_the_policy_of_that_moment():
    source, policy = make_source()
    experience = source.experience(policy)
    assert not hasattr(experience, "__iter__") and source.env_steps == 0
    seen = []
    for number, batch in enumerate(experience.minibatches()):
        assert experience.env_steps == 8 * (1 + number // 4)
        seen.append(keys_of(batch))
        assert source.collector.env_steps == experience.env_steps
    assert len(seen) == 3 * 2 * PLAN.epochs, "three rollouts of 8 env steps make an iteration of 24"


def test_a_rollout_that_taught_enough_is_dropped_and_the_next_one_is_not():
    source, policy = make_source()
    experience = source.experience(policy)
    rollouts = []
    for number, _ in enumerate(experience.minibatches()):
        rollouts.append(experience.env_steps // 8)
        experience.feedback(None, enough=number == 1)
    assert rollouts == [1] * 2 + [2] * 4 + [3] * 4


def test_ranks_count_each_others_env_steps():
    source, policy = make_source(plan=dataclasses.replace(PLAN, steps_per_iteration=32), world_size=2)
    steps = [source.env_steps for _ in source.experience(policy).minibatches()]
    assert steps == [16] * 4 + [32] * 4 and source.collector.env_steps == 16


def test_observations_reach_running_statistics_after_they_were_learned_from():
    source, policy = make_source()
    noted = []
    policy.observe = lambda obs: noted.append(len(obs))
    for number, _ in enumerate(source.experience(policy).minibatches()):
        assert len(noted) == number // 4
    assert noted == [8, 8, 8]


def test_a_saved_source_goes_on_the_same_way():
    plan = dataclasses.replace(PLAN, normalize_reward=True)
    source, policy = make_source(plan=plan)
    list(source.experience(policy).minibatches())
    state = source.state_dict()
    runs = []
    for _ in range(2):
        again, policy = make_source(plan=plan)
        again.load_state_dict(state)
        assert again.env_steps == 24
        runs.append(
            [torch.cat([as_rows(b.obs), b.advantage[:, None]], 1) for b in again.experience(policy).minibatches()]
        )
    assert all(torch.equal(one, two) for one, two in zip(*runs, strict=True))


def test_a_next_stage_counts_on_and_keeps_the_scale_of_rewards():
    plan = dataclasses.replace(PLAN, normalize_reward=True)
    first, policy = make_source(plan=plan)
    list(first.experience(policy).minibatches())
    second = RolloutSource(dataclasses.replace(plan, epochs=1), first.collector, 1, 1)
    assert second.adopt(first) and second.env_steps == 24 and second.reward_scale is first.reward_scale
    third = RolloutSource(PLAN, first.collector, 1, 1)
    assert not third.adopt(second) and third.env_steps == 24 and third.reward_scale is None
    replay = ReplayPlan(8, 4, 1.0, 4, 100, 0, 0.9).make_source(first.collector, 0, 1)
    assert not replay.adopt(third) and replay.env_steps == 24
    assert not second.adopt(replay) and second.reward_scale is first.reward_scale


def steps_of(reward, ended, valid=None):
    shape = np.shape(reward)
    none = np.zeros(shape, bool)
    return Steps(
        obs=np.zeros((shape[0] + 1, *shape[1:], 1), np.float32),
        action=np.zeros(shape, np.int64),
        reward=np.array(reward, np.float32),
        terminated=np.array(ended, bool),
        truncated=none,
        valid=np.ones(shape, bool) if valid is None else np.array(valid, bool),
        final_index=np.zeros((0, 2), np.int64),
        final_obs=np.zeros((0, 1), np.float32),
    )


def test_rewards_are_divided_by_the_spread_of_discounted_returns():
    scale = RewardScale(0.5, 1)
    # The discounted return as it builds up: 4, 4/2 + 2 = 4, ended, 6, 6/2 + 1 = 4.
    first = scale.scaled(steps_of([[4], [2], [6], [1]], [[0], [1], [0], [0]]))
    spread = np.std([4.0, 4.0, 6.0, 4.0])
    np.testing.assert_allclose(first[:, 0], np.array([4, 2, 6, 1]) / spread, rtol=1e-6)
    second = scale.scaled(steps_of([[8]], [[0]]))  # 4/2 + 8 = 10
    np.testing.assert_allclose(second[0, 0], 8 / np.std([4.0, 4.0, 6.0, 4.0, 10.0]), rtol=1e-6)
    scale.cut()
    third = scale.scaled(steps_of([[8], [0]], [[1], [0]], [[1], [0]]))  # 8; the reset counts for nothing
    np.testing.assert_allclose(third[0, 0], 8 / np.std([4.0, 4.0, 6.0, 4.0, 10.0, 8.0]), rtol=1e-6)


def test_advantages_are_of_the_scaled_rewards_and_episodes_of_the_raw_ones():
    plan = dataclasses.replace(PLAN, normalize_reward=True, gae_lambda=0.0, gamma=0.0, rollout_length=40)
    source, policy = make_source(plan=plan)
    rollout = source.collect(policy)
    raw = np.array([reward_of(lane, e, t, (e + t) % 3) for lane, e, t in keys_of(rollout)])
    expected = np.clip(raw / raw.std(), -10, 10)
    np.testing.assert_allclose(rollout.return_.numpy(), expected, rtol=1e-4)
    episode = source.collector.take_episodes()[0]
    assert episode.return_ in (sum(reward_of(lane, 0, t, t % 3) for t in range(length_of(lane, 0))) for lane in (0, 1))


def test_plain_networks_are_evaluated_in_numpy_and_say_what_torch_says():
    spaces = probe("CartPole-v1", {})
    policy = ActorCritic(spaces, Architecture([8], "tanh"))
    envs = make_vector_env("CartPole-v1", {"max_episode_steps": 5}, 3, "sync", autoreset="same_step")
    collector = Collector(envs, spaces, lambda _: [1, 2, 3], torch.Generator().manual_seed(0), 3)
    source = RolloutSource(dataclasses.replace(PLAN, rollout_length=8), collector, 0, 1)
    blocks, collect = [], collector.collect
    collector.collect = lambda *args, **kwargs: blocks.append(collect(*args, **kwargs)) or blocks[-1]
    with torch.no_grad():
        expected_of, policy.evaluate = policy.evaluate, None  # torch's way is not taken
        rollout = source.collect(policy)
        policy.evaluate = expected_of
        (steps,) = blocks
        assert steps.truncated.any()
        for found, expected in zip(rollout[:-1], evaluate_rollout(steps, policy, GAMMA, LAMBDA)[:-1], strict=True):
            torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    envs.close()


def test_a_rollout_stands_on_the_policys_device_in_float32():
    source, policy = make_source()
    policy.actor = nn.Linear(1, 1).double()
    rollout = source.collect(policy)
    assert isinstance(rollout, RolloutBatch)
    for x in (rollout.log_prob, rollout.value, rollout.advantage, rollout.return_):
        assert x.dtype == torch.float32 and x.shape == (8,)
    assert Recorded.action_space.n == 3
