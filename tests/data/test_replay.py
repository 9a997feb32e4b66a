from __future__ import annotations

import random

import numpy as np
import pytest
import torch
from recorded_env import (
    MIXED,
    Recorded,
    RecordedDict,
    action_at,
    as_rows,
    is_truncated,
    length_of,
    make_collector,
    reward_of,
)

from lit_rl.data.buffer import ReplayBuffer
from lit_rl.data.integers import Integers
from lit_rl.data.plans import ReplayPlan
from lit_rl.data.replay import ReplaySource
from lit_rl.errors import UsageError
from lit_rl.functional.tree import tree_leaves

GAMMA = 0.5
NATIVE = {"vector_env": "native", "env": "RecordedNative-v0"}
PLAN = ReplayPlan(
    steps_per_iteration=12,
    collect_per_step=4,
    update_per_step=0.5,
    batch_size=8,
    buffer_size=200,
    learning_starts=0,
    gamma=GAMMA,
    n_step=2,
)


class History:
    """All steps of the recorded envs, and what a ring of some rows should hold of them."""

    def __init__(self, lengths=MIXED):
        self.lengths = lengths
        self.made = {}  # steps by lane
        self.began = {}  # number of the step at which a lane was restarted last

    def rows(self, lane, waits_for_reset):
        """(episode, t) of each row of a lane, oldest first; the final observations and the current one are None."""
        rows, episode, t = [], 0, 0
        for _ in range(self.made[lane]):
            rows.append((episode, t))
            t += 1
            if t == length_of(lane, episode, self.lengths):
                rows.append(None)
                episode, t = episode + 1, 0
        return rows if waits_for_reset else [*rows, None]

    def kept(self, lane, ring, waits_for_reset):
        return {row for row in self.rows(lane, waits_for_reset)[-ring:] if row is not None}

    def n_steps(self, lane, episode, t, n):
        """Reward, discount and next observation of the n-step transition that begins there."""
        before = sum(length_of(lane, e, self.lengths) for e in range(episode))
        length = length_of(lane, episode, self.lengths)
        steps = min(n, length - t, self.made[lane] - before - t)
        reward = sum(GAMMA**k * reward_of(lane, episode, t + k, action_at(episode, t + k)) for k in range(steps))
        terminated = t + steps == length and not is_truncated(lane, episode)
        return reward, 0.0 if terminated else GAMMA**steps, [lane, episode, t + steps]


def check(buffer, history, n_step):
    """Every transition that the buffer would sample is a true one; which ones there are, as {(lane, episode, t)}."""
    rows = np.flatnonzero(buffer.is_transition)
    batch = buffer.gather(rows, n_step, GAMMA)
    found = [tuple(int(x) for x in row) for row in as_rows(batch.obs)]
    for i, (lane, episode, t) in enumerate(found):
        assert int(batch.action[i]) == action_at(episode, t)
        got = float(batch.reward[i]), float(batch.discount[i]), as_rows(batch.next_obs)[i].tolist()
        assert got == history.n_steps(lane, episode, t, n_step), (lane, episode, t)
    assert len(set(found)) == len(found) == len(buffer)
    return set(found)


def fill(collector, policy, buffer, history, n):
    """Collect into the buffer, and the history."""
    steps = collector.collect(n, policy, 0)
    buffer.add(steps)
    for lane in range(collector.num_envs):
        history.made[lane] = history.made.get(lane, 0) + int(np.asarray(steps.valid)[:, lane].sum())


@pytest.mark.parametrize("ring", [11, 12, 17, 100])
@pytest.mark.parametrize("env", [{}, NATIVE, {"env": RecordedDict}, {"reuses": True}], ids=str)
def test_every_sample_is_a_true_transition_while_the_ring_wraps_many_times(ring, env):
    collector, policy = make_collector(2, **env)
    buffer, history = ReplayBuffer(2 * ring + 1, 2), History()
    sizes = random.Random(ring)
    for round in range(40):
        fill(collector, policy, buffer, history, sizes.randrange(0, 10))
        if not any(history.made.values()):
            continue
        found = check(buffer, history, n_step=(1, 2, 3, 5)[round % 4])
        waits = collector._resetting
        expected = {(lane, *row) for lane in (0, 1) for row in history.kept(lane, ring, waits[lane])}
        assert found == expected
    assert buffer.filled == min(ring, buffer.filled)


@pytest.mark.parametrize("lengths", [(1,), (2,), (3,), (1, 9)])
@pytest.mark.parametrize("ring", [3, 4, 5, 9])
@pytest.mark.parametrize("env", [{}, NATIVE], ids=["same step", "next step"])
def test_blocks_larger_than_the_ring_leave_only_true_transitions(ring, lengths, env):
    collector, policy = make_collector(2, lengths=lengths, **env)
    buffer, history = ReplayBuffer(2 * ring, 2), History(lengths)
    for n in (2, 40, 6, 18, 2, 2, 30, 4, 4, 4):
        fill(collector, policy, buffer, history, n)
        assert check(buffer, history, n_step=3)


def test_truncated_episodes_bootstrap_and_terminated_ones_do_not():
    collector, policy = make_collector(2, lengths=(2,))  # lane 0: terminated, truncated, ...; lane 1 the other way
    buffer, history = ReplayBuffer(100, 2), History((2,))
    fill(collector, policy, buffer, history, 8)
    rows = np.flatnonzero(buffer.is_transition)
    batch = buffer.gather(rows, 1, 0.5)
    assert batch.obs.tolist() == [[n, e, t] for n in (0, 1) for e in (0, 1) for t in (0, 1)]
    assert batch.discount.tolist() == [0.5, 0.0, 0.5, 0.5, 0.5, 0.5, 0.5, 0.0]
    assert batch.next_obs.tolist() == [[n, e, t + 1] for n in (0, 1) for e in (0, 1) for t in (0, 1)]
    assert batch.weight.tolist() == [1.0] * 8


def test_n_step_returns_by_hand():
    collector, policy = make_collector(1, lengths=(3,))
    buffer, history = ReplayBuffer(100, 1), History((3,))
    fill(collector, policy, buffer, history, 5)  # a terminated episode of 3, and 2 steps of one that goes on
    batch = buffer.gather(np.flatnonzero(buffer.is_transition), 2, 0.5)
    # actions 0 1 2 | 1 2, rewards 0 + 0, 1 + 1/4, 2 + 2/4 | 8 + 1/4, 9 + 2/4
    assert batch.reward.tolist() == [0.625, 1.25 + 1.25, 2.5, 8.25 + 4.75, 9.5]
    assert batch.discount.tolist() == [0.25, 0.0, 0.0, 0.25, 0.5]
    assert batch.next_obs[:, 2].tolist() == [2, 3, 3, 2, 2]


def test_sampling_is_uniform_over_all_that_is_kept():
    collector, policy = make_collector(3)
    buffer, history = ReplayBuffer(3 * 17, 3), History()
    for n in (3, 30, 33, 6):
        fill(collector, policy, buffer, history, n)
    rows = np.flatnonzero(buffer.is_transition)
    assert 20 < len(rows) < 48  # final observations and current ones take some of the 51
    draws = 400 * len(rows)
    drawn = buffer.draw(draws, Integers(torch.Generator().manual_seed(1)))
    counts = np.bincount(drawn, minlength=51)
    assert int(counts[rows].sum()) == draws
    chi_square = float(((counts[rows] - 400.0) ** 2 / 400).sum())
    freedom = len(rows) - 1
    assert freedom - 4 * (2 * freedom) ** 0.5 < chi_square < freedom + 4 * (2 * freedom) ** 0.5


def test_sampling_is_uniform_while_the_ring_fills_unevenly():
    collector, policy = make_collector(2, lengths=(1, 1, 6, 1, 1, 1, 1, 1))
    buffer, history = ReplayBuffer(200, 2), History()
    fill(collector, policy, buffer, history, 30)
    rows = np.flatnonzero(buffer.is_transition)
    assert len(rows) == 30
    counts = np.bincount(buffer.draw(30_000, Integers(torch.Generator().manual_seed(2))), minlength=200)[rows]
    assert counts.min() > 850 and counts.max() < 1150  # 1000 ± 4.7 standard deviations


@pytest.mark.parametrize("ring", [12, 40])
def test_episodes_under_way_are_cut_as_truncated(ring):
    collector, policy = make_collector(2, lengths=(50,))
    buffer, history = ReplayBuffer(2 * ring, 2), History((50,))
    fill(collector, policy, buffer, history, 16)
    buffer.cut()
    newest = buffer.gather(np.flatnonzero(buffer.is_transition), 3, 0.5)
    last = newest.obs[:, 2] == 7
    assert newest.discount[last].tolist() == [0.5, 0.5]  # bootstraps, although it was no end
    assert newest.next_obs[last].tolist() == [[0, 0, 8], [1, 0, 8]]
    buffer.cut()  # a second time changes nothing
    assert len(buffer) == len(newest.reward)
    collector.load_state_dict(collector.state_dict())  # begins fresh episodes
    buffer.add(collector.collect(6, policy, 0))
    batch = buffer.gather(np.flatnonzero(buffer.is_transition), 3, 0.5)
    after = [(*a, *b) for a, b in zip(batch.obs[:, 1:].tolist(), batch.next_obs[:, 1:].tolist(), strict=True)]
    assert all(e == 0 and 0 < t2 - t <= 3 for e, t, _, t2 in after)
    assert sum(t2 == 8 for _, _, _, t2 in after) == 2 * 3


@pytest.mark.parametrize("waits", [False, True])
@pytest.mark.parametrize("steps", [10, 60])
def test_a_saved_ring_goes_on_as_if_nothing_had_been(steps, waits):
    collector, policy = make_collector(2, **(NATIVE if waits else {}))
    buffer, history = ReplayBuffer(30, 2), History()
    fill(collector, policy, buffer, history, steps)
    used = ReplayBuffer(30, 2)  # has held other things before
    other, _ = make_collector(2, lengths=(2,))
    used.add(other.collect(26, policy, 0))
    used.load_state_dict(buffer.state_dict())
    for target in (buffer, used):
        assert check(target, history, 3) == check(buffer, history, 3)
    drawn = [x.draw(50, Integers(torch.Generator().manual_seed(3))) for x in (buffer, used)]
    assert np.array_equal(*drawn)
    for _ in range(12):
        block = collector.collect(4, policy, 0)
        buffer.add(block)
        used.add(block)
        for lane in range(2):
            history.made[lane] += int(np.asarray(block.valid)[:, lane].sum())
        assert check(used, history, 2) == check(buffer, history, 2)


def test_a_saved_ring_is_only_its_filled_part_and_shares_no_memory():
    collector, policy = make_collector(2)
    buffer, history = ReplayBuffer(20_000, 2), History()
    fill(collector, policy, buffer, history, 20)
    state = buffer.state_dict()
    leaves = [x for x in tree_leaves(state) if isinstance(x, torch.Tensor)]
    assert sum(x.numel() for x in leaves) < 500
    before = state["reward"].clone()
    buffer.reward.fill_(-1)
    assert torch.equal(state["reward"], before)


def test_an_empty_ring_can_be_saved_and_loaded(tmp_path):
    torch.save(ReplayBuffer(30, 2).state_dict(), tmp_path / "x")
    buffer = ReplayBuffer(30, 2)
    buffer.load_state_dict(torch.load(tmp_path / "x", weights_only=True))
    assert len(buffer) == 0
    buffer.cut()
    collector, policy = make_collector(2)
    history = History()
    fill(collector, policy, buffer, history, 6)
    assert len(check(buffer, history, 2)) == 6


def test_another_size_or_number_of_envs_is_refused():
    with pytest.raises(UsageError, match="15 rows for each of 2 envs, this run's 10 for 3"):
        ReplayBuffer(30, 3).load_state_dict(ReplayBuffer(30, 2).state_dict())
    with pytest.raises(UsageError, match="--buffer_size 5 .* at least 6"):
        ReplayBuffer(5, 2)


def make_source(plan=PLAN, num_envs=2, **kwargs):
    collector, policy = make_collector(num_envs, **kwargs)
    return ReplaySource(plan, collector, 5, 1), policy


def test_an_iteration_collects_only_when_a_minibatch_is_pulled():
    source, policy = make_source()
    minibatches = source.experience(policy).minibatches()
    assert policy.seen == source.env_steps == 0
    seen = []
    for _ in range(6):
        next(minibatches)
        seen.append((policy.seen, source.env_steps))
    assert seen == [(4, 4)] * 2 + [(8, 8)] * 2 + [(12, 12)] * 2
    assert list(minibatches) == []


def test_learning_starts_with_the_collect_that_reaches_it_and_fractions_are_carried_over():
    source, policy = make_source(PLAN.__class__(**(vars(PLAN) | {"learning_starts": 16, "update_per_step": 0.3})))
    due = []
    for _ in range(14):
        source.collect(policy)
        due.append(source.updates_due())
    # 1.2 updates a collect from the fourth on
    assert due == [0, 0, 0, 1, 1, 1, 1, 2, 1, 1, 1, 1, 2, 1]


def test_the_rate_of_updates_is_exact_over_a_long_run():
    source, _ = make_source(PLAN.__class__(**(vars(PLAN) | {"collect_per_step": 1, "update_per_step": 0.1})))
    total = 0
    for _ in range(10_000):
        source.env_steps += 1
        total += source.updates_due()
    assert total == 1000


def test_random_steps_come_before_the_policy_and_only_once():
    source, policy = make_source(PLAN.__class__(**(vars(PLAN) | {"random_steps": 8})))
    for _ in range(2):
        source.collect(policy)
    assert policy.seen == 0
    source.collect(policy)
    assert policy.seen == 4


def test_minibatches_are_what_the_plan_says():
    source, policy = make_source()
    batches = list(source.experience(policy).minibatches())
    assert len(batches) == 6
    for batch in batches:
        assert batch.obs.shape == (8, 3) and batch.reward.dtype == batch.discount.dtype == torch.float32
        assert set(batch.discount.tolist()) <= {0.0, 0.5, 0.25}


def test_minibatches_come_in_the_same_tensors_and_each_holds_until_the_next_ones_are_drawn():
    source, policy = make_source()
    source.collect(policy)
    drawn = []
    for _ in range(4):
        (batch,) = source.sample(1)
        drawn.append((batch, batch.next_obs.clone()))
    assert all(batch is drawn[0][0] for batch, _ in drawn)
    assert torch.equal(batch.next_obs, drawn[3][1]) and not torch.equal(batch.next_obs, drawn[0][1])
    pair = list(source.sample(2))  # drawn together: both hold
    assert not torch.equal(pair[0].next_obs, pair[1].next_obs)


def test_a_saved_source_goes_on_with_the_same_numbers():
    source, policy = make_source()
    list(source.experience(policy).minibatches())
    state = source.state_dict()
    source.load_state_dict(state)  # begins fresh episodes, as every resumed run does
    other, _ = make_source()
    other.load_state_dict(state)
    for one, two in zip(source.experience(policy).minibatches(), other.experience(policy).minibatches(), strict=True):
        assert all(torch.equal(a, b) for a, b in zip(one, two, strict=True))
    assert source.env_steps == other.env_steps == 24


@pytest.mark.parametrize("env", [{}, NATIVE], ids=["same step", "next step"])
@pytest.mark.parametrize("lengths", [(50,), (1, 2)])
def test_a_resumed_source_joins_no_episodes(env, lengths):
    source, policy = make_source(seeds=lambda restart: [100 + restart, 300 + restart], lengths=lengths, **env)
    list(source.experience(policy).minibatches())
    source.load_state_dict(source.state_dict())
    list(source.experience(policy).minibatches())
    rows = np.flatnonzero(source.buffer.is_transition)
    batch = source.buffer.gather(rows, 3, GAMMA)
    assert len(rows) >= 22 and len(batch.obs[:, 0].unique()) == 4  # two restarts of two envs
    steps = batch.next_obs - batch.obs
    assert (steps[:, :2] == 0).all() and (steps[:, 2] > 0).all()


def test_a_later_stage_takes_over_steps_and_buffer():
    first, policy = make_source(PLAN.__class__(**(vars(PLAN) | {"learning_starts": 12})))
    list(first.experience(policy).minibatches())
    second = ReplaySource(first.plan, first.collector, 6, 1)
    assert second.adopt(first)
    assert second.env_steps == 12 and second.buffer is first.buffer
    assert len(list(second.experience(policy).minibatches())) == 6  # nothing to wait for
    smaller = ReplaySource(PLAN.__class__(**(vars(first.plan) | {"buffer_size": 60})), first.collector, 6, 1)
    assert not smaller.adopt(second)
    assert smaller.env_steps == 24 and len(smaller.buffer) == 0
    assert len(list(smaller.experience(policy).minibatches())) == 2  # waits for 12 env steps of its own


def test_rows_of_a_lane_are_its_own():
    collector, policy = make_collector(3, env=Recorded)
    buffer, history = ReplayBuffer(3 * 13, 3), History()
    for _ in range(9):
        fill(collector, policy, buffer, history, 9)
    lanes = buffer.obs[:, 0].reshape(3, 13)
    assert (lanes == torch.arange(3)[:, None]).all()
