"""Stacks that are made of single frames: what is acted on, sampled, learned from and evaluated has one truth."""

from __future__ import annotations

import random

import gymnasium as gym
import numpy as np
import pytest
import torch
from recorded_env import MIXED, Recorded, RecordedDict, Scripted, action_at, as_rows, length_of, make_collector
from torch import nn

from lit_rl.data.buffer import ReplayBuffer
from lit_rl.data.evaluation import play_episodes
from lit_rl.data.prioritized import SumTree
from lit_rl.data.stacks import stacked
from lit_rl.data.transitions import Steps
from lit_rl.envs.frames import Stacking, stack_spaces
from lit_rl.envs.spaces import Spaces
from lit_rl.envs.vector import make_vector_env, probe
from lit_rl.errors import UsageError
from lit_rl.functional.tree import tree_leaves, tree_map

NATIVE = {"vector_env": "native", "env": "RecordedNative-v0"}
KINDS = {"sync": {}, "async": {"vector_env": "async"}, "next step": NATIVE, "dict": {"env": RecordedDict}}
GAMMA = 0.5


def numbers_of(obs):
    """[lane, episode] of the newest frame, and t of all K, in rows of one observation each."""
    if isinstance(obs, dict):  # the episode is a Discrete, which is not stacked
        lane, episode = obs["where"]
        return [[[int(x[-1, 0]), int(e)], t.tolist()] for x, e, t in zip(lane, episode, obs["t"], strict=True)]
    assert (obs[:, :, :2] == obs[:, -1:, :2]).all()  # never across an episode
    return [[[int(x) for x in row[-1, :2]], [int(t) for t in row[:, 2]]] for row in obs]


def truth(lane, episode, t, depth):
    return [[lane, episode], [max(0, t - back) for back in range(depth - 1, -1, -1)]]


class Watching(Scripted):
    """Notes every observation it acts on."""

    def __init__(self, spaces: Spaces) -> None:
        super().__init__(spaces)
        self.watched = []

    def act(self, obs, noise=None, state=None):
        rows = numbers_of(obs)
        self.watched += rows
        action = torch.tensor([action_at(episode, t[-1]) for (_, episode), t in rows])
        return super().act(tree_map(lambda x: x[:, -1] if x.ndim > 1 else x, obs))._replace(action=action)


def watched_collector(depth, num_envs=2, **kind):
    collector, _ = make_collector(num_envs, frame_stack=depth, **kind)
    return collector, Watching(collector.spaces)


@pytest.mark.parametrize("depth", [2, 4])
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_acted_on_and_what_is_learned_from_are_the_true_stacks(kind, depth):
    collector, policy = watched_collector(depth, **KINDS[kind])
    for n in (2, 6, 2, 30, 4):
        policy.watched = []
        single = collector.collect(n, policy, 0)
        steps = stacked(single, collector.stacking)
        length = len(steps.reward)
        learned = [numbers_of(tree_map(lambda x, t=t: x[t], steps.obs)) for t in range(length + 1)]
        assert policy.watched == [row for rows in learned[:-1] for row in rows]
        for rows in learned:
            for (lane, episode), t in rows:
                assert [[lane, episode], t] == truth(lane, episode, t[-1], depth)
        final = numbers_of(steps.final_obs) if len(steps.final_index) else []
        for (lane, episode), t in final:
            assert [[lane, episode], t] == truth(lane, episode, length_of(lane, episode), depth)
        frames = single.obs["t"] if kind == "dict" else single.obs
        assert frames.shape[:2] == (length + 1, 2) and frames.ndim == (2 if kind == "dict" else 3)
    collector.close()


def samples(buffer):
    """All that the buffer would sample as (lane, episode, t), each checked."""
    rows = np.flatnonzero(buffer.is_transition)
    batch = buffer.gather(rows, 1, GAMMA)
    found = set()
    for seen, after in zip(numbers_of(batch.obs), numbers_of(batch.next_obs), strict=True):
        (lane, episode), t = seen
        assert seen == truth(lane, episode, t[-1], buffer.stacking.depth)
        assert after == truth(lane, episode, t[-1] + 1, buffer.stacking.depth)
        found.add((lane, episode, t[-1]))
    assert len(found) == len(buffer)
    return found


@pytest.mark.parametrize(("depth", "ring"), [(2, 7), (4, 7), (4, 12), (3, 17), (4, 100)])
@pytest.mark.parametrize("kind", ["sync", "next step", "dict"])
def test_every_sample_is_a_true_pair_of_stacks_while_the_ring_wraps_many_times(kind, ring, depth):
    collector, policy = watched_collector(depth, **KINDS[kind])
    buffer = ReplayBuffer(2 * ring, 2, collector.stacking)
    sizes, made = random.Random(ring), {0: [], 1: []}
    for _ in range(40):
        steps = collector.collect(sizes.randrange(0, 10), policy, 0)
        changed = buffer.is_transition.clone()
        rows = buffer.add(steps)
        changed ^= buffer.is_transition
        assert set(torch.nonzero(changed).flatten().tolist()) <= set(np.asarray(rows).tolist())
        for t, n in np.argwhere(steps.valid):
            made[n].append(
                tuple(int(x) for x in as_rows(tree_map(lambda x, t=t, n=n: torch.tensor(x[t, n]), steps.obs)))
            )
        found = samples(buffer) if len(steps.reward) else set()
        for lane in (0, 1):
            newest = list(reversed([key for key in made[lane] if key in found]))
            assert newest == list(reversed(made[lane]))[: len(newest)]  # the newest ones, without a gap
            # each episode may cost a row for its final observation, the current one costs one, the oldest stack K - 1
            assert len(newest) >= min(len(made[lane]), (ring - depth) // 2) or not len(steps.reward)
    collector.close()


@pytest.mark.parametrize("ring", [6, 9])
def test_blocks_larger_than_the_ring_leave_only_true_stacks(ring):
    collector, policy = watched_collector(4, lengths=(1, 9))
    buffer = ReplayBuffer(2 * ring, 2, collector.stacking)
    for n in (2, 40, 6, 18, 2, 2, 30, 4):
        buffer.add(collector.collect(n, policy, 0))
        assert samples(buffer) or n == 2


def test_episodes_that_are_cut_and_buffers_from_checkpoints_keep_true_stacks():
    collector, policy = watched_collector(3, lengths=(5,), seeds=lambda steps: [10 * steps, 10 * steps + 1])
    buffer = ReplayBuffer(20, 2, collector.stacking)
    for _ in range(6):
        buffer.add(collector.collect(6, policy, 0))
        buffer.cut()
        collector.cut()
        assert samples(buffer)
        loaded = ReplayBuffer(20, 2, collector.stacking)
        loaded.load_state_dict(buffer.state_dict())
        assert samples(loaded) == samples(buffer)
        buffer = loaded


def test_a_ring_too_short_for_a_stack_is_refused():
    with pytest.raises(UsageError, match="--buffer_size 11 is too small for 2 envs: it must be at least 12"):
        ReplayBuffer(11, 2, make_collector(2, frame_stack=4)[0].stacking)


def test_evaluation_sees_the_same_stacks_and_begins_each_episode_anew():
    spaces = stack_spaces(probe(Recorded, {}), 3)
    envs = make_vector_env(Recorded, {}, 2, "sync", autoreset="disabled")
    policy = Watching(spaces)
    seeds = [(i, 10 + i) for i in range(7)]
    episodes = list(play_episodes(policy, envs, spaces, seeds))
    assert [e.length for e in episodes] == [length_of(seed, 0, MIXED) for _, seed in seeds]
    assert all(row == truth(*row[0], row[1][-1], 3) for row in policy.watched)
    seen = {(row[0][0], row[1][-1]) for row in policy.watched}
    assert {(seed, t) for _, seed in seeds for t in range(length_of(seed, 0, MIXED))} <= seen


def bytes_of(buffer):
    parts = [buffer.action, buffer.reward, buffer.is_transition, buffer.ended, buffer.terminated, buffer.age]
    return sum(x.nbytes for x in [*parts, buffer._following, *tree_leaves(buffer.obs)])


def two_steps(frame, envs):
    """Two vector steps that end nothing."""
    obs, no = np.stack([[frame] * envs] * 3), np.zeros((2, envs), bool)
    age = np.zeros((3, envs), np.uint8)
    return Steps(obs, no.astype(int), no.astype(np.float32), no, no, ~no, np.zeros((0, 2), int), obs[0][:0], age)


def test_a_million_transitions_of_cartpole_take_less_than_60_megabytes():
    buffer = ReplayBuffer(1_000_000, 1)
    buffer.add(two_steps(np.zeros(4, np.float32), 1))
    assert bytes_of(buffer) == 1_000_000 * (4 * 4 + 8 + 4 + 3 + 8)
    assert bytes_of(buffer) + SumTree(1_000_000)._nodes.nbytes < 60e6


def test_a_hundred_thousand_stacks_of_atari_take_less_than_0_8_gigabytes():
    spaces = stack_spaces(Spaces(gym.spaces.Box(0, 255, (84, 84), np.uint8), gym.spaces.Discrete(4)), 4)
    buffer = ReplayBuffer(100_000, 8, Stacking.of(spaces))
    buffer.add(two_steps(np.zeros((84, 84), np.uint8), 8))
    assert buffer.gather(np.array([0]), 1, GAMMA).obs.shape == (1, 4, 84, 84)
    assert bytes_of(buffer) < 0.8e9


def test_frames_are_kept_once():
    collector, policy = watched_collector(4)
    buffer = ReplayBuffer(200, 2, collector.stacking)
    buffer.add(collector.collect(20, policy, 0))
    assert buffer.obs.shape == (200, 3)
    assert nn.Flatten()(buffer.gather(np.array([3]), 1, GAMMA).obs).shape == (1, 12)
