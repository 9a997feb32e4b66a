"""Runs that go on: by name, to the same bits, with new limits, past damaged files, and never outside the output folder."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from algorithms.tester import assert_equal
from kill_campaign import RUN, TIMES, curve, differences, finish, kill_once, outcome
from recorded_episodes import record
from tensorboard.summary.writer import event_file_writer

import lit_rl
from lit_rl.checkpoint import find_last, load, rng_state, set_rng_state
from lit_rl.cli import main
from lit_rl.errors import UsageError
from lit_rl.pipeline.resume import find_resume, read_config
from lit_rl.pipeline.run import read_summary

TINY: dict[str, Any] = RUN | {
    "env": "tiny_runs:Signs",
    "step_per_epoch": 80,
    "max_epochs": 2,
    "max_epochs_2": 2,
    "learning_starts": 20,
    "hidden_sizes": [8],
    "batch_size": 8,
    "num_test_envs": 1,
}


def train(folder: Path, resume: bool = False, **settings: Any) -> dict[str, Any]:
    """A run in this process, or its continuation."""
    # TensorBoard reads files of one second by the number in their names, as text: 9 after 10. A run of its own begins at 0.
    event_file_writer._global_uid = event_file_writer.AtomicCounter(0)
    return lit_rl.train(output_dir=str(folder.parent), experiment_name=folder.name, resume=resume, **settings)


def rows(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "result.json").read_text().splitlines()]


def without_times(folder: Path) -> list[dict[str, Any]]:
    return [{name: x for name, x in row.items() if name not in TIMES} for row in rows(folder)]


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that has ended, to be copied."""
    folder = tmp_path_factory.mktemp("ended") / "run"
    finish(folder, TINY)
    return folder


@pytest.fixture
def run(ended: Path, tmp_path: Path) -> Path:
    """A copy of a run that has ended."""
    shutil.copytree(ended, tmp_path / "run")
    return tmp_path / "run"


# ---- exactly ----


@pytest.mark.parametrize("window_mb", [512.0, 0.03], ids=["held whole", "streaming"])
def test_learning_from_data_goes_on_to_the_same_bits(tmp_path, window_mb):
    data = {"input": record(tmp_path / "signs.jsonl", 300), "window_mb": window_mb}
    settings = data | {"algo": "MARWIL", "step_per_epoch": 30, "batch_size": 32, "hidden_sizes": [8], "logger": False}
    train(tmp_path / "parted", max_epochs=2, **settings)
    train(tmp_path / "parted", resume=True, max_epochs=4)
    train(tmp_path / "whole", max_epochs=4, **settings)
    parted, whole = (load(tmp_path / name / "stage1" / "last.ckpt") for name in ("parted", "whole"))
    for part in ("state_dict", "progress"):
        assert_equal(parted[part], whole[part])
    assert without_times(tmp_path / "parted") == without_times(tmp_path / "whole")
    (window,) = whole["experience"]["windows"]
    assert (window["read"] > 600) == (window_mb < 1)


def killed_and_resumed(kills: int, seed: int, folder: Path) -> None:
    """Kills one run at random moments, and compares what it ends with."""
    seconds = finish(folder / "whole", RUN)
    rng, hit = random.Random(seed), []
    while len(hit) < kills:
        phase = kill_once(folder / "killed", RUN, (folder / "killed").exists(), seconds / 2, rng)
        if phase is None:
            break
        hit.append(phase)
    finish(folder / "killed", RUN, (folder / "killed").exists())
    assert not differences(outcome(folder / "whole"), outcome(folder / "killed")), hit


def test_a_run_killed_three_times_ends_with_the_same_bits(tmp_path: Path) -> None:
    killed_and_resumed(3, random.randrange(1 << 30), tmp_path)


@pytest.mark.slow
def test_a_run_killed_ten_times_ends_with_the_same_bits(tmp_path: Path) -> None:
    killed_and_resumed(10, random.randrange(1 << 30), tmp_path)


def test_a_cut_episode_bootstraps_and_is_not_counted(tmp_path: Path) -> None:
    long = TINY | {"env_config": {"length": 100}, "two_steps": False}
    train(tmp_path / "run", **{name: x for name, x in long.items() if name != "max_epochs_2"})
    state = load(tmp_path / "run" / "stage1" / "last.ckpt")["experience"]
    assert state["collector"]["finished"] == 0 and not any("Train/return" in row for row in rows(tmp_path / "run"))
    buffer = state["buffer"]
    assert buffer["ended"].sum() == 2 and not buffer["terminated"].any()  # one epoch's end, in two envs


def test_each_epoch_begins_fresh_episodes_from_their_own_seeds(tmp_path: Path) -> None:
    from tiny_runs import fit, make_data, make_policy

    data = make_data(exact_resume=True)
    seeds: list[Any] = []
    policy = make_policy(data)
    setup = data.setup

    def watched(stage: str) -> None:
        setup(stage)
        reset = data.source.collector.envs.reset
        data.source.collector.envs.reset = lambda *, seed: (seeds.append(tuple(seed)), reset(seed=seed))[1]

    data.setup = watched  # type: ignore[method-assign]
    fit(policy, data, 3)
    assert len(seeds) == 3 and len({seed for pair in seeds for seed in pair}) == 6


def test_global_generators_are_put_back_exactly(tmp_path: Path) -> None:
    import numpy as np

    random.random(), np.random.normal(), torch.rand(3)
    torch.save(rng_state(), tmp_path / "rng")
    first = [random.random(), np.random.normal(), torch.rand(2).tolist()]
    set_rng_state(torch.load(tmp_path / "rng", weights_only=True))
    assert [random.random(), np.random.normal(), torch.rand(2).tolist()] == first


@pytest.mark.parametrize("devices", [2])
def test_exact_resume_is_refused_on_several_devices(devices: int, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--exact_resume works on one device, not on 2"):
        train(tmp_path / "run", **TINY | {"devices": devices})
    assert not (tmp_path / "run").exists()


# ---- by name ----


def test_more_epochs_go_on_where_the_stage_stood(run: Path) -> None:
    before = (run / "result.json").read_bytes(), (run / "progress.csv").read_bytes()
    # in a later process, as it would be: TensorBoard reads event files of one second in the order of their processes
    finish(run, {"max_epochs_2": 4}, resume=True)
    summary = json.loads((run / "summary.json").read_text())
    assert (run / "result.json").read_bytes().startswith(before[0])
    assert (run / "progress.csv").read_bytes().startswith(before[1])
    assert [(row["stage"], row["epoch"], row["env_steps"]) for row in rows(run)] == [
        (1, 0, 80), (1, 1, 160), (2, 0, 240), (2, 1, 320), (2, 2, 400), (2, 3, 480),
    ]  # fmt: skip
    assert summary["stage1"]["epochs"] == 2 and summary["stage2"]["epochs"] == 4
    assert summary["stage2"]["env_steps"] == 320
    for name, points in curve(run).items():
        steps = [step for step, _ in points]
        assert steps == sorted(set(steps)), name


def test_rows_behind_the_checkpoint_are_cut(run: Path) -> None:
    expected = without_times(run)
    for name in ("last.ckpt", "previous.ckpt"):
        (run / "stage2" / name).unlink()
    (run / "summary.json").unlink()
    train(run, resume=True)
    assert without_times(run) == expected


def test_a_run_without_a_checkpoint_starts_from_the_beginning(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    expected = without_times(run)
    for path in run.glob("stage*/*.ckpt"):
        path.unlink()
    train(run, resume=True)
    assert without_times(run) == expected and "has no checkpoint yet" in capsys.readouterr().out


def test_a_stage_added_later_refines_what_was_learned(tmp_path: Path) -> None:
    single = {name: value for name, value in TINY.items() if not name.endswith("_2")} | {"two_steps": False}
    train(tmp_path / "run", **single)
    summary = train(tmp_path / "run", resume=True, two_steps=True, max_epochs_2=1)
    assert [row["stage"] for row in rows(tmp_path / "run")] == [1, 1, 2] and summary["stage2"]["epochs"] == 1


@pytest.mark.parametrize("patience, epochs", [({}, 3), ({"patience": 4}, 5)])
def test_a_stage_that_early_stopping_ended_stays_ended_unless_it_gets_more_patience(
    patience: dict[str, int], epochs: int, tmp_path: Path
) -> None:
    flat = {name: value for name, value in TINY.items() if not name.endswith("_2")}
    flat |= {"two_steps": False, "monitor": "Eval/length", "patience": 2, "max_epochs": 9}  # always 8: never better
    train(tmp_path / "run", **flat)
    assert len(rows(tmp_path / "run")) == 3
    summary = train(tmp_path / "run", resume=True, **patience)
    assert len(rows(tmp_path / "run")) == epochs and summary["stage1"]["stop_reason"] == "early_stopping"


def test_a_stage_that_reached_its_return_stays_ended(tmp_path: Path) -> None:
    flat = {name: value for name, value in TINY.items() if not name.endswith("_2")} | {"two_steps": False}
    train(tmp_path / "run", **flat | {"stop_return": 0.0, "max_epochs": 9})
    summary = train(tmp_path / "run", resume=True, max_epochs=20)
    assert len(rows(tmp_path / "run")) == 1 and summary["stage1"]["stop_reason"] == "stop_return"
    train(tmp_path / "run", resume=True, stop_return=1e9, max_epochs=2)
    assert len(rows(tmp_path / "run")) == 2


@pytest.mark.parametrize(
    "first, then",
    [
        ({"total_timesteps": 80}, {"total_timesteps": 160}),
        ({"max_steps": 20}, {"max_steps": 38}),
        ({"max_time": "00:00:00:01"}, {"max_time": "00:00:00:01"}),
    ],
)
def test_a_stage_that_its_budget_ended_goes_on(first: dict[str, Any], then: dict[str, Any], tmp_path: Path) -> None:
    single = {name: x for name, x in TINY.items() if not name.startswith("max_") and not name.endswith("_2")}
    single |= {"two_steps": False, "learning_starts": 0, "exact_resume": False}
    train(tmp_path / "run", **single | first)
    before = rows(tmp_path / "run")
    assert before
    train(tmp_path / "run", resume=True, **then)
    after = rows(tmp_path / "run")
    assert after[: len(before)] == before and after[-1]["updates"] > before[-1]["updates"]
    assert [row["epoch"] for row in after] == list(range(len(after)))


def test_the_run_may_have_moved(run: Path, tmp_path: Path) -> None:
    shutil.move(run, tmp_path / "elsewhere")
    summary = train(tmp_path / "elsewhere", resume=True, max_epochs_2=3)
    assert Path(summary["best_path"]).parent == tmp_path / "elsewhere"
    assert Path(summary["stage2"]["best_path"]).exists() and len(rows(tmp_path / "elsewhere")) == 5


@pytest.mark.parametrize(
    "settings, named",
    [
        ({"algo": "tiny_algo:Other"}, "--algo"),
        ({"gamma": 0.5}, "--gamma 0.5 would change what was learned so far .* has 0.99"),
        ({"hidden_sizes": [8, 8]}, "--hidden_sizes"),
        ({"env": "CartPole-v1"}, "--env CartPole-v1"),
        ({"num_envs": 1}, "--num_envs"),
        ({"seed": 1}, "--seed"),
        ({"lr_2": 1.0}, "--lr_2"),
        ({"step2": {"n_step": 3}}, "--step2 n_step 3"),
        ({"exact_resume": False}, "--exact_resume"),
        ({"two_steps": False}, "--two_steps"),
    ],
)
def test_what_would_change_what_was_learned_is_refused_by_name(settings: dict[str, Any], named: str, run: Path) -> None:
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    with pytest.raises(UsageError, match=named):
        train(run, resume=True, **settings)
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before


def test_an_env_whose_spaces_have_changed_is_refused(tmp_path: Path) -> None:
    from tiny_runs import Signs

    single = {name: x for name, x in TINY.items() if name not in ("env", "max_epochs_2")} | {"two_steps": False}
    train(tmp_path / "run", env=Signs, **single)
    with pytest.raises(UsageError, match="action space"):
        train(tmp_path / "run", resume=True, env=lambda: Signs(start=3))


def test_the_command_typed_again_goes_on(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["train", "--config", json.dumps(TINY), "--output_dir", str(run.parent), "--experiment_name", "run"]
    assert main([*argv, "--max_epochs_2", "3", "--ckpt_path", "last"]) == 0
    assert f"going on from {run}/stage2/last.ckpt: stage 2, 320 env steps" in capsys.readouterr().out
    assert len(rows(run)) == 5


def test_names_are_needed_known_and_stay_inside(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    base = ["train", "--output_dir", str(run.parent), "--resume"]
    for argv, said in (
        ([], "--resume needs the name of the run: --experiment_name NAME; there are run"),
        (["--experiment_name", "rum"], "there is no run .*rum; nearest: run"),
        (["--experiment_name", "../x"], "must be the name of a folder"),
        (["--experiment_name", "/tmp"], "must be the name of a folder"),
        (["--experiment_name", "a\nb"], "must be the name of a folder"),
    ):
        assert main([*base, *argv]) == 2
        error = capsys.readouterr().err
        assert error.count("\n") == 1
        import re

        assert re.search(said, error), error


def test_a_new_run_does_not_fall_into_an_old_one(run: Path) -> None:
    with pytest.raises(UsageError, match="exists already.*--resume"):
        train(run, **TINY)


# ---- damage ----


def test_a_cut_checkpoint_is_passed_over_for_the_one_before(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    expected = without_times(run)
    path = run / "stage2" / "last.ckpt"
    whole = path.read_bytes()
    for size in [0, 1, 3, 4, 100, *(random.randrange(len(whole)) for _ in range(25)), len(whole) - 1]:
        path.write_bytes(whole[:size])
        resume = find_resume(run)
        assert resume is not None and resume.path.name == "previous.ckpt" and resume.env_steps == 240
        (problem,) = resume.problems
        assert str(path) in problem and "\n" not in problem
    train(run, resume=True)
    assert without_times(run) == expected
    assert "passing it over" in capsys.readouterr().out


def test_a_checkpoint_with_flipped_bytes_is_passed_over(run: Path) -> None:
    path = run / "stage2" / "last.ckpt"
    content = bytearray(path.read_bytes())
    for place in range(len(content) // 2, len(content) // 2 + 200):  # more than what is between two tensors
        content[place] ^= 1
    path.write_bytes(content)
    resume = find_resume(run)
    assert resume is not None and resume.path.name == "previous.ckpt" and "is damaged" in resume.problems[0]


def test_a_file_of_weights_in_the_place_of_a_full_checkpoint_is_passed_over(run: Path) -> None:
    shutil.copy(run / "best.ckpt", run / "stage2" / "last.ckpt")
    resume = find_resume(run)
    assert resume is not None and resume.path.name == "previous.ckpt" and "no full checkpoint" in resume.problems[0]


@pytest.mark.parametrize("content", [b"{", b"\xff\xfe", b"[1]", b"[" * 100_000])
def test_a_damaged_summary_of_stage_1_is_null_and_said(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "summary.json").write_bytes(content)
    with pytest.warns(UserWarning, match="summary.json cannot be read"):
        assert read_summary(tmp_path / "summary.json") is None


@pytest.mark.parametrize("content", [b"{", b"\xff\xfe", b"[1]", b"[" * 100_000])
def test_a_damaged_config_is_one_line(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes(content)
    with pytest.raises(UsageError, match="config.json cannot be read"):
        read_config(tmp_path)


def test_a_hostile_checkpoint_runs_nothing_and_is_passed_over(run: Path, tmp_path: Path) -> None:
    class Hostile:
        def __reduce__(self) -> Any:
            return Path.write_text, (tmp_path / "ran", "")

    path = run / "stage2" / "last.ckpt"
    torch.save({"hyper_parameters": {"lit_rl": {}}, "progress": Hostile()}, path)
    resume = find_resume(run)
    assert resume is not None and resume.path.name == "previous.ckpt" and "unpickled" in resume.problems[0]
    assert not (tmp_path / "ran").exists()


def test_where_no_checkpoint_can_be_read_nothing_is_started_over(run: Path) -> None:
    before = (run / "result.json").read_bytes()
    for path in run.glob("stage*/*.ckpt"):
        path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(UsageError, match="last.ckpt is cut off after 1000 bytes"):
        train(run, resume=True)
    assert (run / "result.json").read_bytes() == before


def test_a_full_disk_ends_the_run_with_one_line_and_what_was_there_goes_on(run: Path) -> None:
    import subprocess
    import sys

    here = Path(__file__).parent  # where the env is
    size = (run / "stage2" / "last.ckpt").stat().st_size
    code = (
        "import resource, signal, sys; signal.signal(signal.SIGXFSZ, signal.SIG_IGN);"
        f"resource.setrlimit(resource.RLIMIT_FSIZE, ({size - 100}, {size - 100}));"
        "from lit_rl.cli import main; sys.exit(main(sys.argv[1:]))"
    )
    argv = ["train", "--output_dir", str(run.parent), "--experiment_name", "run", "--resume", "--max_epochs_2", "4"]
    ended = subprocess.run([sys.executable, "-c", code, *argv], capture_output=True, text=True, timeout=120, cwd=here)
    assert ended.returncode == 2 and "Traceback" not in ended.stderr, ended.stderr
    (line,) = [line for line in ended.stderr.splitlines() if "lit-rl: error" in line]
    assert "cannot write" in line and "last.ckpt: File too large; the file that was there is untouched" in line
    found = find_last(run / "stage2")
    assert found is not None and found[0].name == "last.ckpt" and not list(run.rglob("*.tmp"))
    train(run, resume=True, max_epochs_2=4)
    assert len(rows(run)) == 6


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    assert main(["train", "--config", json.dumps(TINY), "--output_dir", str(tmp_path / "file" / "x")]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and "cannot be written" in error


def test_best_weights_that_a_checkpoint_names_are_there_at_any_moment(tmp_path: Path) -> None:
    import pytorch_lightning as pl
    from tiny_runs import fit, make_data, make_policy

    from lit_rl.callbacks.best import BestCheckpoint
    from lit_rl.callbacks.last import LastCheckpoint

    class Look(pl.Callback):
        """What a process that is killed now would find."""

        def on_train_batch_start(self, *_: Any) -> None:
            for path in (tmp_path / "last.ckpt", tmp_path / "previous.ckpt"):
                if path.exists():
                    best = load(path)["callbacks"][BestCheckpoint.state_key]["best_model_path"]
                    assert not best or (tmp_path / best).exists()
                    named.add(best)

        on_validation_end = on_train_batch_start

    named: set[str] = set()
    data = make_data()
    best = BestCheckpoint(tmp_path, "Eval/return", "max")
    fit(make_policy(data), data, 8, [Look(), best, LastCheckpoint(tmp_path)])
    assert len(named) > 2 and len(list(tmp_path.glob("epoch=*.ckpt"))) <= 2
