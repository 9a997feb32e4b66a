"""Trainer flags and callbacks that nobody types every day: the run works, or says in one line why not and leaves nothing."""

from __future__ import annotations

import json

import pytest

from lit_rl.cli import main

SMALL = {
    "env": "short_env:Short",
    "max_epochs": 2,
    "step_per_epoch": 16,
    "steps_per_iteration": 8,
    "learning_starts": 0,
    "batch_size": 4,
    "hidden_sizes": [8],
    "episode_per_test": 3,
    "num_test_envs": 2,
    "test_episodes": 2,
    "accelerator": "cpu",
    "enable_progress_bar": False,
    "logger": "false",
    "experiment_name": "x",
}
CALLBACKS = "pytorch_lightning.callbacks"


def start(tmp_path, **settings) -> int:
    return main(["train", "--output_dir", str(tmp_path / "out"), "--config", json.dumps(SMALL | settings)])


def watching(kind: str, monitor: str, **settings):
    return {"class_path": f"{CALLBACKS}.{kind}", "init_args": {"monitor": monitor, **settings}}


@pytest.mark.parametrize(
    "settings",
    [
        {"fast_dev_run": True},
        {"fast_dev_run": 2, "two_steps": True},
        {"limit_train_batches": 0},
        {"max_epochs": 0},
        {"barebones": True, "enable_progress_bar": None},
        {"profiler": "simple", "detect_anomaly": True, "two_steps": True},
        {"precision": "64-true", "two_steps": True},
        {"precision": "bf16-true", "two_steps": True},
        {"precision": "bf16-true", "algo": "SAC", "env_config": {}},
        {"precision": "bf16-mixed"},
        {"num_sanity_val_steps": 2, "val_check_interval": 0.1},
        {"val_check_interval": 3, "check_val_every_n_epoch": None},
        {"check_val_every_n_epoch": 3, "limit_val_batches": 0},
        {"callbacks": [f"{CALLBACKS}.TQDMProgressBar", f"{CALLBACKS}.RichModelSummary"], "enable_progress_bar": True},
        {"callbacks": [watching("EarlyStopping", "Eval/return", mode="max")]},
        {"callbacks": [watching("ModelCheckpoint", "Eval/return", mode="max", save_last=True)]},
        {"callbacks": [watching("ModelCheckpoint", "Train/loss")], "two_steps": True},
        {"strategy": "single_device", "update_per_step": 0},
    ],
    ids=json.dumps,
)
def test_an_odd_run_ends_well(settings, tmp_path):
    assert start(tmp_path, **settings) == 0
    summary = json.loads((tmp_path / "out" / "x" / "summary.json").read_text())
    assert summary["test"]["return_mean"] == 3.0
    assert (tmp_path / "out" / "x" / "best.ckpt").exists()


def test_without_a_test_the_summary_has_none(tmp_path, capsys):
    assert start(tmp_path, limit_test_batches=0) == 0
    summary = json.loads((tmp_path / "out" / "x" / "summary.json").read_text())
    assert summary["test"] is None and summary["stage1"]["best_score"] == 3.0
    assert "best policy:" in capsys.readouterr().out


def test_what_was_evaluated_before_the_first_update_is_kept_too(tmp_path):
    assert start(tmp_path, update_per_step=0) == 0
    summary = json.loads((tmp_path / "out" / "x" / "summary.json").read_text())
    assert summary["stage1"]["updates"] == 0 and summary["stage1"]["best_path"].endswith("epoch=0-return=3.00.ckpt")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"val_check_interval": 0}, "--val_check_interval 0 is out of range: an epoch has 2 iterations"),
        ({"val_check_interval": 3}, "--val_check_interval 3 is out of range: an epoch has 2 iterations"),
        ({"check_val_every_n_epoch": 0}, "--check_val_every_n_epoch 0 is out of range"),
        ({"limit_train_batches": 0.1}, "--limit_train_batches 0.1 is out of range: there are 2 iterations"),
        ({"limit_val_batches": 0.1}, "--limit_val_batches 0.1 is out of range: there are 3 episodes"),
        ({"limit_test_batches": 0.1}, "--limit_test_batches 0.1 is out of range: there are 2 episodes"),
        ({"num_nodes": 0}, "--num_nodes 0 is out of range"),
        ({"buffer_size": 2}, "--buffer_size 2 is too small"),
        ({"vector_env": "native", "env": "Acrobot-v1"}, "vector_env native: "),
        ({"monitor": "Eval/success"}, "this environment reports no success; there are Eval/return"),
        ({"experiment_name": " x"}, "or blanks around it"),
        ({"two_steps": True, "step2": {"hidden_sizes": [9]}}, "(8, 2) in the first and is (9, 2) in the second"),
        ({"two_steps": True, "step2": {"devices": 2}}, "--step2: devices holds for the whole run"),
        ({"callbacks": f"{CALLBACKS}.LearningRateFinder"}, "--callbacks LearningRateFinder is not supported"),
        ({"callbacks": [f"{CALLBACKS}.EMAWeightAveraging"]}, "use --average_weights"),
        (
            {"callbacks": [watching("EarlyStopping", "Eval/return")], "two_steps": True},
            "EarlyStopping monitors Eval/return, and stage 2 logs Step2Eval/*",
        ),
    ],
    ids=lambda x: json.dumps(x) if isinstance(x, dict) else "",
)
def test_what_cannot_work_is_one_line_and_nothing_is_created(settings, message, tmp_path, capsys):
    assert start(tmp_path, **settings) == 2
    found = capsys.readouterr().err
    assert found.startswith("lit-rl: error: ") and found.count("\n") == 1 and message in found
    assert not (tmp_path / "out").exists()


def test_torchruns_processes_are_the_devices(monkeypatch, tmp_path, capsys):
    for name, value in {"TORCHELASTIC_RUN_ID": "x", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}.items():
        monkeypatch.setenv(name, value)
    assert main(["train", "--print_config", "--config", json.dumps(SMALL)]) == 0
    assert "\ndevices: 2\n" in capsys.readouterr().out
    assert start(tmp_path, devices=3) == 2
    assert "--devices 3 contradicts torchrun, which has started 2 processes" in capsys.readouterr().err
    assert start(tmp_path, exact_resume=True) == 2
    assert "--exact_resume works on one device, not on 2" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
