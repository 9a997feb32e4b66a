"""Trainer flags and callbacks that nobody types every day: the run works, or says in one line why not and leaves nothing."""

from __future__ import annotations

import json
import sys

import pytest
import yaml

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
        (
            {"callbacks": [watching("EarlyStopping", "foo")]},
            "EarlyStopping monitors foo, which is never logged; there are Eval/return",
        ),
        ({"callbacks": [watching("EarlyStopping", "Eval/success")]}, "this environment reports no success; there are"),
    ],
    ids=lambda x: json.dumps(x) if isinstance(x, dict) else "",
)
def test_what_cannot_work_is_one_line_and_nothing_is_created(settings, message, tmp_path, capsys):
    assert start(tmp_path, **settings) == 2
    found = capsys.readouterr().err
    assert found.startswith("lit-rl: error: ") and found.count("\n") == 1 and message in found
    assert not (tmp_path / "out").exists()


@pytest.fixture
def own_broken(tmp_path, monkeypatch):
    """Modules of algorithms that each break one thing."""
    (tmp_path / "own_syntax.py").write_text("def (:\n")
    (tmp_path / "own_raises.py").write_text("1 / 0\n")
    (tmp_path / "own_broken.py").write_text(OWN)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    for name in ("own_syntax", "own_raises", "own_broken"):
        sys.modules.pop(name, None)


OWN = """
from dataclasses import dataclass
from lit_rl import LitPolicy
from lit_rl.algorithms.base import AlgorithmConfig
from lit_rl.algorithms.pg import PG

class Raising(PG):
    def __init__(self, spaces, config):
        raise ValueError("my mistake")

class Signature(PG):
    def __init__(self, spaces):
        pass

class NoPlan(PG):
    @property
    def plan(self):
        raise NotImplementedError

class NonePlan(PG):
    plan = None

class Odd(PG):
    Config = dict

class Undecorated(PG):
    class Config(AlgorithmConfig):
        mine: int = 3

class Unreadable(PG):
    @dataclass
    class Config(AlgorithmConfig):
        mine: "Nowhere" = 3

class Update(PG):
    def update(self, batch, optimize, progress):
        return {}["my mistake"]

class Policy(LitPolicy):
    def __init__(self, *args, **settings):
        raise ValueError("my mistake")
"""


@pytest.mark.usefixtures("own_broken")
@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"algo": "own_syntax:X"}, "--algo own_syntax:X cannot be imported: SyntaxError: invalid syntax"),
        ({"algo": "own_raises:X"}, "cannot be imported: ZeroDivisionError: division by zero (own_raises.py, line 1)"),
        ({"algo": "own_broken:Raising"}, "ValueError: my mistake (own_broken.py, line "),
        ({"algo": "own_broken:Signature"}, "cannot be made as Signature(spaces, config): TypeError"),
        ({"algo": "own_broken:NoPlan"}, "own_broken:NoPlan has no plan"),
        ({"algo": "own_broken:NonePlan"}, "own_broken:NonePlan has the plan None"),
        ({"algo": "own_broken:Odd"}, "its Config is no dataclass that inherits from AlgorithmConfig"),
        ({"algo": "own_broken:Undecorated"}, "add @dataclass"),
        ({"algo": "own_broken:Unreadable"}, "its Config cannot be read: NameError"),
        ({"two_steps": True, "step2": {"algo": "own_syntax:X"}}, "SyntaxError"),
        (
            {"two_steps": True, "step2": {"module": "own_raises:X"}},
            "--step2: module own_raises:X cannot be imported: ZeroDiv",
        ),
        (
            {"two_steps": True, "step2": {"module": "own_broken:Policy"}},
            "--step2: module own_broken:Policy cannot be made",
        ),
        ({"two_steps": True, "step2": {1: 2}}, "--step2: 1 is no setting"),
    ],
    ids=str,
)
def test_code_of_ones_own_that_is_broken_is_one_line_and_nothing_is_created(settings, message, tmp_path, capsys):
    typed = {"env": "short_env:Short", "accelerator": "cpu", "max_epochs": 1, "step_per_epoch": 16}
    argv = ["train", "--output_dir", str(tmp_path / "out"), "--config", yaml.dump(typed | {"algo": "PG"} | settings)]
    assert main(argv) == 2
    found = capsys.readouterr().err
    assert found.startswith("lit-rl: error: ") and found.count("\n") == 1 and message in found
    assert not (tmp_path / "out").exists()


@pytest.mark.usefixtures("own_broken")
def test_an_update_of_ones_own_that_raises_is_named_with_its_traceback(tmp_path, capsys):
    typed = {"env": "short_env:Short", "accelerator": "cpu", "max_epochs": 1, "step_per_epoch": 16, "logger": "false"}
    argv = ["train", "--output_dir", str(tmp_path / "out"), "--config", yaml.dump(typed)]
    assert main([*argv, "--algo", "own_broken:Update"]) == 1
    found = capsys.readouterr().err
    assert "lit-rl: error: own_broken:Update raised KeyError in update 1, env step 16: 'my mistake'\n" in found
    assert 'return {}["my mistake"]' in found and "lit_policy.py" not in found


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
