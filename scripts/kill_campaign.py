"""Kills training runs with SIGKILL at random moments, resumes them, and compares what they end with.

Usage: python scripts/kill_campaign.py --kills 100

Every experiment is a short two-stage run under --exact_resume that is killed a few times, resumed each time, and then left
to end. It must end with the same bits as a run that nobody stopped: the weights, targets, optimizer, replay buffer and
randomness of both stages, and the rows of result.json but for the times. Half of the kills come at a moment drawn from the
run's whole time, half a random moment after one of the phases was entered. The processes are real ones, forked, so
that each starts in milliseconds.

The table has a row for each phase that kills hit: how many, how many of these runs were resumed, how many ended
identical, and how many lost a row that had been checkpointed.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from tensorboard.summary.writer import event_file_writer

from lit_rl.checkpoint import load
from lit_rl.pipeline.resume import find_resume

PHASES = ("starting", "collecting", "updating", "evaluating", "writing a checkpoint", "between the stages", "testing")
RUN: dict[str, Any] = {
    "two_steps": True,
    "exact_resume": True,
    "tuned": False,
    "env": "CartPole-v1",
    "num_envs": 2,
    "step_per_epoch": 200,
    "max_epochs": 4,
    "max_epochs_2": 3,
    "hidden_sizes": [16],
    "learning_starts": 100,
    "steps_per_iteration": 20,
    "collect_per_step": 4,
    "buffer_size": 400,
    "batch_size": 16,
    "target_update_every": 7,
    "average_weights": 0.99,
    "episode_per_test": 3,
    "num_test_envs": 3,
    "test_episodes": 3,
    "accelerator": "cpu",
    "enable_progress_bar": False,
    "logger": "tensorboard",
}
"""A run of about two seconds: 4 + 3 epochs of 200 env steps, the buffer full in the second epoch."""
TIMES = ("time_total_s", "time_this_epoch_s")

_fork = multiprocessing.get_context("fork")


class Clock:
    """The phase that a run is in and how often each was entered, seen from the process that kills it."""

    def __init__(self) -> None:
        self.phase = _fork.RawValue("i", 0)
        self.entered = _fork.RawArray("i", len(PHASES))

    def enter(self, phase: str) -> int:
        before = self.phase.value
        self.phase.value = PHASES.index(phase)
        self.entered[self.phase.value] += 1
        return before


def start(folder: Path, settings: dict[str, Any], resume: bool) -> tuple[Any, Clock]:
    """A process that runs ``lit-rl train`` for the experiment ``folder``; its output goes to ``folder``'s sibling ``.log``."""
    clock = Clock()
    process = _fork.Process(target=_train, args=(folder, settings, resume, clock))
    process.start()
    return process, clock


def _train(folder: Path, settings: dict[str, Any], resume: bool, clock: Clock) -> None:
    log = os.open(folder.with_suffix(".log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(log, 1)
    os.dup2(log, 2)
    _note_phases(clock)
    # A process of its own numbers its event files from 0. TensorBoard reads those of one second in the order of the
    # numbers as text, 10 before 9, so one that was forked behind others must begin anew.
    event_file_writer._global_uid = event_file_writer.AtomicCounter(0)
    from lit_rl.cli import main as lit_rl

    names = ["--output_dir", str(folder.parent), "--experiment_name", folder.name]
    sys.exit(lit_rl(["train", "--config", json.dumps(settings), *names, *(["--resume"] if resume else [])]))


def _note_phases(clock: Clock) -> None:
    """Make this process write down what it is doing."""
    from lit_rl.checkpoint import AtomicCheckpointIO
    from lit_rl.data.collector import Collector
    from lit_rl.data.played import PlayedEpisodes
    from lit_rl.lit_policy import LitPolicy
    from lit_rl.pipeline import run as pipeline_run

    def during(phase: str, owner: Any, name: str) -> None:
        function: Callable[..., Any] = getattr(owner, name)

        def noted(*args: Any, **kwargs: Any) -> Any:
            before = clock.enter(phase)
            try:
                return function(*args, **kwargs)
            finally:
                clock.phase.value = before

        setattr(owner, name, noted)

    during("updating", LitPolicy, "training_step")
    during("collecting", Collector, "collect")
    during("writing a checkpoint", AtomicCheckpointIO, "save_checkpoint")
    during("testing", pipeline_run, "run_test")
    play = PlayedEpisodes.play

    def played(*args: Any, **kwargs: Any) -> Iterator[Any]:
        before = clock.enter("evaluating")
        yield from play(*args, **kwargs)
        clock.phase.value = before

    PlayedEpisodes.play = played  # type: ignore[method-assign]
    end = LitPolicy.on_train_end

    def ended(self: Any) -> None:
        end(self)
        clock.enter("between the stages")

    LitPolicy.on_train_end = ended  # type: ignore[method-assign]


def finish(folder: Path, settings: dict[str, Any], resume: bool = False) -> float:
    """Train to the end; the seconds that took. Raises RuntimeError with the run's output where it fails."""
    began = time.monotonic()
    process, _ = start(folder, settings, resume)
    process.join()
    if process.exitcode != 0:
        raise RuntimeError(f"exit code {process.exitcode}:\n{folder.with_suffix('.log').read_text()}")
    return time.monotonic() - began


def kill_once(folder: Path, settings: dict[str, Any], resume: bool, seconds: float, rng: random.Random) -> str | None:
    """Train and kill at a moment drawn by ``rng`` from ``seconds``; the phase it hit, None where the run ended before."""
    process, clock = start(folder, settings, resume)
    deadline = time.monotonic() + rng.uniform(0, seconds)
    if rng.random() < 0.5:
        phase = rng.randrange(len(PHASES))
        count = rng.randint(1, 400 if PHASES[phase] == "collecting" else 8)
        deadline = time.monotonic() + seconds
        while process.is_alive() and clock.entered[phase] < count and time.monotonic() < deadline:
            time.sleep(0.0005)
        deadline = time.monotonic() + rng.uniform(0, 0.005)
    while process.is_alive() and time.monotonic() < deadline:
        time.sleep(0.0005)
    if process.is_alive():
        os.kill(process.pid, signal.SIGKILL)
    process.join()
    if process.exitcode == 0:
        return None
    if process.exitcode != -signal.SIGKILL:
        raise RuntimeError(f"exit code {process.exitcode}:\n{folder.with_suffix('.log').read_text()}")
    return PHASES[clock.phase.value]


def checkpointed_rows(folder: Path) -> bytes:
    """The rows of result.json that the checkpoint to resume from counts, as they are on the disk."""
    resume = find_resume(folder)
    if resume is None:
        return b""
    states = load(resume.path)["callbacks"]
    rows = next(state["rows"] for key, state in states.items() if key.startswith("Records"))
    path = folder / "result.json"
    return b"".join(path.read_bytes().splitlines(keepends=True)[:rows]) if rows else b""


def outcome(folder: Path) -> dict[str, Any]:
    """All that a run ends with, but for times and paths."""
    found: dict[str, Any] = {"best": load(folder / "best.ckpt")["state_dict"]}
    for stage in ("stage1", "stage2"):
        checkpoint = load(folder / stage / "last.ckpt")
        for part in ("state_dict", "optimizer_states", "experience", "rng", "progress", "epoch", "global_step"):
            found[f"{stage} {part}"] = checkpoint[part]
        found[f"{stage} files"] = sorted(path.name for path in (folder / stage).glob("*.ckpt"))
    rows = [json.loads(line) for line in (folder / "result.json").read_text().splitlines()]
    found["rows"] = [{name: x for name, x in row.items() if name not in TIMES} for row in rows]
    summary = json.loads((folder / "summary.json").read_text())
    found["summary"] = {
        s: {n: x for n, x in summary[s].items() if n not in ("seconds", "best_path")}
        for s in ("stage1", "stage2", "test")
    }
    found["curve"] = curve(folder)
    return found


def curve(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """What TensorBoard shows: the points of each curve."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    shown = {}
    for stage in ("stage1", "stage2"):
        events = EventAccumulator(str(folder / stage), size_guidance={"scalars": 0}).Reload()
        for name in events.Tags()["scalars"]:
            shown[f"{stage} {name}"] = [(event.step, event.value) for event in events.Scalars(name)]
    return shown


def differences(one: Any, other: Any, where: str = "") -> list[str]:
    """Where two outcomes differ, to the last bit."""
    if isinstance(one, dict) and isinstance(other, dict):
        if one.keys() != other.keys():
            return [f"{where}: {sorted(map(str, one.keys() ^ other.keys()))}"]
        return [d for key in one for d in differences(one[key], other[key], f"{where}/{key}")]
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        if len(one) != len(other):
            return [f"{where}: {len(one)} and {len(other)}"]
        return [d for i, (a, b) in enumerate(zip(one, other, strict=True)) for d in differences(a, b, f"{where}/{i}")]
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        return [] if torch.equal(one, other) else [where]
    return [] if one == other or (one != one and other != other) else [f"{where}: {one!r} and {other!r}"]


def campaign(
    kills: int, seed: int, base: Path, settings: dict[str, Any], tell: Callable[[str], None]
) -> list[tuple[Any, ...]]:
    """Make that many kills; a row (phase, kills, resumed, identical, lost) for each phase and one for all."""
    rng = random.Random(seed)
    expected = None
    seconds = finish(base / "reference", settings)
    expected = outcome(base / "reference")
    tell(f"the run that nobody stops takes {seconds:.1f} s")
    hit: Counter[str] = Counter()
    resumed: Counter[str] = Counter()
    identical: Counter[str] = Counter()
    lost: Counter[str] = Counter()
    number = 0
    while hit.total() < kills:
        folder, phases, ended = base / f"killed{number}", [], False
        number += 1
        prefixes: list[tuple[str, bytes]] = []
        for _ in range(min(rng.randint(1, 5), kills - hit.total())):
            resume = folder.exists()
            phase = kill_once(folder, settings, resume, seconds, rng)
            if phase is None:
                ended = True
                break
            hit[phase] += 1
            phases.append(phase)
            if folder.exists():
                prefixes.append((phase, checkpointed_rows(folder)))
        if not ended:
            finish(folder, settings, resume=folder.exists())
        resumed.update(phases)
        found = differences(outcome(folder), expected)
        if found:
            tell(f"{folder.name}, killed while {', '.join(phases)}: differs in {'; '.join(found[:5])}")
        else:
            identical.update(phases)
        rows = (folder / "result.json").read_bytes()
        lost.update(phase for phase, prefix in prefixes if not rows.startswith(prefix))
        verdict = "DIFFERENT" if found else "identical"
        tell(f"{hit.total()} kills; {folder.name}: {', '.join(phases) or 'ended before a kill'}: {verdict}")
    table = [(p, hit[p], resumed[p], identical[p], lost[p]) for p in PHASES if hit[p]]
    return [*table, ("all", *(c.total() for c in (hit, resumed, identical, lost)))]


def main() -> int:
    parser = argparse.ArgumentParser(description="Kills runs at random moments, resumes and compares them.")
    parser.add_argument("--kills", type=int, default=100, help="how many (default 100)")
    parser.add_argument("--seed", type=int, default=0, help="of the moments (default 0)")
    parser.add_argument("--keep", type=Path, help="leave the runs in this folder")
    parser.add_argument("settings", nargs="?", default="{}", help="settings of the run that differ, as JSON")
    args = parser.parse_args()
    with contextlib.ExitStack() as stack:
        base = args.keep or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        base.mkdir(parents=True, exist_ok=True)
        settings = RUN | json.loads(args.settings)
        table = campaign(args.kills, args.seed, base, settings, lambda text: print(text, flush=True))
    print(f"\n{'killed while':<22}{'kills':>7}{'resumed':>9}{'identical':>11}{'lost':>6}")
    for phase, *counts in table:
        print(f"{phase:<22}{counts[0]:>7}{counts[1]:>9}{counts[2]:>11}{counts[3]:>6}")
    _, kills, _, same, lost = table[-1]
    return 0 if same == kills and not lost else 1


if __name__ == "__main__":
    sys.exit(main())
