"""Rollouts of a policy that remembers say the same as stepping through every episode by hand, one step after the other."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from recorded_env import MIXED, is_truncated, length_of, make_collector, reward_of
from tiny_runs import fit, make_data
from torch import nn

from lit_rl.data.plans import RolloutPlan
from lit_rl.data.rollout import RolloutSource
from lit_rl.lit_policy import LitPolicy
from lit_rl.networks.architecture import Architecture
from lit_rl.policies.actor_critic import ActorCritic

GAMMA, LAMBDA = 0.5, 0.5
NATIVE = {"vector_env": "native", "env": "RecordedNative-v0"}
KINDS = {"sync": {}, "async": {"vector_env": "async"}, "reusing": {"reuses": True}, "native": NATIVE}
PLAN = RolloutPlan(24, rollout_length=7, epochs=2, batch_size=6, gamma=GAMMA, gae_lambda=LAMBDA, sequence=3)


def make_source(plan=PLAN, share_torso=False, critic=True, **kwargs):
    collector, scripted = make_collector(3, **kwargs)
    torch.manual_seed(0)
    policy = ActorCritic(scripted.spaces, Architecture([5], "tanh", lstm=4), share_torso, critic)
    with torch.no_grad():
        for p in policy.parameters():
            p.add_(torch.randn_like(p) / 4)
    return RolloutSource(plan, collector, 0, 1), policy


@torch.no_grad()
def by_hand(policy, lane, episode, lengths=MIXED):
    """Distribution parameters and value at every step of an episode and at its final observation."""
    found = []
    torsos = policy.torsos
    cells = [(torch.zeros(1, 4), torch.zeros(1, 4)) for _ in torsos]
    lstms = [nn.LSTMCell(5, 4) for _ in torsos]
    for cell, torso in zip(lstms, torsos, strict=True):
        cell.load_state_dict({name.removesuffix("_l0"): x for name, x in torso.lstm.state_dict().items()})
    for t in range(length_of(lane, episode, lengths) + 1):
        obs = torch.tensor([[lane, episode, t]], dtype=torch.float32)
        cells = [lstm(m.torso(obs), cell) for lstm, m, cell in zip(lstms, torsos, cells, strict=True)]
        value = torch.zeros(1) if policy.critic is None else list(policy.critic.modules())[-1](cells[-1][0])[0]
        found.append((policy.actor.read(cells[0][0], obs), float(value)))
    return found


def keys_of(batch):
    return [tuple(int(x) for x in row) for row in batch.obs]


def truth(policy, keys, actions, lengths=MIXED):
    """Log-probability, value and advantage of each step of a rollout (its steps by lane, in time order)."""
    episodes = {(lane, episode): by_hand(policy, lane, episode, lengths) for lane, episode, _ in keys}
    found = {}
    for lane in {key[0] for key in keys}:
        following = 0.0
        for number, key in enumerate(reversed([key for key in keys if key[0] == lane])):
            _, episode, t = key
            steps = episodes[lane, episode]
            over = t + 1 == length_of(lane, episode, lengths)
            after = 0.0 if over and not is_truncated(lane, episode) else steps[t + 1][1]
            delta = reward_of(lane, episode, t, actions[key]) + GAMMA * after - steps[t][1]
            following = delta if over or number == 0 else delta + GAMMA * LAMBDA * following
            action = torch.tensor([actions[key]])
            log_prob = float(policy.actor.distribution.log_prob(steps[t][0], action))
            found[key] = log_prob, steps[t][1], following
    return found


def check(policy, rollout, lengths=MIXED):
    keys = keys_of(rollout)
    actions = dict(zip(keys, rollout.action.tolist(), strict=True))
    expected = truth(policy, sorted(keys), actions, lengths)
    wanted = torch.tensor([expected[key] for key in keys])
    found = torch.stack([rollout.log_prob, rollout.value, rollout.advantage], 1)
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)
    return keys


@pytest.mark.parametrize("shape", ["separate", "shared", "no critic"])
@pytest.mark.parametrize("kind", KINDS)
def test_every_number_is_that_of_stepping_by_hand(kind, shape):
    source, policy = make_source(share_torso=shape == "shared", critic=shape != "no critic", **KINDS[kind])
    seen = []
    for _ in range(4):  # episodes go on from one rollout to the next
        rollout = source.collect(policy)
        seen += check(policy, rollout)
        for batch in source.split(rollout):
            with torch.no_grad():
                again = policy.evaluate(batch.obs, batch.action, batch.sequences)
            torch.testing.assert_close(again.log_prob, batch.log_prob, rtol=1e-4, atol=1e-5)
            torch.testing.assert_close(again.value, batch.value, rtol=1e-4, atol=1e-5)
    assert len(set(seen)) == len(seen) and len({episode for _, episode, _ in seen}) > 5
    source.collector.close()


@pytest.mark.parametrize("sequence", [1, 2, 7, 100])
@pytest.mark.parametrize("kind", ["sync", "native"])
def test_the_length_of_sequences_changes_no_number(kind, sequence):
    source, policy = make_source(dataclasses.replace(PLAN, sequence=sequence), **KINDS[kind], lengths=(9, 1, 4))
    for _ in range(2):
        check(policy, source.collect(policy), (9, 1, 4))
    source.collector.close()


@pytest.mark.parametrize("kind", KINDS)
def test_an_epoch_shows_whole_sequences_and_as_many_minibatches_whatever_came_in(kind):
    source, policy = make_source(**KINDS[kind])
    for _ in range(3):
        rollout = source.collect(policy)
        batches = list(source.split(rollout))
        # 7 vector steps are at least 3 sequences of each of 3 envs; 2 have 6 transitions, so 9 make 4 minibatches
        assert len(batches) == 4 * PLAN.epochs
        assert [bool(batch.last) for batch in batches] == [False] * 7 + [True]
        for epoch in (batches[:4], batches[4:]):
            shown = [key for batch in epoch for key in keys_of(batch)]
            assert len(set(shown)) == len(shown) and set(shown) <= set(keys_of(rollout))
        size = rollout.sequences.rows.shape[1] // 4
        assert size >= 2 and all(batch.sequences.rows.shape == (3, size) for batch in batches)
    source.collector.close()


def test_what_is_learned_flows_back_to_the_beginning_of_sequence_and_episode_and_no_further():
    source, policy = make_source(dataclasses.replace(PLAN, batch_size=None), lengths=(4,))
    rollout = source.collect(policy)
    keys = keys_of(rollout)
    obs = rollout.obs.clone().requires_grad_()
    last = keys.index((0, 1, 1))  # env step 5 of lane 0, in the second sequence: steps 3, 4 (an episode begins) and 5
    evaluated = policy.evaluate(obs, rollout.action, rollout.sequences)
    (gradient,) = torch.autograd.grad(evaluated.value[last], obs)
    assert {key for key, row in zip(keys, gradient, strict=True) if row.any()} == {(0, 1, 0), (0, 1, 1)}
    end = keys.index((0, 0, 2))  # the last step of the first sequence
    (gradient,) = torch.autograd.grad(policy.evaluate(obs, rollout.action, rollout.sequences).value[end], obs)
    assert {key for key, row in zip(keys, gradient, strict=True) if row.any()} == {(0, 0, t) for t in range(3)}


def test_a_fresh_start_of_all_episodes_forgets():
    source, policy = make_source(lengths=(50,))
    source.collect(policy)
    source.cut()
    check(policy, source.collect(policy), (50,))


def test_another_policy_that_remembers_otherwise_begins_without_memories():
    source, policy = make_source(lengths=(50,))
    source.collect(policy)
    other = ActorCritic(policy.spaces, Architecture([5], "tanh", lstm=6))
    first = source.collect(other)
    assert first.sequences.state[0].shape == (9, 2, 6) and not first.sequences.state[0][::3].any()
    plain = ActorCritic(policy.spaces, Architecture([5], "tanh"))
    assert source.collect(plain).sequences == ()


def test_sequences_cut_a_rollout_evenly_where_they_can():
    def fitted(length, longest):
        plan = dataclasses.replace(PLAN, steps_per_iteration=length, rollout_length=length, sequence=longest)
        return plan.fit(length, 1).sequence

    cases = {(2048, 20): 16, (256, 20): 16, (1000, 20): 20, (5, 20): 5, (251, 20): 20, (22, 20): 11, (34, 20): 17}
    assert {case: fitted(*case) for case in cases} == cases
    assert fitted(2048, 1) == 1


def test_without_a_batch_size_a_rollout_is_one_minibatch_however_its_sequences_are_cut():
    data = make_data(num_envs=1)
    policy = LitPolicy(
        *("A2C", data.spaces), hidden_sizes=[4], rollout_length=5, use_lstm=True, lstm_cell_size=4, max_seq_len=4
    )
    fit(policy, data, 1)
    assert policy.updates == data.env_steps // 5
    data.close()
