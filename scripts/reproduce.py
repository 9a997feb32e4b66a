"""Train the algorithms that docs/results.md lists, and write it.

    python scripts/reproduce.py --list                    # the sets, and which runs are finished
    python scripts/reproduce.py cartpole pendulum/sac     # two sets, the second for one algorithm
    python scripts/reproduce.py --table                   # docs/results.md anew from the finished runs

Every run is a process of its own, one after another: the command that docs/results.md shows, with its tuned settings from
lit_rl/zoo, plus a folder to work in. A finished run leaves docs/results/<set>/<algo>-seed<N>.json and is skipped from
then on; one that was interrupted begins anew. Several of these scripts may work on one queue side by side.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import resource
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "docs" / "results"
SEEDS = (0, 1, 2, 3, 4)


@dataclass(frozen=True)
class Job:
    """An algorithm on an environment: how many env steps it may make, and what its mean test return must reach."""

    set: str
    algo: str
    env: str
    budget: int
    goal: float
    flags: tuple[str, ...] = ()
    seeds: tuple[int, ...] = SEEDS

    @property
    def name(self) -> str:
        return f"{self.set}/{self.algo.lower()}"

    def command(self, seed: int | str) -> list[str]:
        """What a user types."""
        return ["python", "train.py", "--algo", self.algo, "--env", self.env, *self.flags, "--seed", str(seed)]

    def result(self, seed: int, results: Path = RESULTS) -> Path:
        """Where a finished run is kept."""
        return results / self.set / f"{self.algo.lower()}-seed{seed}.json"


JOBS = (
    Job("cartpole", "DQN", "CartPole-v1", 50_000, 490),
    Job("cartpole", "PPO", "CartPole-v1", 100_000, 490),
    Job("cartpole", "A2C", "CartPole-v1", 500_000, 490),
    Job("cartpole", "PG", "CartPole-v1", 200_000, 450),
    Job("cartpole", "ES", "CartPole-v1", 500_000, 450),
    Job("pendulum", "SAC", "Pendulum-v1", 20_000, -170),
    Job("pendulum", "TD3", "Pendulum-v1", 20_000, -170),
    Job("pendulum", "DDPG", "Pendulum-v1", 20_000, -170),
    Job("pendulum", "PPO", "Pendulum-v1", 100_000, -200),
    Job("mountaincar", "DQN", "MountainCar-v0", 120_000, -115),
    Job("acrobot", "DQN", "Acrobot-v1", 100_000, -85),
    Job("acrobot", "PPO", "Acrobot-v1", 500_000, -85),
    Job("lunarlander", "PPO", "LunarLander-v3", 1_000_000, 240),
    Job("lunarlander", "DQN", "LunarLander-v3", 100_000, 150),
    Job("lunarlander-continuous", "SAC", "LunarLanderContinuous-v3", 150_000, 230, seeds=(0, 1, 2)),
)


def chosen(names: list[str]) -> list[Job]:
    """The jobs of these sets, or of a set's one algorithm, in the order in which they are named; all without names."""
    found = [job for name in names for job in JOBS if name in (job.set, job.name)]
    for name in names:
        if not any(name in (job.set, job.name) for job in JOBS):
            known = ", ".join(dict.fromkeys(job.set for job in JOBS))
            raise SystemExit(f"reproduce.py: error: no set {name}; there are {known}, and {JOBS[0].name} names one algorithm")
    return list(dict.fromkeys(found)) if names else list(JOBS)


@contextmanager
def claimed(path: Path) -> Iterator[bool]:
    """Whether no other process works on what ``path`` stands for; the claim ends with this process at the latest."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        yield True


def run_command(command: list[str], log: Path, timeout: float) -> tuple[float, float]:
    """Run ``command`` in the checkout, its output in ``log``; the seconds that it took, and those of CPU time.

    Raises:
        RuntimeError: it failed or took too long.
    """
    began, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    with open(log, "ab") as output:
        process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
        try:
            code = process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise RuntimeError(f"took more than {timeout:,.0f} s") from None
        finally:
            process.kill()
            process.wait()
    if code != 0:
        raise RuntimeError(f"exit code {code}, see {log}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return time.monotonic() - began, cpu


def train(job: Job, seed: int, out: Path, timeout: float) -> dict[str, Any]:
    """Run one command to its end; what is kept of it."""
    folder = out / job.set / f"{job.algo.lower()}-seed{seed}"
    shutil.rmtree(folder, ignore_errors=True)
    command = job.command(seed)
    where = ["--output_dir", str(folder.parent), "--experiment_name", folder.name]
    folder.parent.mkdir(parents=True, exist_ok=True)
    log = folder.with_suffix(".log")
    log.unlink(missing_ok=True)
    seconds, cpu_seconds = run_command([sys.executable, *command[1:], *where], log, timeout)
    return kept(job, seed, folder) | {"seconds": round(seconds, 1), "cpu_seconds": round(cpu_seconds, 1)}


def kept(job: Job, seed: int, folder: Path) -> dict[str, Any]:
    """What docs/results.md needs of the run in ``folder``."""
    summary = json.loads((folder / "summary.json").read_text())
    params = json.loads((folder / "params.json").read_text())
    rows = [json.loads(line) for line in (folder / "result.json").read_text().splitlines()]
    stage, test = summary["stage1"], summary["test"]
    return {
        "algo": job.algo,
        "env": job.env,
        "seed": seed,
        "command": shlex.join(job.command(seed)),
        "env_steps": stage["env_steps"],
        "updates": stage["updates"],
        "best_evaluation": stage["best_score"],
        "test": {name: test[name] for name in ("return_mean", "return_std", "episodes")},
        "curve": [[row["env_steps"], row["Eval/return"]] for row in rows if row.get("Eval/return") is not None],
        "commit": params["git_commit"],
        "versions": params["versions"],
    }


def write(path: Path, result: dict[str, Any]) -> None:
    """Write a result in one piece."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    curve = json.dumps(result["curve"])
    text = json.dumps(result | {"curve": None}, indent=1).replace('"curve": null', f'"curve": {curve}')
    part.write_text(text + "\n")
    os.replace(part, path)


def work(jobs: list[Job], seeds: list[int] | None, out: Path, results: Path, timeout: float) -> int:
    """Run what is not finished; how many runs failed."""
    failed = 0
    for job in jobs:
        for seed in job.seeds if seeds is None else seeds:
            path = job.result(seed, results)
            with claimed(out / f"{job.set}-{job.algo.lower()}-seed{seed}.lock") as free:
                if not free or path.exists():
                    continue
                print(f"{time.strftime('%H:%M:%S')} {shlex.join(job.command(seed))}", flush=True)
                try:
                    result = train(job, seed, out, timeout)
                except RuntimeError as error:
                    failed += 1
                    print(f"  failed: {error}", flush=True)
                    continue
                write(path, result)
                test = result["test"]
                print(
                    f"  test {test['return_mean']:.1f} ± {test['return_std']:.1f} after {result['env_steps']:,} env steps, "
                    f"{result['seconds']:.0f} s ({result['cpu_seconds']:.0f} s of CPU)",
                    flush=True,
                )
    return failed


def stop(number: int, frame: Any) -> None:
    raise SystemExit(128 + number)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="*", metavar="SET", help="a set, or SET/ALGO; all by default")
    parser.add_argument("--seeds", type=int, nargs="+", help="instead of the set's own (0 1 2 3 4)")
    parser.add_argument("--out", type=Path, default=Path("/tmp/lit_rl_runs"), help="folder of the runs (default %(default)s)")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder of what is kept of them (default docs/results)")
    parser.add_argument("--timeout", type=float, default=10_800, help="seconds that a run may take (default %(default)s)")
    args = parser.parse_args()
    jobs = chosen(args.sets)
    signal.signal(signal.SIGTERM, stop)
    return 1 if work(jobs, args.seeds, args.out.resolve(), args.results.resolve(), args.timeout) else 0


if __name__ == "__main__":
    sys.exit(main())
