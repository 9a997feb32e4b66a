"""Flags of networks, from the command line to a checkpoint that is played and gone on with."""

from __future__ import annotations

import json

import lit_rl
from lit_rl.cli import main

SMALL = {
    "algo": "PPO",
    "env": "memory_env:Recall",
    "use_lstm": True,
    "lstm_cell_size": 8,
    "max_seq_len": 5,
    "custom_model": "own_nets:Widened",
    "custom_model_config": {"width": 6},
    "hidden_sizes": [],
    "rollout_length": 20,
    "step_per_epoch": 40,
    "num_envs": 2,
    "max_epochs": 1,
    "max_epochs_2": 2,
    "episode_per_test": 4,
    "num_test_envs": 4,
    "test_episodes": 4,
    "accelerator": "cpu",
    "enable_progress_bar": False,
    "logger": "false",
    "experiment_name": "x",
}


def test_a_memory_on_a_users_own_network_is_trained_in_two_stages_resumed_and_played(tmp_path, capsys):
    out = ["--output_dir", str(tmp_path)]
    assert main(["train", "--two_steps", *out, "--config", json.dumps(SMALL)]) == 0
    policy = lit_rl.load_policy(tmp_path / "x").policy
    assert policy.actor.torso.lstm.input_size == 6 and policy.actor.torso.features == 8
    assert main(["train", "--experiment_name", "x", *out, "--resume", "--max_epochs_2", "3"]) == 0
    assert json.loads((tmp_path / "x" / "summary.json").read_text())["stage2"]["epochs"] == 3
    assert main(["train", "--experiment_name", "x", *out, "--resume", "--max_seq_len", "4"]) == 2
    assert "--max_seq_len 4 would change what was learned so far" in capsys.readouterr().err
    played = ["rollout", str(tmp_path / "x"), "--env", "memory_env:Recall", "--episodes", "3"]
    assert main([*played, "--custom_model", "own_nets:Widened"]) == 0
    assert "length     5.0" in capsys.readouterr().out
    for command in (played, ["export", str(tmp_path / "x")]):
        assert main([*command, "--custom_model", "no_nets:Widened"]) == 2
        assert "--custom_model no_nets:Widened cannot be imported" in capsys.readouterr().err
