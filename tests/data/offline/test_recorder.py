"""What a collector collects is recorded as the episodes that were played."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from recorded_episodes import spaces_of
from tiny_envs import Counting, FromThree
from tiny_runs import Signs, fit, make_data, make_policy

from lit_rl.data.collector import Collector
from lit_rl.data.offline.json_lines import JsonLines
from lit_rl.data.offline.recorder import BlockRecorder
from lit_rl.data.offline.writers import open_writer
from lit_rl.envs.vector import make_vector_env
from lit_rl.lit_policy import LitPolicy
from lit_rl.networks.architecture import Architecture
from lit_rl.policies.epsilon_greedy import EpsilonGreedy, QNetwork


def collect(path, blocks, env=Counting, kind="sync", num_envs=2, epsilon=0.3, **config):
    """Collect blocks of env steps and read back what was recorded."""
    spaces = spaces_of(env, **config)
    envs = make_vector_env(env, config, num_envs, kind, autoreset="same_step")
    collector = Collector(envs, spaces, lambda n: [n + i for i in range(num_envs)], torch.Generator(), num_envs)
    collector.recorder = BlockRecorder(open_writer(str(path), spaces), spaces, num_envs)
    policy = EpsilonGreedy(spaces, QNetwork(spaces, Architecture([4], "relu"), False), epsilon)
    env_steps = 0
    for block in blocks:
        collector.collect(block, policy, env_steps, random=epsilon is None)
        env_steps += block
    collector.close()
    found = JsonLines(path)
    return [found.read(i, spaces) for i in range(len(found))], policy


@pytest.mark.parametrize("blocks", [[24], [2] * 12, [10, 14]])
def test_episodes_are_whole_however_they_were_collected(tmp_path, blocks):
    episodes, _ = collect(tmp_path / "a.jsonl", blocks)
    assert [len(e.reward) for e in episodes] == [3] * 8 and all(e.terminated and not e.truncated for e in episodes)
    for episode in episodes:
        assert episode.obs[:, 1].tolist() == [0, 1, 2, 3] and len(set(episode.obs[:, 0])) == 1


def test_what_is_broken_off_is_truncated_and_actions_are_the_envs_own(tmp_path):
    episodes, _ = collect(tmp_path / "a.jsonl", [4, 4], FromThree, truncates=True)
    assert sorted(len(e.reward) for e in episodes) == [1, 1, 3, 3]
    assert all(e.truncated and not e.terminated for e in episodes)
    for episode in episodes:
        assert set(episode.action) <= {3, 4} and (episode.reward == episode.action).all()


def test_log_probabilities_are_of_what_explored(tmp_path):
    episodes, policy = collect(tmp_path / "a.jsonl", [7, 23], num_envs=1, epsilon=[[0, 1.0], [20, 0.2]])
    with torch.no_grad():
        for n, episode in enumerate(episodes):
            greedy = policy.act(torch.from_numpy(episode.obs[:-1])).action.numpy() == episode.action
            epsilon = np.maximum(0.2, 1 - 0.8 * (3 * n + np.arange(3)) / 20)
            expected = np.log(epsilon / 2 + (1 - epsilon) * greedy)
            np.testing.assert_allclose(episode.log_prob, expected, rtol=1e-5)


def test_policies_that_give_actions_no_probability_are_recorded_without(tmp_path):
    data = make_data(Signs, output=str(tmp_path / "a.jsonl"), num_envs=1)
    fit(LitPolicy("ES", data.spaces, members=4, steps_per_iteration=40, hidden_sizes=[4]), data, 1)
    data.close()
    found = JsonLines(tmp_path / "a.jsonl")
    episodes = [found.read(i, data.spaces) for i in range(len(found))]
    assert sum(len(e.reward) for e in episodes) == 40 and all(e.log_prob is None for e in episodes)
    assert sorted({len(e.reward) for e in episodes}) == [2, 4]  # each member's last one is broken off


def test_a_run_records_what_it_collects_and_learns_from_it_again(tmp_path):
    path = str(tmp_path / "a.jsonl.gz")
    data = make_data(Signs, output=path)
    policy = make_policy(data)
    fit(policy, data, 2)
    collected = policy.env_steps
    data.close()
    found = JsonLines(path)
    steps = sum(len(found.read(i, data.spaces).reward) for i in range(len(found)))
    assert steps == collected == 80
    again = make_data(Signs, input=path, env_config={})
    offline = make_policy(again)
    fit(offline, again, 1)
    assert (offline.updates, offline.env_steps, offline.curve_step) == (40, 0, 40)
    assert {"Eval/f1", "Eval/wis_return", "Eval/return"} <= offline.reported.keys()
    again.close()
