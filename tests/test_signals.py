"""Ctrl-C and SIGTERM, sent to real runs in each of their phases."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kill_campaign import PHASES, Clock, finish, start

from lit_rl.checkpoint import load

RUN: dict[str, Any] = {
    "env": "tiny_runs:Signs",
    "two_steps": True,
    "tuned": False,
    "num_envs": 2,
    "step_per_epoch": 200,
    "max_epochs": 500,
    "max_epochs_2": 500,
    "patience_2": 500,
    "hidden_sizes": [8],
    "learning_starts": 20,
    "steps_per_iteration": 20,
    "collect_per_step": 4,
    "buffer_size": 400,
    "batch_size": 8,
    "episode_per_test": 20,
    "num_test_envs": 2,
    "test_episodes": 3,
    "accelerator": "cpu",
    "enable_progress_bar": False,
}
SHORT_SECOND = {"max_epochs_2": 1}
DEADLINE = 60.0


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Any]:
    """Starts a run in ``tmp_path / "run"``; whatever a test leaves running is killed."""
    begun = []

    def begin(settings: dict[str, Any], resume: bool = False) -> Any:
        process, clock = start(tmp_path / "run", settings, resume)
        begun.append(process)
        return process, clock

    yield begin
    for process in begun:
        process.kill()
        process.join()


def wait_for(process: Any, clock: Clock, phase: str, times: int) -> None:
    """Until the run has entered the phase that often and is in it."""
    number, deadline = PHASES.index(phase), time.monotonic() + DEADLINE
    while not (clock.entered[number] >= times and clock.phase.value == number):
        assert process.is_alive() and time.monotonic() < deadline
        time.sleep(0.0005)


def end_of(process: Any) -> int:
    process.join(DEADLINE)
    assert process.exitcode is not None, "the run goes on and on"
    return int(process.exitcode)


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def alive(pids: list[int]) -> list[int]:
    return [pid for pid in pids if Path(f"/proc/{pid}").exists()]


@pytest.mark.parametrize("phase", ["collecting", "updating", "evaluating", "writing a checkpoint"])
def test_ctrl_c_in_stage_1_goes_on_with_stage_2(phase: str, begin: Any, tmp_path: Path) -> None:
    process, clock = begin(RUN | SHORT_SECOND)
    wait_for(process, clock, phase, 4)
    os.kill(process.pid, signal.SIGINT)
    assert end_of(process) == 0, (tmp_path / "run.log").read_text()
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["stage1"]["stop_reason"] == "ctrl-c" and summary["stage1"]["epochs"] < 400
    assert summary["stage2"]["epochs"] == 1 and summary["test"]["episodes"] == 3
    rows = [json.loads(line) for line in (tmp_path / "run" / "result.json").read_text().splitlines()]
    assert all("Eval/return" in row for row in rows if row["stage"] == 1)


def test_ctrl_c_in_stage_2_goes_on_to_the_test(begin: Any, tmp_path: Path) -> None:
    process, clock = begin(RUN | {"max_epochs": 1})
    wait_for(process, clock, "between the stages", 1)
    wait_for(process, clock, "updating", clock.entered[PHASES.index("updating")] + 15)
    os.kill(process.pid, signal.SIGINT)
    assert end_of(process) == 0
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["stage2"]["stop_reason"] == "ctrl-c" and (tmp_path / "run" / "best.ckpt").exists()


@pytest.mark.parametrize("phase", ["collecting", "evaluating", "writing a checkpoint", "testing"])
def test_a_second_ctrl_c_quits_with_130(phase: str, begin: Any, tmp_path: Path) -> None:
    process, clock = begin(
        RUN | ({"max_epochs": 1, "max_epochs_2": 1, "test_episodes": 300} if phase == "testing" else {})
    )
    wait_for(process, clock, phase, 1 if phase == "testing" else 4)
    for _ in range(2):
        os.kill(process.pid, signal.SIGINT)
        time.sleep(0.01)
    assert end_of(process) == 130, (tmp_path / "run.log").read_text()
    assert "Traceback" not in (tmp_path / "run.log").read_text()
    assert load(tmp_path / "run" / "stage1" / "last.ckpt")["progress"]["stage"] == 1


@pytest.mark.parametrize(
    "phase, exact",
    [
        ("collecting", False),
        ("updating", True),
        ("evaluating", False),
        ("writing a checkpoint", True),
        pytest.param("collecting", True, marks=pytest.mark.slow),
        pytest.param("updating", False, marks=pytest.mark.slow),
        pytest.param("evaluating", True, marks=pytest.mark.slow),
        pytest.param("writing a checkpoint", False, marks=pytest.mark.slow),
    ],
)
def test_sigterm_leaves_a_full_checkpoint_and_exits_143(phase: str, exact: bool, begin: Any, tmp_path: Path) -> None:
    folder, settings = tmp_path / "run", {"exact_resume": exact, "step_per_epoch": 400}
    process, clock = begin(RUN | settings)
    wait_for(process, clock, phase, 130 if phase == "collecting" else 2)
    os.kill(process.pid, signal.SIGTERM)
    assert end_of(process) == 143, (tmp_path / "run.log").read_text()
    assert "Traceback" not in (tmp_path / "run.log").read_text()
    checkpoint = load(folder / "stage1" / "last.ckpt")
    assert "experience" in checkpoint and checkpoint["optimizer_states"]
    env_steps = checkpoint["progress"]["env_steps"]
    if phase == "collecting" and not exact:
        assert env_steps % 400  # in the middle of an epoch
    finish(folder, RUN | SHORT_SECOND | settings | {"max_epochs": 3}, resume=True)
    rows = [json.loads(line) for line in (folder / "result.json").read_text().splitlines()]
    assert [(row["stage"], row["env_steps"]) for row in rows] == [(1, 400), (1, 800), (1, 1200), (2, 1600)]
    assert all("Eval/return" in row or "Step2Eval/return" in row for row in rows)


@pytest.mark.parametrize(
    "phase, number, code",
    [
        ("collecting", signal.SIGINT, 130),
        ("collecting", signal.SIGTERM, 143),
        ("evaluating", signal.SIGKILL, -9),
        pytest.param("evaluating", signal.SIGINT, 130, marks=pytest.mark.slow),
        pytest.param("evaluating", signal.SIGTERM, 143, marks=pytest.mark.slow),
        pytest.param("collecting", signal.SIGKILL, -9, marks=pytest.mark.slow),
    ],
)
def test_async_workers_neither_die_first_nor_outlive_the_run(
    phase: str, number: signal.Signals, code: int, begin: Any, tmp_path: Path
) -> None:
    process, clock = begin(RUN | {"vector_env": "async"})
    wait_for(process, clock, phase, 4)
    workers = children(process.pid)
    assert len(workers) >= 2
    # a terminal's Ctrl-C goes to the whole group; the workers must not be in it
    assert all(os.getpgid(worker) == worker for worker in workers)
    for _ in range(2 if number == signal.SIGINT else 1):
        os.kill(process.pid, number)
        time.sleep(0.01)
    assert end_of(process) == code, (tmp_path / "run.log").read_text()
    deadline = time.monotonic() + 5
    while alive(workers) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not alive(workers)
    assert "leaked" not in (tmp_path / "run.log").read_text()


def test_nothing_listens_on_the_network(begin: Any) -> None:
    process, clock = begin(RUN | {"vector_env": "async"})
    wait_for(process, clock, "evaluating", 2)
    held = {os.readlink(fd) for fd in Path(f"/proc/{process.pid}/fd").iterdir() if fd.is_symlink()}
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            _, _, _, state, *rest = line.split()
            assert state != "0A" or f"socket:[{rest[5]}]" not in held  # 0A: listening


def test_one_ctrl_c_with_async_workers_ends_the_run_in_order(begin: Any, tmp_path: Path) -> None:
    process, clock = begin(RUN | SHORT_SECOND | {"vector_env": "async"})
    wait_for(process, clock, "collecting", 20)
    workers = children(process.pid)
    os.kill(process.pid, signal.SIGINT)
    assert end_of(process) == 0, (tmp_path / "run.log").read_text()
    assert not alive(workers) and (tmp_path / "run" / "summary.json").exists()


def test_a_stage_ended_by_ctrl_c_goes_on_when_it_is_resumed(begin: Any, tmp_path: Path) -> None:
    single = {name: value for name, value in RUN.items() if not name.endswith("_2")} | {"two_steps": False}
    process, clock = begin(single)
    wait_for(process, clock, "updating", 4)
    os.kill(process.pid, signal.SIGINT)
    assert end_of(process) == 0
    ended = json.loads((tmp_path / "run" / "summary.json").read_text())["stage1"]["epochs"]
    finish(tmp_path / "run", {"max_epochs": ended + 2}, resume=True)
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["stage1"]["epochs"] == ended + 2
