"""The command line as a whole: exit codes, one line on stderr, nothing left behind."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from short_env import Short

import lit_rl
import lit_rl.zoo
from lit_rl.cli import main
from lit_rl.errors import UsageError

ROOT = str(Path(__file__).parents[2])
SMALL = {
    "env": "short_env:Short",
    "max_epochs": 1,
    "step_per_epoch": 40,
    "learning_starts": 8,
    "batch_size": 4,
    "hidden_sizes": [8],
    "episode_per_test": 2,
    "num_test_envs": 2,
    "test_episodes": 2,
    "accelerator": "cpu",
    "enable_progress_bar": False,
    "logger": "false",
}


def small(tmp_path, **settings):
    return ["train", "--output_dir", str(tmp_path / "out"), "--config", json.dumps(SMALL | settings)]


def refusal(capsys, argv) -> str:
    """The one line that the command line refuses with."""
    assert main(argv) == 2
    found = capsys.readouterr().err
    assert found.startswith("lit-rl: error: ")
    assert found.count("\n") == 1
    return found


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--algo", "DQM"], "--algo DQM is unknown; did you mean DQN?"),
        (["--env", "CartPol-v1"], "Nearest known ids: CartPole-v1"),
        (["--env", "Pendulum-v1"], "Box(1,)"),
        (["--lr", "abc"], "--lr 'abc' is not allowed"),
        (["--config", '{"lr": null}'], "--lr null"),
        (["--seed", "-1"], "--seed -1 is out of range: it must lie between 0 and"),
        (["--gamma", "1.5"], "--gamma 1.5 is out of range"),
        (["--n_step", "100001"], "--n_step 100001 is more than the 100000 env steps that the buffer keeps"),
        (["--num_threads", "99999999999"], "--num_threads 99999999999 is out of range: it must lie between 1 and 1024"),
        (["--episode_per_test", "9" * 20], "is out of range: it must be at most 2147483647"),
        (["--buffer_size", "1" + "0" * 15], "is out of range: it must be at most 2147483647"),
        (["--config", "/dev/zero"], "--config /dev/zero cannot be read: it is a device, not a file"),
        (["--config", "[" * 5000], "is nested too deep"),
        (["--num_nodes", "2"], "--num_nodes 2 needs a cluster"),
        (["--max_epoch", "3"], "unknown setting --max_epoch; nearest: max_epochs"),
        (["--learning_rate", "3"], "unknown setting --learning_rate"),
        (["--lr_2", "1e-4"], "add --two_steps"),
        (["--two_steps", "--barebones"], "--barebones true leaves --two_steps no evaluation"),
        (["--precision", "16-mixed"], "use bf16-mixed"),
        (["--accelerator", "quantum"], "accelerator"),
        (["--experiment_name", "../x"], "without slashes"),
        (["--output_dir", ""], "--output_dir '' must be the path of a folder"),
        (["--output_dir", "a\x1b[2Jb"], "without control characters"),
        (["--experiment_name", "a\x1b[2Jb", "--resume"], "--experiment_name 'a\\x1b[2Jb'"),
        (["--ckpt_path", "a\x1b[2J\udcff"], "there is no checkpoint a\\x1b[2J\\udcff"),
        (["--monitor", "Eval/retrun"], "Eval/return"),
        (["--algo", "SAC", "--env", "tiny_envs:Parts"], "SAC needs a Box or Discrete action space, not MultiDiscrete"),
        (["--custom_model", "own_nets:WrongSize"], "maps 2 observations to the shape (2, 8), and its output_size is 9"),
        (["--custom_model", "own_nets:NoModule"], "--custom_model own_nets:NoModule is no torch.nn.Module"),
        (["--custom_model", "no_nets:Net"], "--custom_model no_nets:Net cannot be imported: ModuleNotFoundError"),
        (["--custom_model", "own_nets:Raising", "--algo", "TD3", "--env", "Pendulum-v1"], "KeyError: 'there'"),
        (["--ckpt_path", "nowhere.ckpt"], "nowhere.ckpt"),
        (["--env_config", "[" * 5000], "is not allowed: give {name: value, ...}"),
        (["--stop", "[" * 5000], "is not allowed: give {name: value, ...}"),
        (["--devices", "9" * 5000], "--devices"),
        (["--patience", ""], "--patience '' is not allowed: give a whole number or null"),
        (["--ckpt_path", "/dev/zero"], "cannot read /dev/zero: it is no file"),
    ],
)
def test_bad_input_is_one_line_and_nothing_is_created(argv, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert message in refusal(capsys, ["train", "--max_epochs", "1", *argv])
    assert list(tmp_path.iterdir()) == []


def test_a_mask_that_forbids_everything_is_one_line_and_nothing_is_created(tmp_path, capsys):
    masks = {"masks": [[0, 0, 0]] * 4}
    assert main([*small(tmp_path, env="tiny_envs:Masking", env_config=masks)]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert "its action_mask forbids every action" in line
    assert not (tmp_path / "out").exists()


def test_a_tuned_entry_with_an_unknown_key_is_one_line_and_nothing_is_created(tmp_path, capsys, monkeypatch):
    (tmp_path / "dqn.yaml").write_text("short_env:Short: {reference: 3, source: nowhere, learning_start: 5}")
    monkeypatch.setattr(lit_rl.zoo, "files", lambda package: tmp_path)
    said = refusal(capsys, small(tmp_path))
    assert "unknown setting learning_start in the entry short_env:Short of lit_rl/zoo/dqn.yaml" in said
    assert "nearest: learning_starts" in said and not (tmp_path / "out").exists()


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 cut", b"no checkpoint at all"])
def test_a_truncated_or_foreign_checkpoint_is_refused(content, tmp_path, capsys):
    path = tmp_path / "cut.ckpt"
    path.write_bytes(content)
    assert "cut.ckpt" in refusal(capsys, [*small(tmp_path), "--ckpt_path", str(path)])
    assert not (tmp_path / "out").exists()


def test_an_unwritable_output_folder_is_refused(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    argv = [*small(tmp_path), "--output_dir", str(tmp_path / "file" / "out")]
    assert "cannot be written" in refusal(capsys, argv)


def test_an_experiment_that_exists_is_refused(tmp_path, capsys):
    (tmp_path / "out" / "mine").mkdir(parents=True)
    assert "exists already" in refusal(capsys, [*small(tmp_path), "--experiment_name", "mine"])
    assert list((tmp_path / "out" / "mine").iterdir()) == []


def test_a_run_from_the_command_line_leaves_its_summary(tmp_path, capsys):
    assert main([*small(tmp_path), "--two_steps", "--experiment_name", "mine"]) == 0
    summary = json.loads((tmp_path / "out" / "mine" / "summary.json").read_text())
    assert summary["stage1"]["env_steps"] == summary["stage2"]["env_steps"] == 40
    assert summary["test"]["return_mean"] == 3.0
    assert capsys.readouterr().out.startswith("steps_per_iteration is 40 instead of 200")


def test_python_trains_with_the_flag_names_as_keywords(tmp_path):
    summary = lit_rl.train(**SMALL | {"env": Short, "output_dir": tmp_path, "lr": 1e-3})
    assert summary["test"]["episodes"] == 2
    assert summary["stage2"] is None


def test_python_gets_the_refusal_as_an_exception(tmp_path):
    with pytest.raises(UsageError, match="unknown setting --learning_rate"):
        lit_rl.train(**SMALL | {"learning_rate": 3, "output_dir": tmp_path})


def test_an_env_that_breaks_ends_the_run_with_its_own_traceback_and_exit_code_1(tmp_path, capsys):
    assert main(small(tmp_path, env_config={"breaks_at": 30})) == 1
    found = capsys.readouterr().err
    assert "lit-rl: error: " in found
    assert "the env's own mistake" in found and "in step" in found


def test_a_nan_observation_ends_the_run_with_exit_code_1(tmp_path, capsys):
    assert main(small(tmp_path, env_config={"nan_at": 30})) == 1
    assert capsys.readouterr().err.count("lit-rl: error: ") == 1


@pytest.mark.parametrize(
    ("argv", "code", "out", "err"),
    [
        (["--version"], 0, lit_rl.__version__, ""),
        (["train", "--version"], 0, lit_rl.__version__, ""),
        (["--help"], 0, "usage: lit-rl <command>", ""),
        ([], 2, "usage: lit-rl <command>", ""),
        (["trian"], 2, "", "did you mean train?"),
        (["--two_steps"], 2, "", "give the command first: lit-rl train --two_steps"),
        (["train", "--algo", "DQN", "-h"], 0, "algorithm DQN:", ""),
        (["train", "--algo", "DQM", "--help"], 2, "", "did you mean DQN?"),
    ],
)
def test_commands(argv, code, out, err, capsys):
    assert main(argv) == code
    found = capsys.readouterr()
    assert out in found.out and err in found.err


def test_the_version_costs_no_import_of_lightning():
    code = """if True:
        import sys
        from lit_rl.cli import main
        main(["train", "--version"])
        heavy = {"torch", "numpy", "pytorch_lightning", "gymnasium", "jsonargparse", "yaml", "matplotlib"}
        print("heavy:", sorted(heavy & set(sys.modules)))
    """
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert found.stdout.endswith("heavy: []\n"), found


OF_THE_COMMAND_LINE = {
    *("lit_rl", "gymnasium", "farama_notifications", "jsonargparse", "docstring_parser", "typeshed_client"),
    *("attr", "attrs", "importlib_resources", "typing_extensions", "yaml"),
}


def test_help_imports_little_beyond_lightning():
    code = """if True:
        import sys
        import pytorch_lightning
        before = set(sys.modules)
        from lit_rl.cli import main
        main(["train", "--help"])
        new = {name.partition(".")[0] for name in set(sys.modules) - before} - sys.stdlib_module_names
        new |= {name for name in ("lit_rl.lit_policy", "lit_rl.datamodule", "lit_rl.pipeline.run") if name in sys.modules}
        print("new:", sorted(new))
    """
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    new = set(ast.literal_eval(found.stdout.rpartition("new: ")[2]))
    assert "lit_rl" in new and new <= OF_THE_COMMAND_LINE, "neither extras nor more of torch, nor what runs"


def command(argv: list[str], **settings: Any) -> subprocess.Popen[str]:
    code = "import sys; from lit_rl.cli import main; sys.exit(main(sys.argv[1:]))"
    return subprocess.Popen([sys.executable, "-c", code, *argv], stderr=subprocess.PIPE, text=True, **settings)


def test_a_pipe_that_nobody_reads_any_more_ends_it_without_a_word():
    reading, writing = os.pipe()
    os.close(reading)
    process = command(["--help"], stdout=writing)
    os.close(writing)
    assert process.communicate(timeout=60)[1] == "" and process.returncode == 141


def test_a_folder_that_is_gone_is_one_line(tmp_path):
    gone = tmp_path / "gone"
    gone.mkdir()
    process = command(
        ["list"], preexec_fn=lambda: (os.chdir(gone), gone.rmdir()), env=os.environ | {"PYTHONPATH": ROOT}
    )
    assert process.communicate(timeout=60)[1] == (
        "lit-rl: error: the current folder cannot be used: No such file or directory\n"
    )
    assert process.returncode == 2


def test_of_several_runs_none_begins_where_one_has_no_environment(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "two.yaml").write_text("a: {run: DQN}\nb: {run: DQN, env: CartPol-v1}\n")
    assert "Nearest known ids: CartPole-v1" in refusal(capsys, ["train", "--max_epochs", "1", "-f", "two.yaml"])
    assert [file.name for file in tmp_path.iterdir()] == ["two.yaml"]
