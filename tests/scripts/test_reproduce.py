"""docs/results.md: what its numbers are, that finished runs are kept, and that its commands are those that run."""

from __future__ import annotations

import argparse
import fcntl
import json
from pathlib import Path
from typing import Any

import pytest
import reproduce
from reproduce_jobs import JOBS, SB3, Job
from reproduce_page import difference, mean_std, t_quantile, table, write_page

from lit_rl.cli.arguments import from_argv
from lit_rl.cli.resolve import resolve

ROOT = Path(__file__).parents[2]
TINY = (
    "--step_per_epoch 64 --max_epochs 2 --learning_starts 16 --episode_per_test 2 --test_episodes 2 --hidden_sizes [8]"
)
TINY_JOB = Job("tiny", "DQN", "CartPole-v1", 128, 1, flags=tuple(TINY.split()), seeds=(100,))
THREE = Job("cartpole", "DQN", "CartPole-v1", 50_000, 490, seeds=(0, 1, 2))
BESIDE = Job("halfcheetah", "SAC", "HalfCheetah-v5", 100_000, seeds=(0, 1, 2, 3, 4))


def keep(job: Job, results: Path, scores: list[float], library: str = reproduce.OURS, **more: Any) -> None:
    """Results as finished runs leave them."""
    for seed, score in enumerate(scores):
        result = {
            "seed": seed,
            "env_steps": 30_720,
            "seconds": 60.0,
            "cpu_seconds": 40.0,
            "test": {"return_mean": score, "return_std": 1.0, "episodes": 100},
            "last_test": {"return_mean": score - 1, "return_std": 1.0, "episodes": 100},
            "curve": [[10, 1.0], [20, score]],
            "commit": "0123456789",
            "versions": {SB3: "2.9.0"},
        }
        reproduce.write_result(job.result(results, seed, library), result | more)


def arguments(tmp_path: Path) -> argparse.Namespace:
    return argparse.Namespace(out=tmp_path / "runs", results=tmp_path / "docs" / "results", timeout=120.0, sb3=tmp_path)


def test_the_spread_is_that_between_seeds():
    assert mean_std([480.0, 490.0, 500.0]) == "490.0 ± 10.0"  # sqrt((100 + 0 + 100) / 2)
    assert mean_std([480.0]) == "480.0"


def test_a_goal_is_met_by_the_mean_of_all_seeds(tmp_path):
    keep(THREE, tmp_path, [480.0, 490.0, 500.0])
    row = "| CartPole-v1 | DQN | 30,720 | 3 | 490.0 ± 10.0 | ≥ 490 | yes | 500 | 60 (40) |"
    assert row in table([THREE], tmp_path)
    keep(THREE, tmp_path, [480.0, 490.0, 499.0])
    assert "| 489.7 ± 9.5 | ≥ 490 | no |" in table([THREE], tmp_path)


def test_a_goal_is_not_met_before_all_seeds_have_run(tmp_path):
    assert "| 0 of 3 | | ≥ 490 | not run yet |" in table([THREE], tmp_path)
    keep(THREE, tmp_path, [500.0, 500.0])
    assert "| 2 of 3 | 500.0 ± 0.0 | ≥ 490 | not all run yet |" in table([THREE], tmp_path)


def test_difference_of_means_has_welchs_interval():
    # variances 2.5 each: standard error sqrt(2.5 / 5 + 2.5 / 5) = 1, 8 degrees of freedom, t = 2.306
    found = difference([1.0, 2.0, 3.0, 4.0, 5.0], [2.0, 3.0, 4.0, 5.0, 6.0])
    assert found == pytest.approx((-1.0, -3.306, 1.306), abs=1e-3)


@pytest.mark.parametrize("freedom, t", [(1, 12.706), (4, 2.776), (8, 2.306), (30, 2.042)])
def test_students_quantiles(freedom, t):
    assert t_quantile(0.975, freedom) == pytest.approx(t, abs=1e-3)


def test_as_good_as_sb3_means_that_no_interval_lies_below_zero(tmp_path):
    results = tmp_path / "results"
    keep(BESIDE, results, [1.0, 2.0, 3.0, 4.0, 5.0])
    assert "| as SB3 | not all run yet |" in table([BESIDE], results)
    keep(BESIDE, results, [2.0, 3.0, 4.0, 5.0, 6.0], SB3)
    assert "| as SB3 | yes |" in table([BESIDE], results)
    keep(BESIDE, results, [4.0, 5.0, 6.0, 7.0, 8.0], SB3)  # 3 better
    assert "| as SB3 | no |" in table([BESIDE], results)
    write_page([BESIDE], results)
    page = (tmp_path / "results.md").read_text()
    assert "| best checkpoint | 3.0 ± 1.6 | 6.0 ± 1.6 | -3 (-5 to -1) |" in page
    assert "| final | 2.0 ± 1.6 | 5.0 ± 1.6 | -3 (-5 to -1) |" in page


def test_the_page_has_commands_scores_sources_and_pictures(tmp_path):
    keep(THREE, tmp_path / "results", [480.0, 490.0, 500.0])
    write_page([THREE], tmp_path / "results")
    page = (tmp_path / "results.md").read_text()
    assert "python train.py --algo DQN --env CartPole-v1 --seed $SEED" in page
    assert "Test return by seed: 0: 480.0, 1: 490.0, 2: 500.0; commit 0123456." in page
    assert "Reference: stable-baselines3 zoo, DQN, 50k env steps." in page
    assert (tmp_path / "images" / "cartpole.png").read_bytes().startswith(b"\x89PNG")


def test_a_row_of_several_commits_says_so(tmp_path):
    results = tmp_path / "results"
    keep(THREE, results, [480.0, 490.0, 500.0])
    old = json.loads(THREE.result(results, 1).read_text())
    reproduce.write_result(THREE.result(results, 1), old | {"commit": "fedcba9876"})
    assert "| 30,720 | 3, of 2 commits | 490.0 ± 10.0 |" in table([THREE], results)
    write_page([THREE], results)
    said = "500.0; a mix of 2 commits: 0123456 (seed 0, 2), fedcba9 (seed 1). Reference"
    assert said in (tmp_path / "results.md").read_text()


def test_a_run_is_the_real_command_and_is_run_once(tmp_path, capsys):
    args = arguments(tmp_path)
    (args.out / "tiny" / "dqn-seed100").mkdir(parents=True)  # what a killed run left
    assert reproduce.work([TINY_JOB], None, args) == 0
    path = args.results / "tiny" / "dqn-seed100.json"
    result = json.loads(path.read_text())
    summary = json.loads((args.out / "tiny" / "dqn-seed100" / "summary.json").read_text())
    assert result["test"]["return_mean"] == summary["test"]["return_mean"]
    assert (result["env_steps"], result["test"]["episodes"]) == (128, 2)
    assert [steps for steps, _ in result["curve"]] == [64, 128]
    assert (
        result["command"]
        == f"python train.py --algo DQN --env CartPole-v1 {TINY.replace('[8]', repr('[8]'))} --seed 100"
    )
    assert result["seconds"] > 0 and result["cpu_seconds"] > 0

    capsys.readouterr()
    path.write_text("finished")
    assert reproduce.work([TINY_JOB], None, args) == 0
    assert path.read_text() == "finished" and capsys.readouterr().out == ""


def test_a_run_that_another_process_works_on_is_left_to_it(tmp_path, capsys):
    args = arguments(tmp_path)
    lock = args.out / "tiny" / "dqn-seed100.lock"
    lock.parent.mkdir(parents=True)
    with open(lock, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert reproduce.work([TINY_JOB], None, args) == 0
    assert capsys.readouterr().out == "" and not args.results.exists()


def test_a_failed_run_is_said_and_leaves_no_result(tmp_path, capsys):
    args = arguments(tmp_path)
    bad = Job("tiny", "DQN", "CartPole-v1", 128, 1, flags=("--lr", "-1"), seeds=(100,))
    assert reproduce.work([bad], None, args) == 1
    log = args.out / "tiny" / "dqn-seed100.log"
    assert f"failed: exit code 2, see {log}" in capsys.readouterr().out
    assert "--lr -1" in log.read_text() and not args.results.exists()


def test_an_unknown_set_is_refused_with_the_known_ones(capsys):
    with pytest.raises(SystemExit) as stopped:
        reproduce.main(["cartpool"])
    assert stopped.value.code == 2
    assert "no set cartpool; there are cartpole, pendulum" in capsys.readouterr().err


def test_sets_and_their_algorithms_are_chosen_in_the_order_of_their_names(capsys):
    assert reproduce.main(["--list", "pendulum/sac", "mountaincar"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["pendulum/sac", "mountaincar/dqn"]


@pytest.mark.parametrize("job", JOBS, ids=lambda job: job.name)
def test_tuned_settings_stay_within_the_budget(job):
    settings = resolve(from_argv(job.command(0).split()[2:])).settings.stage1
    env_steps = settings.trainer["max_epochs"] * settings.data.step_per_epoch
    assert 0.5 * job.budget <= env_steps <= job.budget


@pytest.mark.parametrize("name", sorted({job.set for job in JOBS}))
def test_the_scripts_of_the_environments_hold_the_commands(name):
    lines = (ROOT / "scripts" / f"{name}.sh").read_text().splitlines()
    assert [line for line in lines if line.startswith("python ")] == [job.command(0) for job in JOBS if job.set == name]
