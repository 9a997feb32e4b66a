"""Runs that learn from data, from the command line: what they print, keep and refuse."""

from __future__ import annotations

import json

import pytest
from recorded_episodes import balance, record

from lit_rl.cli import main
from lit_rl.cli.arguments import from_argv
from lit_rl.cli.resolve import resolve

QUICK = ["--step_per_epoch", "50", "--max_epochs", "2", "--logger", "false", "--enable_progress_bar", "false"]


@pytest.fixture
def data(tmp_path):
    return record(tmp_path / "balance.jsonl", 12, "CartPole-v1", act=balance, limit=60)


def run(tmp_path, *argv):
    """The exit code, and the run's folder where there is one."""
    out = tmp_path / "out"
    code = main(["train", "--output_dir", str(out), *QUICK, *argv])
    folders = sorted(out.iterdir()) if out.exists() else []
    return code, folders[0] if folders else None


def rows_of(folder):
    return [json.loads(line) for line in open(folder / "result.json")]


def test_without_an_environment_the_data_say_what_is_best(tmp_path, data, capsys):
    code, folder = run(tmp_path, "--algo", "BC", "--input", data)
    assert code == 0 and folder.name.startswith("BC_balance.jsonl_")
    printed = capsys.readouterr().out
    assert f"data: {data}: 12 episodes, 720 steps, mean return 60.00, 1 of them held out to score by" in printed
    rows = rows_of(folder)
    assert [(row["env_steps"], row["updates"]) for row in rows] == [(0, 50), (0, 100)]
    assert {"Eval/f1", "Eval/accuracy", "Eval/loss"} <= rows[0].keys() and "Eval/return" not in rows[0]
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["stage1"]["metric"] == "Eval/f1" and summary["test"] is None
    assert (folder / "best.ckpt").exists() and (folder / "curve.png").exists()


def test_a_second_stage_on_the_same_data_watches_its_own_f1(tmp_path, data):
    code, folder = run(tmp_path, "--algo", "MARWIL", "--input", data, "--two_steps", "--monitor", "Eval/loss")
    assert code == 0
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["stage2"]["metric"] == "Step2Eval/loss"
    kept = {path.name.partition("=")[0] for path in (folder / "stage2").glob("*loss=*.ckpt")}
    assert kept and kept <= {"start-loss", "epoch"}
    best = summary["stage2"]["best_score"]
    assert best == pytest.approx(min([best, *(r["Step2Eval/loss"] for r in rows_of(folder) if r["stage"] == 2)]))


def test_with_an_environment_both_kinds_are_logged_and_the_test_is_played(tmp_path, data):
    env = ["--env", "CartPole-v1", "--env_config", '{"max_episode_steps": 60}', "--episode_per_test", "3"]
    code, folder = run(tmp_path, "--algo", "DQN", "--input", data, *env, "--test_episodes", "4", "--tuned", "false")
    assert code == 0
    assert {"Eval/return", "Eval/f1"} <= rows_of(folder)[0].keys()
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["stage1"]["metric"] == "Eval/return" and summary["test"]["episodes"] == 4


def test_what_a_checkpoint_plays_becomes_a_data_set(tmp_path, data, capsys):
    _, folder = run(tmp_path, "--algo", "BC", "--input", data)
    out = str(tmp_path / "played.jsonl")
    assert main(["rollout", str(folder), "--episodes", "3", "--explore", "--out", out]) == 0
    lines = [json.loads(line) for line in open(out)]
    assert (lines[0]["env_id"], lines[0]["algo"], lines[0]["explore"]) == ("CartPole-v1", "BC", True)
    assert [len(line["action_logp"]) == len(line["rewards"]) for line in lines[1:]] == [True] * 3
    assert main(["rollout", str(folder), "--out", out]) == 2
    assert "exists already" in capsys.readouterr().err
    asked = ["--config", '{"input_evaluation": ["wis", "is"]}']
    code, again = run(tmp_path / "again", "--algo", "MARWIL", "--input", out, *asked)
    assert code == 0 and {"Eval/is_return", "Eval/wis_return"} <= rows_of(again)[0].keys()


def settings_of(*argv):
    return resolve(from_argv(list(argv))).settings


def test_after_data_a_second_stage_acts_where_it_can():
    offline = ["--input", "a.jsonl", "--two_steps", "--monitor", "Eval/f1", "--step_per_epoch", "30"]
    offline += ["--input_evaluation", '["is"]']
    online = settings_of("--algo", "BC", *offline, "--env", "CartPole-v1", "--step2", '{"algo": "PPO"}')
    assert (online.stage1.data.input, online.stage2.data.input) == ("a.jsonl", None)
    assert (online.stage1.keep.monitor, online.stage2.keep.monitor) == ("Eval/f1", None)
    assert (online.stage1.keep.input_evaluation, online.stage2.keep.input_evaluation) == (["is"], None)
    assert online.stage1.data.step_per_epoch == 30 != online.stage2.data.step_per_epoch
    nowhere = settings_of("--algo", "DQN", *offline)
    assert nowhere.env.env is None and nowhere.stage2.data.input == "a.jsonl"
    imitation = settings_of("--algo", "BC", *offline, "--env", "CartPole-v1")
    assert imitation.stage2.data.input == "a.jsonl" and imitation.stage2.data.step_per_epoch == 30
    plain = settings_of("--algo", "BC", "--input", "a.jsonl", "--two_steps")
    for stage in (plain.stage1, plain.stage2):
        assert (stage.data.step_per_epoch, stage.trainer["max_epochs"]) == (1000, 20)
    own = settings_of("--algo", "DQN", *offline, "--env", "CartPole-v1", "--step2", '{"input": {"b.jsonl": 0.5}}')
    assert own.stage2.data.input == {"b.jsonl": 0.5}
    mixed = settings_of("--algo", "BC", "--input", '{"a.jsonl": 0.7, "minari:x/y-v0": 0.3}')
    assert mixed.stage1.data.input == {"a.jsonl": 0.7, "minari:x/y-v0": 0.3}


def test_what_contradicts_data_is_refused_before_anything_is_created(tmp_path, data, capsys):
    bc = ["--algo", "BC", "--input", data]
    wrong = {
        "BC learns from recorded episodes alone: give --input PATH": ["--algo", "BC"],
        "this algorithm learns from its own policy's experience alone": ["--algo", "PPO", "--input", data],
        "there is no nowhere.jsonl": ["--algo", "BC", "--input", "nowhere.jsonl"],
        "--monitor Eval/return is never logged at an evaluation; there are Eval/f1": [*bc, "--monitor", "Eval/return"],
        "--stop_return 10.0 needs episodes that are played: add --env ID": [*bc, "--stop_return", "10"],
        "--total_timesteps 100 counts env steps": [*bc, "--total_timesteps", "100"],
        "there is nothing to score the policy by": [*bc, "--validation_fraction", "0"],
        "--validation_fraction 1.0 is out of range": [*bc, "--validation_fraction", "1"],
        "--steps_per_iteration 7 must divide step_per_epoch 50: use 5 or 10": [*bc, "--steps_per_iteration", "7"],
        "has the observation space Box(4,) float32, and the environment has Box(6,)": [*bc, "--env", "Acrobot-v1"],
        "--output a.csv is no place for episodes": ["--env", "CartPole-v1", "--output", "a.csv"],
        "--input_evaluation is needs held-out episodes that say how probable": [*bc, "--input_evaluation", "is"],
        "--output a.jsonl records what is collected, and nothing is": [*bc, "--output", "a.jsonl"],
    }
    for reason, argv in wrong.items():
        code, folder = run(tmp_path, *argv)
        error = capsys.readouterr().err
        assert code == 2 and folder is None and reason in error and error.count("\n") == 1, (reason, error)
