"""``--restore``: a new run goes on from all that a full checkpoint holds."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as pl
import torch
from algorithms.tester import assert_equal
from tiny_runs import DQN

import lit_rl
from lit_rl import checkpoint
from lit_rl.checkpoint import load
from lit_rl.cli import main
from lit_rl.cli.arguments import from_python
from lit_rl.cli.resolve import resolve
from lit_rl.cli.resume import resolve_any
from lit_rl.pipeline.resume import find_restored, write_config

RUN: dict[str, Any] = DQN | {
    "env": "tiny_runs:Signs",
    "num_envs": 2,
    "step_per_epoch": 40,
    "episode_per_test": 3,
    "num_test_envs": 2,
    "test_episodes": 2,
    "exact_resume": True,
    "tuned": False,
    "accelerator": "cpu",
    "logger": "false",
    "enable_progress_bar": False,
}


def train(folder: Path, name: str, *argv: str) -> int:
    return main(["train", "--local-dir", str(folder), "--experiment-name", name, *argv])


def rows(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "result.json").read_text().splitlines()]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that holds a run of two epochs, which kept the first one's checkpoint, one of four, and one that read data."""
    folder = tmp_path_factory.mktemp("runs")
    stop = ["--stop", '{"training_iteration": 2}', "--checkpoint-freq", "1", "--checkpoint-at-end", "--patience", "1"]
    stop += ["--output", str(folder / "half.jsonl")]
    assert train(folder, "half", "--config", json.dumps(RUN), *stop) == 0
    assert train(folder, "whole", "--config", json.dumps(RUN), "--max_epochs", "4") == 0
    data = ["--env", "null", "--input", str(folder / "half.jsonl"), "--max_epochs", "1"]
    assert train(folder, "read", "--config", json.dumps(RUN), *data) == 0
    return folder


@pytest.mark.parametrize("path", ["half", "half/stage1/last.ckpt", "half/checkpoints/checkpoint-0.ckpt", "moved.ckpt"])
def test_a_restored_run_ends_with_the_bits_of_one_that_was_never_stopped(path, runs, tmp_path, capsys, recwarn):
    shutil.copy(runs / "half" / "stage1" / "last.ckpt", runs / "moved.ckpt")  # beside no settings
    settings = ["--config", json.dumps(RUN)] if path == "moved.ckpt" else ["--patience", "9"]
    settings += ["--output", str(tmp_path / "new.jsonl")]
    before = {file: file.read_bytes() for file in (runs / "half").rglob("*") if file.is_file()}
    argv = ["--restore", str(runs / path), "--stop", '{"training_iteration": 4}', *settings]
    assert train(tmp_path, "new", *argv) == 0
    begun = 1 if "checkpoints" in path else 2
    assert f"stage 1, {40 * begun} env steps, {20 * begun} updates" in capsys.readouterr().out
    assert not [warned for warned in recwarn if "Be aware that when using" in str(warned.message)]
    assert (tmp_path / "new.jsonl").exists()
    found, whole = (load(folder / "stage1" / "last.ckpt") for folder in (tmp_path / "new", runs / "whole"))
    for name, weight in whole["state_dict"].items():
        assert torch.equal(found["state_dict"][name], weight), name
    for name in ("updates", "env_steps", "first_env_step"):
        assert found["progress"][name] == whole["progress"][name]
    assert [row["epoch"] for row in rows(tmp_path / "new")] == list(range(begun, 4))
    of_both = [row for row in rows(runs / "whole") if row["epoch"] >= begun]
    assert [row["Eval/return"] for row in rows(tmp_path / "new")] == [row["Eval/return"] for row in of_both]
    assert {file: file.read_bytes() for file in (runs / "half").rglob("*") if file.is_file()} == before


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--restore", "{runs}/half/best.ckpt"], "best.ckpt holds weights alone: start from them with --ckpt_path"),
        (["--restore", "{runs}/none.ckpt"], "there is no checkpoint"),
        (["--restore", "{runs}"], "has no best.ckpt; it holds"),
        (["--restore"], "--restore needs a value"),
        (["--restore", "{runs}/half", "--lr", "1"], "--lr 1.0 would change what was learned so far"),
        (["--restore", "{runs}/half", "--num_envs", "4"], "--num_envs 4 would change"),
        (["--restore", "{runs}/half", "--run", "PPO"], "--algo PPO would change"),
        (["--restore", "{runs}/half"], "--max_epochs 2 is reached already"),
        (["--restore", "{runs}/half", "--max_epochs", "9", "--max_steps", "40"], "--max_steps 40 is reached already"),
        (["--restore", "{runs}/half", "--ckpt_path", "x"], "--restore"),
        (["--restore", "{runs}/half", "--resume", "--experiment_name", "half"], "there is no run"),
        (["--restore", "{runs}/moved.ckpt", "--config", '{"env": "tiny_runs:Signs"}'], "would change"),
        (
            ["--restore", "{runs}/moved.ckpt", "--config", json.dumps(RUN), "--num_envs", "4"],
            "moved.ckpt holds a replay buffer of 200 rows for each of 2 envs, and this run would have 100 for 4: give --num_envs",
        ),
        (
            ["--restore", "{runs}/moved.ckpt", "--config", json.dumps(RUN), "--input", "{runs}/half.jsonl"],
            "is of a stage that acted, and this one would have learned from 1 data set: leave --input out",
        ),
        (
            ["--restore", "{runs}/moved_read.ckpt", "--config", json.dumps(RUN)],
            "is of a stage that learned from 1 data set, and this one would have acted: give --input as its run did",
        ),
        (
            ["--resume", "--experiment_name", "half", "--output_dir", "{runs}", "--enable_checkpointing", "false"],
            "--enable_checkpointing false would leave a run that goes on without its best weights",
        ),
    ],
)
def test_what_cannot_be_restored_is_one_line_and_nothing_is_created(argv, message, runs, tmp_path, monkeypatch, capsys):
    shutil.copy(runs / "half" / "stage1" / "last.ckpt", runs / "moved.ckpt")
    shutil.copy(runs / "read" / "stage1" / "last.ckpt", runs / "moved_read.ckpt")
    monkeypatch.chdir(tmp_path)
    assert main(["train", *(part.replace("{runs}", str(runs)) for part in argv)]) == 2
    out, err = capsys.readouterr()
    assert message in err and err.count("\n") == 1, err
    assert ("no setting of that run" in out) <= ("moved" in " ".join(argv)), out
    assert list(tmp_path.iterdir()) == []


def test_a_run_that_kept_no_checkpoints_may_begin_to_when_it_goes_on(tmp_path):
    begun = {"output_dir": str(tmp_path), "experiment_name": "x", "enable_checkpointing": False}
    (tmp_path / "x").mkdir()
    write_config(tmp_path / "x", resolve(from_python(dict(begun))).flat)
    resolved = resolve_any(from_python(begun | {"resume": True, "enable_checkpointing": True}))
    assert resolved.settings.stage1.trainer["enable_checkpointing"] is True


def test_a_checkpoint_of_the_working_directory_has_the_settings_of_its_run(runs, monkeypatch, capsys):
    monkeypatch.chdir(runs / "half" / "stage1")
    assert main(["train", "--restore", "last.ckpt", "--lr", "1"]) == 2
    assert f"({runs / 'half'} has 0.003)" in capsys.readouterr().err


def test_a_moved_checkpoint_brings_no_settings_and_takes_none_from_a_file_beside_it(
    runs, tmp_path, monkeypatch, capsys
):
    shutil.copy(runs / "half" / "stage1" / "last.ckpt", tmp_path / "moved.ckpt")
    (tmp_path / "config.json").write_text('{"compilerOptions": {}}')
    monkeypatch.chdir(tmp_path)
    assert main(["train", "--restore", "moved.ckpt"]) == 2
    said = capsys.readouterr()
    assert "moved.ckpt is not in its run's folder: no setting of that run comes with it" in said.out
    assert "would change what was learned so far (moved.ckpt has" in said.err


def test_where_a_run_was_restored_from_is_kept_for_any_working_directory(runs, monkeypatch):
    monkeypatch.chdir(runs)
    resolved = resolve_any(from_python({"restore": "half/stage1/last.ckpt", "max_epochs": 4}))
    assert resolved.flat["restore"] == str(runs / "half" / "stage1" / "last.ckpt")


class Stopped(pl.Callback):
    def on_train_batch_start(self, *_: Any) -> None:
        raise ArithmeticError


def test_a_restored_run_that_was_killed_in_its_first_epoch_goes_on_without_the_other_ones_file(runs, tmp_path):
    source = tmp_path / "moved.ckpt"
    shutil.copy(runs / "half" / "stage1" / "last.ckpt", source)
    begun = RUN | {"restore": str(source), "max_epochs": 4, "output_dir": str(tmp_path), "experiment_name": "new"}
    with pytest.raises(ArithmeticError):
        lit_rl.train(**begun, callbacks=[Stopped()])
    assert_equal(load(tmp_path / "new" / "stage1" / "last.ckpt")["rng"], load(source)["rng"])
    source.unlink()
    assert train(tmp_path, "new", "--resume") == 0
    found, whole = (load(folder / "stage1" / "last.ckpt") for folder in (tmp_path / "new", runs / "whole"))
    assert_equal(found["state_dict"], whole["state_dict"])
    assert [row["epoch"] for row in rows(tmp_path / "new")] == [2, 3]


def test_a_damaged_checkpoint_of_a_restored_folder_is_said_and_the_next_one_read_once(runs, tmp_path, monkeypatch):
    shutil.copytree(runs / "half", tmp_path / "half")
    last = tmp_path / "half" / "stage1" / "last.ckpt"
    last.write_bytes(last.read_bytes()[:100])
    read: list[Path] = []
    whole = checkpoint._read
    monkeypatch.setattr(checkpoint, "_read", lambda path, where: (read.append(path), whole(path, where))[1])
    found = find_restored(tmp_path / "half")
    assert [path.name for path in read] == ["last.ckpt", "previous.ckpt"]
    assert "is cut off after 100 bytes; passing it over\ngoing on from" in str(found)


def test_whoever_resumes_without_a_callback_of_the_run_is_told_that_its_state_is_lost(runs, tmp_path):
    shutil.copytree(runs / "half", tmp_path / "half")
    with pytest.warns(UserWarning, match="Be aware that when using `ckpt_path`.*ModelCheckpoint"):
        assert train(tmp_path, "half", "--resume", "--callbacks", "null") == 0
