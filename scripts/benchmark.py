"""Our trainer against its peers, in turn, in fresh processes on this machine; writes docs/benchmark.md.

    python scripts/benchmark.py                                     everything (about an hour on 2 cores)
    python scripts/benchmark.py --workloads W1,W3 --peers sb3 --pairs 3
    python scripts/benchmark.py --scale 0.3 --json numbers.json     shorter runs; a file that is there is brought up to date

Each pair runs ours and then every peer that the workload has a goal for. Rates are env steps per second after a warm-up
that is the same for everybody; imports and whatever is compiled at the start are not in them. Ratios are of the two runs of
a pair, and the median of the pairs counts. Run it on a machine that does nothing else.

--peers makes the virtual environment of a peer that has none yet, in the user's cache folder.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

SCRIPTS = Path(__file__).resolve().parent
ROOT = SCRIPTS.parent
sys.path.insert(0, str(SCRIPTS))

from bench.peers import PEERS, python_of, versions  # noqa: E402
from bench.report import commit, machine, write_report  # noqa: E402
from bench.workloads import WORKLOADS  # noqa: E402

COLLECTING = "W8"
FIGURES = {  # of our own runs
    "later": "native updates, the build cached",
    "eager": "--compile false",
    "first": "native updates, nothing built yet, everything included",
    "bf16": "as later, with --precision bf16-mixed, where the workload has a goal for it",
}


def main() -> None:
    args = parse()
    known = json.loads(args.json.read_text()) if args.json is not None and args.json.exists() else {}
    results: dict[str, Any] = known | {"machine": machine() | {peer: versions(peer) for peer in args.peers}}
    for name in args.workloads:
        results["commits"] = results.get("commits", {}) | {name: commit()}
        results[name] = collecting() if name == COLLECTING else compare(name, args)
        if args.json is not None:
            args.json.write_text(json.dumps(results, indent=1) + "\n")
    before = {} if args.before is None else json.loads(args.before.read_text())
    write_report(ROOT / "docs" / "benchmark.md", results, before)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = [*WORKLOADS, COLLECTING]

    def listed(allowed: list[str]) -> Any:
        def read(text: str) -> list[str]:
            found = [word for word in text.split(",") if word]
            for word in found:
                if word not in allowed:
                    raise argparse.ArgumentTypeError(f"{word} is not one of {', '.join(allowed)}")
            return found

        return read

    parser.add_argument("--workloads", type=listed(names), default=names, help=f"of {', '.join(names)}")
    parser.add_argument("--peers", type=listed(list(PEERS)), default=list(PEERS), help=f"of {', '.join(PEERS)}")
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--scale", type=float, default=1.0, help="length of the runs after their warm-up")
    parser.add_argument("--figures", type=listed(list(FIGURES)), default=list(FIGURES), help="our own runs")
    parser.add_argument("--json", type=Path, help="write the numbers here too")
    parser.add_argument("--before", type=Path, help="the --json of an earlier commit, for the column 'before'")
    return parser.parse_args()


def compare(name: str, args: argparse.Namespace) -> dict[str, Any]:
    """One workload: our figures, the peers, the ratios pair by pair, the floor and where the time is."""
    workload = WORKLOADS[name]
    peers = [peer for peer in args.peers if peer in workload.goals]
    figures = [figure for figure in args.figures if figure != "bf16" or workload.bf16_goal]
    print(f"\n{name}: {workload.title}; {workload.length(args.scale):,} env steps a run", flush=True)
    found: dict[str, Any] = {"floor": ours("floor", name)}
    runs: dict[str, list[dict[str, Any]]] = {side: [] for side in (*figures, *peers)}
    for figure in {"later", "bf16"} & set(figures):
        run_ours(name, figure, 0.0)  # so that the build is there
    for pair in range(args.pairs):
        for figure in figures:
            if figure != "first" or pair == 0:
                runs[figure].append(run_ours(name, figure, args.scale))
                tell(figure, runs[figure][-1])
        for peer in peers:
            runs[peer].append(run(python_of(peer), "run_peer", peer, name, scale=args.scale))
            tell(PEERS[peer][0], runs[peer][-1])
    check_same_work(name, runs)
    main_figure = figures[0]
    found["split"] = run_ours(name, main_figure, args.scale, "--split")
    found["ours"] = {figure: summary(runs[figure]) for figure in figures}
    for peer in peers:
        found[peer] = summary(runs[peer]) | {"goal": workload.goals[peer]}
        for figure in (figure for figure in figures if figure != "first"):
            ratios = [a["rate"] / b["rate"] for a, b in zip(runs[figure], runs[peer], strict=True)]
            whole = [a["rate_whole"] / b["rate_whole"] for a, b in zip(runs[figure], runs[peer], strict=True)]
            ratio = {"median_ratio": median(ratios), "pairs": ratios, "median_ratio_whole": median(whole)}
            found[peer][figure] = ratio
            if figure == main_figure:
                found[peer] |= ratio
            shown = ", ".join(f"{x:.2f}" for x in ratios)
            print(
                f"  {figure} / {PEERS[peer][0]}: {median(ratios):.2f} (pairs {shown}; start included {median(whole):.2f}); "
                f"goal {workload.goal(figure, peer) or '-'}",
                flush=True,
            )
    return found


def collecting() -> dict[str, Any]:
    """W8: collecting alone."""
    found = ours("collecting")
    for envs, us in found.items():
        ratio = us["collect"] / (us["env"] + us["act"])
        rate = int(envs) / us["collect"] * 1e6
        print(f"  {envs} envs: {rate:,.0f} env steps/s, {ratio:.2f} x (bare env + bare forward)", flush=True)
    return found


def check_same_work(name: str, runs: dict[str, list[dict[str, Any]]]) -> None:
    """Everybody made the same number of updates on minibatches of the same size, in the same number of env steps."""
    work = {(r["steps"], r["updates"], r["batch"]) for side in runs.values() for r in side}
    assert len(work) == 1, f"{name}: not the same work: {work}"
    ((steps, updates, batch),) = work
    print(f"  the same work on all sides: {updates:,} updates of {batch} in {steps:,} env steps", flush=True)


def summary(runs: list[dict[str, Any]]) -> dict[str, Any]:
    rates = [r["rate"] for r in runs]
    keys = ("steps", "updates", "batch")
    return {
        "rate": median(rates),
        "rates": rates,
        "rate_whole": median(r["rate_whole"] for r in runs),
        "memory_mb": max(r["memory_mb"] for r in runs),
        **{key: runs[0][key] for key in keys},
    }


def tell(side: str, result: dict[str, Any]) -> None:
    print(
        f"  {side:18} {result['rate']:9,.0f} env steps/s ({result['rate_whole']:,.0f} with its start), "
        f"{result['memory_mb']:,.0f} MB, {result['seconds']:.1f} s",
        flush=True,
    )


def run_ours(name: str, figure: str, scale: float, *more: str) -> dict[str, Any]:
    """One run of ours in a fresh process."""
    compile_ = {"eager": "false", "first": '"auto"'}.get(figure, "true")
    if figure == "bf16":
        more = (*more, 'precision="bf16-mixed"')
    with tempfile.TemporaryDirectory() as empty:
        cache = {"XDG_CACHE_HOME": empty} if figure == "first" else {}
        return ours("run_ours", name, f"compile={compile_}", *more, scale=scale, environ=cache)


def ours(module: str, *args: str, scale: float | None = None, environ: dict[str, str] | None = None) -> dict[str, Any]:
    return run(Path(sys.executable), module, *args, scale=scale, environ=environ)


def run(
    python: Path, module: str, *args: str, scale: float | None = None, environ: dict[str, str] | None = None
) -> dict[str, Any]:
    """What a program of scripts/bench writes to the file that it is given."""
    clean = {key: value for key, value in os.environ.items() if key not in ("OMP_NUM_THREADS", "MKL_NUM_THREADS")}
    path = os.pathsep.join([str(SCRIPTS), *([str(ROOT)] if python == Path(sys.executable) else [])])
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out.json"
        words = [*args, str(out), *([] if scale is None else [str(scale)])]
        log = Path(folder) / "log"
        with log.open("w") as file:
            done = subprocess.run(
                [str(python), "-m", f"bench.{module}", *words],
                env=clean | {"PYTHONPATH": path} | (environ or {}),
                cwd=folder,
                stdout=file,
                stderr=subprocess.STDOUT,
            )
        if done.returncode or not out.exists():
            raise SystemExit(f"{' '.join(words)} failed:\n{log.read_text()[-3000:]}")
        found: dict[str, Any] = json.loads(out.read_text())
        return found


if __name__ == "__main__":
    main()
