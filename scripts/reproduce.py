"""Train what docs/results.md lists, and write it.

    python scripts/reproduce.py --list                    # the sets, and how many of their runs are finished
    python scripts/reproduce.py cartpole pendulum/sac     # a set, and one algorithm of another
    python scripts/reproduce.py two_stage/cartpole        # from data, then online; two_stage for all of its sets
    python scripts/reproduce.py --table                   # docs/results.md and its pictures anew, nothing else

Every run is a process of its own, one after another: the command that docs/results.md shows, with its tuned settings from
lit_rl/zoo, plus a folder to work in. A finished run leaves docs/results/<set>/<algo>-seed<N>.json and is skipped from then
on; one that was interrupted begins anew. Several of these scripts may work side by side. HalfCheetah's runs alternate with
those of stable-baselines3, in a virtual environment of its own (--sb3): scripts/reproduce_sb3.py.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from reproduce_jobs import JOBS, OURS, SB3, SEEDS, Job, chosen, claimed
from reproduce_page import write_page
from two_stage import run_file
from two_stage import work as work_in_two_stages
from two_stage_sets import SETS, Set

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "docs" / "results"
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
SB3_VENV = CACHE / "lit_rl" / "peers" / "sb3"


def run_command(command: list[str], log: Path, timeout: float, **env: str) -> dict[str, float]:
    """Run ``command`` in the checkout, its output in ``log``; the seconds that it took, and those of CPU time.

    Raises:
        RuntimeError: it failed or took too long.
    """
    began, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    with open(log, "ab") as output:
        process = subprocess.Popen(
            command, cwd=ROOT, env=os.environ | env, stdin=subprocess.DEVNULL, stdout=output, stderr=output
        )
        try:
            code = process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise RuntimeError(f"took more than {timeout:,.0f} s") from None
        finally:  # a signal too
            process.kill()
            process.wait()
    if code != 0:
        raise RuntimeError(f"exit code {code}, see {log}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"seconds": round(time.monotonic() - began, 1), "cpu_seconds": round(cpu, 1)}


def train(job: Job, seed: int, base: Path, timeout: float) -> dict[str, Any]:
    """Run a job's command to its end; what is kept of it."""
    folder, log = _new_folder(base, job.run_name(seed))
    took = run_command(_in_folder(job.command(seed), folder), log, timeout)
    result = kept(job, seed, folder) | took
    if job.goal is None:
        result["last_test"] = test_last(job, seed, folder, timeout)
    return result


def test_last(job: Job, seed: int, folder: Path, timeout: float) -> dict[str, float]:
    """Play the test's episodes with the weights that the run in ``folder`` ended with."""
    tested, log = _new_folder(folder.parent, f"{folder.name}-last")
    last = shlex.quote(str(folder / "stage1" / "last.ckpt"))
    command = f"{job.command(seed)} --ckpt_path {last} --max_epochs 0"
    run_command(_in_folder(command, tested), log, timeout)
    return _test(json.loads((tested / "summary.json").read_text()))


def train_sb3(job: Job, seed: int, base: Path, timeout: float, venv: Path) -> dict[str, Any]:
    """Train stable-baselines3 with the settings, steps, seed and test of our run, which has to be there."""
    ours = base / job.run_name(seed)
    if not (ours / "summary.json").exists():
        raise RuntimeError(f"needs the folder of our run with this seed, {ours}, for its settings")
    python = venv / "bin" / "python"
    if not python.exists():
        packages = "'stable-baselines3==2.9.0' 'gymnasium[mujoco]'"
        make = f"python -m venv {venv} && {python} -m pip install -c {ROOT / 'constraints.txt'} {packages}"
        raise RuntimeError(f"stable-baselines3 needs an environment of its own: {make}")
    folder, log = _new_folder(base, job.run_name(seed, SB3))
    folder.mkdir()
    script = [str(ROOT / "scripts" / "reproduce_sb3.py"), str(ours / "config.json"), str(folder / "result.json")]
    took = run_command([str(python), *script], log, timeout, PYTHONPATH=str(ROOT))
    result: dict[str, Any] = json.loads((folder / "result.json").read_text())
    return result | took


def _new_folder(base: Path, name: str) -> tuple[Path, Path]:
    """A run's folder, which is not there yet, and its log."""
    base.mkdir(parents=True, exist_ok=True)
    folder, log = base / name, base / f"{name}.log"
    shutil.rmtree(folder, ignore_errors=True)
    log.unlink(missing_ok=True)
    return folder, log


def _in_folder(command: str, folder: Path) -> list[str]:
    where = ["--output_dir", str(folder.parent), "--experiment_name", folder.name]
    return [sys.executable, *shlex.split(command)[1:], *where]


def _test(summary: dict[str, Any]) -> dict[str, float]:
    return {name: summary["test"][name] for name in ("return_mean", "return_std", "episodes")}


def kept(job: Job, seed: int, folder: Path) -> dict[str, Any]:
    """What docs/results.md needs of the run in ``folder``."""
    summary = json.loads((folder / "summary.json").read_text())
    params = json.loads((folder / "params.json").read_text())
    rows = [json.loads(line) for line in (folder / "result.json").read_text().splitlines()]
    stage = summary["stage1"]
    return {
        "library": OURS,
        "algo": job.algo,
        "env": job.env,
        "seed": seed,
        "command": job.command(seed),
        "env_steps": stage["env_steps"],
        "updates": stage["updates"],
        "best_evaluation": stage["best_score"],
        "test": _test(summary),
        "curve": [[row["env_steps"], row["Eval/return"]] for row in rows if row.get("Eval/return") is not None],
        "commit": params["git_commit"],
        "versions": params["versions"],
    }


def write_result(path: Path, result: dict[str, Any]) -> None:
    """Write a result in one piece, its curve on one line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    curve = f'"curve": {json.dumps(result["curve"])}'
    text = json.dumps(result | {"curve": None}, indent=1).replace('"curve": null', curve)
    part = path.with_suffix(".part")
    part.write_text(text + "\n")
    os.replace(part, path)


def work(jobs: list[Job], seeds: list[int] | None, args: argparse.Namespace) -> int:
    """Run what is not finished; how many runs failed."""
    failed = 0
    runs = [(job, seed, library) for job in jobs for seed in seeds or job.seeds for library in job.libraries]
    for job, seed, library in runs:
        path, base = job.result(args.results, seed, library), args.out / job.set
        with claimed(base / f"{job.run_name(seed, library)}.lock") as free:
            if not free or path.exists():
                continue
            beside = "" if library == OURS else f"  with {library}"
            print(f"{time.strftime('%H:%M:%S')} {job.command(seed)}{beside}", flush=True)
            try:
                if library == OURS:
                    result = train(job, seed, base, args.timeout)
                else:
                    result = train_sb3(job, seed, base, args.timeout, args.sb3)
            except RuntimeError as error:
                failed += 1
                print(f"         failed: {error}", flush=True)
                continue
            write_result(path, result)
            test, took = result["test"], f"{result['seconds']:,.0f} s, {result['cpu_seconds']:,.0f} s of them on a CPU"
            score = f"{test['return_mean']:.1f} ± {test['return_std']:.1f}"
            print(f"         test {score} after {result['env_steps']:,} env steps, {took}", flush=True)
    return failed


def two_stage_sets(names: list[str]) -> list[Set]:
    """The sets from data, then online, that names ask for: ``two_stage``, or one of them as ``two_stage/cartpole``."""
    return [one for one in SETS if {"two_stage", f"two_stage/{one.name}"} & set(names)]


def listed(jobs: list[Job], sets: list[Set], results: Path) -> str:
    lines = []
    for job in jobs:
        runs = [job.result(results, seed, library) for seed in job.seeds for library in job.libraries]
        done = sum(path.exists() for path in runs)
        lines.append(f"{job.name:<30}{job.budget:>10,} env steps  {done} of {len(runs)} runs")
    for one in sets:
        runs = [run_file(one, results, kind, seed) for kind in one.kinds for seed in SEEDS]
        lines.append(f"two_stage/{one.name:<40}  {sum(path.exists() for path in runs)} of {len(runs)} runs")
    return "\n".join(lines)


def _stop(number: int, frame: Any) -> None:
    raise SystemExit(128 + number)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="*", metavar="SET", help="a set, or SET/ALGO; all by default")
    parser.add_argument("--seeds", type=int, nargs="+", help="instead of the job's own, 0 1 2 3 4")
    parser.add_argument("--list", action="store_true", help="print the sets and what is finished, and exit")
    parser.add_argument("--table", action="store_true", help="write docs/results.md from what is finished, and exit")
    parser.add_argument("--out", type=Path, default=CACHE / "lit_rl" / "runs", help="folder of the runs (%(default)s)")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder of what is kept of them (docs/results)")
    parser.add_argument("--timeout", type=float, default=10_800, help="seconds that a run may take (%(default)s)")
    parser.add_argument("--sb3", type=Path, default=SB3_VENV, help="virtual environment of SB3 (%(default)s)")
    args = parser.parse_args(argv)
    args.out, args.results = args.out.resolve(), args.results.resolve()
    sets = two_stage_sets(args.sets or ["two_stage"])
    named = [name for name in args.sets if name not in {"two_stage", *(f"two_stage/{one.name}" for one in sets)}]
    try:
        jobs = chosen(named) if named or not args.sets else []
    except ValueError as error:
        parser.error(str(error))
    if args.list:
        print(listed(jobs, sets, args.results))
        return 0
    failed = 0
    if not args.table:
        signal.signal(signal.SIGTERM, _stop)
        failed = work(jobs, args.seeds, args)
        failed += work_in_two_stages(sets, args.seeds or list(SEEDS), args.results, args.timeout)
    write_page(JOBS, args.results)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
