"""A policy is learned from a scripted one's episodes in seconds."""

from __future__ import annotations

import pytest
from recorded_episodes import balance, record
from tiny_runs import fit, make_data

from lit_rl.lit_policy import LitPolicy


@pytest.mark.parametrize("algo", ["BC", "MARWIL"])
def test_it_balances_longer_than_what_it_has_seen(tmp_path, algo):
    path = record(tmp_path / "balance.jsonl", 20, "CartPole-v1", act=balance, limit=150)
    data = make_data("CartPole-v1", input=path, step_per_epoch=300, episode_per_test=4, num_test_envs=4)
    policy = LitPolicy(algo, data.spaces, lr=3e-3, batch_size=128)
    fit(policy, data, 1)
    data.close()
    assert policy.reported["Eval/return"] > 400 and policy.reported["Eval/f1"] > 0.8
