"""Runs on two ranks, in real processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from rank_witness import Imitator, Witness
from recorded_episodes import record
from tiny_runs import DQN, Signs, make_trainer

from lit_rl.checkpoint import load
from lit_rl.datamodule import ExperienceDataModule
from lit_rl.lit_policy import LitPolicy

ROOT = Path(__file__).parents[2]
TRAIN = str(ROOT / "train.py")
QUIET = ["--accelerator", "cpu", "--logger", "false", "--enable_progress_bar", "false"]
SMALL = [f"--{name}={json.dumps(value)}" for name, value in DQN.items()] + [
    *(
        "--algo",
        f"{Witness.__module__}:Witness",
        "--env",
        "rank_witness:Fragile",
        "--num_envs",
        "2",
        "--max_epochs",
        "2",
    ),
    *("--step_per_epoch", "40", "--episode_per_test", "5", "--num_test_envs", "2", "--test_episodes", "7"),
]
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]


class Run:
    """A command that is running, and what its ranks have noted."""

    def __init__(self, folder: Path, *arguments: str, launcher: list[str] | None = None) -> None:
        self.folder = folder
        self.process = subprocess.Popen(
            [*(launcher or [sys.executable]), TRAIN, *QUIET, "--output_dir", str(folder / "output"), *arguments],
            env=os.environ | {"WITNESS": str(folder), "PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}", "OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=folder,
            start_new_session=True,
        )

    def end(self, seconds: float = 400) -> tuple[int, str, str]:
        """Its exit code, and what it wrote, when it and its ranks have ended."""
        out, err = self.process.communicate(timeout=seconds)  # the ranks hold these pipes too
        return self.process.returncode, out, err

    def notes(self, rank: int, word: str) -> list[list[str]]:
        file = self.folder / f"rank{rank}.txt"
        lines = [line.split() for line in file.read_text().splitlines()] if file.exists() else []
        return [line[1:] for line in lines if line[0] == word]

    def wait_for(self, rank: int, word: str) -> list[str]:
        """The first note with this word."""
        deadline = time.monotonic() + 300
        while not (found := self.notes(rank, word)):
            assert self.process.poll() is None and time.monotonic() < deadline, f"rank {rank} never noted {word}"
            time.sleep(0.05)
        return found[0]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[type[Run]]:
    """Starts runs in the test's folder, and ends what is left of them."""
    runs: list[Run] = []

    def begin(*arguments: str, launcher: list[str] | None = None) -> Run:
        runs.append(Run(tmp_path, *arguments, launcher=launcher))
        return runs[-1]

    yield begin
    for run in runs:
        run.process.kill()
        for rank in (0, 1):
            for (pid,) in run.notes(rank, "pid"):
                if is_alive(int(pid)):
                    os.kill(int(pid), signal.SIGKILL)


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def have_ended(pids: list[int]) -> bool:
    """Whether they have; a process closes its pipes a moment before."""
    deadline = time.monotonic() + 10
    while (alive := any(map(is_alive, pids))) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not alive


def started_ranks(pid: int) -> list[int]:
    """The ranks that this one has started."""
    file = Path(f"/proc/{pid}/task/{pid}/children")
    found = file.read_text().split() if file.exists() else []
    return [int(child) for child in found if b"LOCAL_RANK=1" in Path(f"/proc/{child}/environ").read_bytes()]


def alone() -> ExperienceDataModule:
    """The data of these runs on a single rank."""
    return ExperienceDataModule(Signs, {"length": 8}, episode_per_test=5, test_episodes=7, num_test_envs=3)


def errors(err: str) -> list[str]:
    return [line for line in err.splitlines() if "lit-rl: error" in line]


def test_two_ranks_learn_one_policy_from_experience_of_their_own(start, tmp_path):
    run = start("--two_steps", "--max_epochs_2", "1", "--devices", "2", "--hooks", "rank_witness:Measures", *SMALL)
    code, out, err = run.end()
    assert code == 0, err
    assert err == "" and out.count("best policy:") == 1
    one, two = run.notes(0, "update"), run.notes(1, "update")
    assert len(one) == 60 and [u[:2] for u in one] == [u[:2] for u in two], "the same weights after every update"
    assert len({u[1] for u in one}) == 60 and not {u[2] for u in one} & {u[2] for u in two}
    # 2 stages, 120 env steps over both ranks, beside 2 + 2 + 1 evaluations and the test (8 steps an episode, split 3 : 2)
    ranks = [len(run.notes(rank, "step")) for rank in (0, 1)]
    assert ranks[0] > ranks[1] > 60
    (folder,) = (tmp_path / "output").iterdir()
    rows = [json.loads(line) for line in (folder / "result.json").read_text().splitlines()]
    assert [(row["stage"], row["env_steps"], row["updates"]) for row in rows] == [
        (1, 40, 20),
        (1, 80, 40),
        (2, 120, 20),
    ]
    assert [row["Train/episodes"] for row in rows] == [4, 4, 4], "2 envs on each of 2 ranks, 10 steps in episodes of 8"
    assert [row["Train/length"] for row in rows] == [8, 8, 8]
    values = [[float(value) for (value,) in run.notes(rank, "value")] for rank in (0, 1)]
    assert [len(of_rank) for of_rank in values] == [6, 6]
    for i, row in enumerate(rows):  # what hooks measured of both ranks' episodes is one
        of_epoch = [value for of_rank in values for value in of_rank[2 * i : 2 * i + 2]]
        found = [row[f"Train/value_{name}"] for name in ("mean", "min", "max")]
        assert found == [pytest.approx(x) for x in (sum(of_epoch) / 4, min(of_epoch), max(of_epoch))]
        assert found[1] < 10 < found[2], "one rank's are ten more"
    # a single rank finds the same, digit for digit
    summary = json.loads((folder / "summary.json").read_text())
    for stage, row in (("stage1", rows[1]), ("stage2", rows[2])):
        policy = LitPolicy.load_from_checkpoint(folder / stage / "last.ckpt")
        make_trainer(1).validate(policy, datamodule=alone(), verbose=False)
        prefix = "Eval/" if stage == "stage1" else "Step2Eval/"
        found = {name: value for name, value in row.items() if name.startswith(prefix)}
        assert found == {name: pytest.approx(value, rel=1e-7) for name, value in policy.reported.items()}
    policy = LitPolicy.load_from_checkpoint(folder / "best.ckpt")
    make_trainer(1).test(policy, datamodule=alone(), verbose=False)
    for name, value in policy.reported.items():
        assert summary["test"][{"return": "return_mean"}.get(name[5:], name[5:])] == value, name


def test_torchrun_starts_one_run_with_one_folder(start, tmp_path):
    run = start(*SMALL, launcher=TORCHRUN)
    code, out, err = run.end()
    assert code == 0, err
    assert out.count("best policy:") == 1 and errors(err) == []
    assert [u[:2] for u in run.notes(0, "update")] == [u[:2] for u in run.notes(1, "update")] != []
    (folder,) = (tmp_path / "output").iterdir()
    assert json.loads((folder / "summary.json").read_text())["stage1"]["env_steps"] == 80


SLOW = pytest.mark.slow  # one of each kind is enough while working


@pytest.mark.slow
def test_no_rank_outlives_the_one_that_started_it(start, tmp_path):
    run = start("--devices", "2", *SMALL)
    while not (ranks := started_ranks(run.process.pid)):
        time.sleep(0.02)
    run.process.kill()  # before the other one has found it
    code, _, err = run.end(90)
    assert code == -signal.SIGKILL and have_ended(ranks)
    assert f"rank 0 (process {run.process.pid}) has ended" in err


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [["--experiment_name", "there"], ["--gamma", "2"], ["--devices", "3"]], ids=str)
def test_torchrun_with_a_wrong_flag_says_so_once(start, tmp_path, arguments):
    (tmp_path / "output" / "there").mkdir(parents=True)
    code, out, err = start(*SMALL, *arguments, launcher=TORCHRUN).end()
    assert code != 0 and len(errors(err)) == 1 and errors(err)[0].startswith("lit-rl: error: ")
    assert arguments[0] in errors(err)[0] and [x.name for x in (tmp_path / "output").iterdir()] == ["there"]


@pytest.mark.parametrize("victim", [pytest.param(0, marks=SLOW), 1])
def test_a_rank_that_dies_ends_the_run_with_its_name(start, victim):
    run = start("--devices", "2", *SMALL, '--env_config={"what": "sleep", "rank": 1}')
    (asleep,) = run.wait_for(1, "asleep")
    pids = [run.process.pid, int(asleep)]
    began = time.monotonic()
    os.kill(pids[victim], signal.SIGKILL)
    code, _, err = run.end(60)
    assert time.monotonic() - began < 60 and code == (1 if victim else -signal.SIGKILL)
    assert have_ended(pids)
    (message,) = errors(err)
    how = "was ended by SIGKILL" if victim else "has ended"
    assert f"rank {victim} (process {pids[victim]}) {how}" in message and "Traceback" not in err


def test_sigterm_leaves_a_checkpoint_that_both_ranks_go_on_from(start, tmp_path):
    run = start("--devices", "2", *SMALL, "--experiment_name", "x", "--max_epochs", "100000")
    run.wait_for(1, "update")
    run.process.send_signal(signal.SIGTERM)
    code, _, err = run.end()
    assert code == 143 and "Traceback" not in err, err
    for rank in (0, 1):
        (tmp_path / f"rank{rank}.txt").unlink()
    env_steps = load(tmp_path / "output" / "x" / "stage1" / "last.ckpt")["progress"]["env_steps"]
    assert env_steps % 20 == 0 and env_steps > 0
    run = start("--resume", "--experiment_name", "x", "--max_epochs", str(env_steps // 40 + 2))
    code, out, err = run.end()
    assert code == 0 and out.count("best policy:") == 1, err
    one, two = run.notes(0, "update"), run.notes(1, "update")
    assert int(one[0][0]) == env_steps + 4 and int(one[-1][0]) == env_steps // 40 * 40 + 80
    assert [u[:2] for u in one] == [u[:2] for u in two] and not {u[2] for u in one} & {u[2] for u in two}


@pytest.mark.parametrize(
    "what, words",
    [
        ("reward", "env 0 returned the reward nan at env step 25"),
        pytest.param(
            "raise", "env 2, step 7 (step 7 of its episode) raised OSError: the simulator is gone", marks=SLOW
        ),
    ],
)
def test_what_stops_one_rank_stops_all(start, what, words):
    run = start("--devices", "2", *SMALL, f'--env_config={{"what": "{what}", "rank": 1, "at": 7}}')
    code, _, err = run.end()
    first, second = errors(err)
    assert code == 1 and first.startswith(f"lit-rl: error: rank 1: {words}")
    assert "rank 1" in second and "has ended with exit code 1 (its messages are above)" in second


def test_a_wrong_flag_starts_no_rank(start):
    code, _, err = start("--devices", "2", *SMALL, "--episode_per_test", "1").end()
    assert code == 2 and "--episode_per_test 1 leaves some of the 2 ranks nothing to play" in err
    assert len(err.splitlines()) == 1


def test_ranks_learn_from_shares_of_the_data_and_score_as_one_does(start, tmp_path):
    data = record(tmp_path / "signs.jsonl", 40)
    sizes = ["--step_per_epoch", "20", "--max_epochs", "2", "--batch_size", "8", "--hidden_sizes", "[8]"]
    imitate = ["--algo", f"{Imitator.__module__}:Imitator", "--input", data, "--validation_fraction", "0.2"]
    run = start("--devices", "2", *imitate, *sizes, "--experiment_name", "two")
    code, _, err = run.end()
    assert code == 0, err
    weights, experience = ([[line[i] for line in run.notes(rank, "update")] for rank in (0, 1)] for i in (0, 1))
    assert len(weights[0]) == 40 and weights[0] == weights[1] and not set(experience[0]) & set(experience[1])
    folder = tmp_path / "output" / "two"
    best = LitPolicy.load_from_checkpoint(folder / "best.ckpt")
    alone = ExperienceDataModule(None, input=data, validation_fraction=0.2)
    make_trainer(1).validate(best, datamodule=alone, verbose=False)
    rows = [json.loads(line) for line in (folder / "result.json").read_text().splitlines()]
    assert "Eval/f1" in best.reported
    assert best.reported in [pytest.approx({name: row[name] for name in best.reported}, rel=1e-7) for row in rows]
