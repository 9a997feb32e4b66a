"""docs/benchmark.md, from the numbers."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib.metadata import version
from pathlib import Path
from typing import Any

from bench.peers import PEERS
from bench.workloads import WORKLOADS

INTRODUCTION = """# Benchmark

`python scripts/benchmark.py` writes this page; its `--help` says how to run a part of it.

Ours is always the real path: `lit_rl.train`, so `pl.Trainer.fit` with TensorBoard, result.json, progress.csv, full
checkpoints, the progress bar, episode statistics and checks for NaN on; only evaluation is off, which no peer does. Every run
is a process of its own, and the sides take turns (A B A B), so that a machine that slows down slows all of them down. The clock
starts after a warm-up of the same number of env steps for everybody (W1's first {warm:,}, say), so imports, and what SBX
compiles at its start, are in no rate; "with the start" counts the whole training call. A ratio is that of the two runs of a
pair, and the median of the pairs counts. The script asserts that all sides made the same number of updates on
minibatches of the same size. Stable-baselines3 runs with 1 thread, and with 2 in W4 and W7, where they make it faster; SBX
with JAX's default. What stands on this page was measured; workloads and peers that are missing were not.
"""

FLOOR = """The floor is what no trainer can go below here: the bare environment, and the matrix products of an update with one
fused Adam step, nothing around them, each at its fastest of 1 and 2 threads and of torch's two precisions."""

FIGURES = {"later": "build cached", "eager": "eager", "first": "first run", "bf16": "build cached, bf16-mixed"}
PARTS = (
    "environment",
    "acting and keeping",
    "advantages",
    "replay buffer",
    "minibatches",
    "updates",
)


def machine() -> dict[str, str]:
    """What the numbers were measured on."""
    cpu = next((line.split(":")[1].strip() for line in _cpuinfo() if line.startswith("model name")), platform.machine())
    return {
        "cpu": f"{os.cpu_count()} cores of {cpu}",
        "python": platform.python_version(),
        "ours": f"torch {version('torch')}, pytorch-lightning {version('pytorch-lightning')}",
    }


def commit() -> str:
    """What was measured."""
    return subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()


def _cpuinfo() -> list[str]:
    path = Path("/proc/cpuinfo")
    return path.read_text().splitlines() if path.exists() else []


def write_report(path: Path, results: dict[str, Any], before: dict[str, Any]) -> None:
    """Write the page."""
    measured = {name: results[name] for name in WORKLOADS if name in results}
    text = [
        INTRODUCTION.format(warm=WORKLOADS["W1"].warm),
        *_machine(results["machine"] | {"commit": _commits(results["commits"])}),
        "",
    ]
    text += ["## Env steps per second", "", *_rates(measured), "", "## Ratios", "", *_ratios(measured)]
    if "W8" in results:
        text += [
            "",
            "## W8: collecting alone, CartPole, native vector env, nets 64-64",
            "",
            *_collecting(results["W8"]),
        ]
    text += ["", "## Where the time is", "", FLOOR]
    for name, found in measured.items():
        text += ["", f"### {name}: {WORKLOADS[name].title}", "", *_parts(found, before.get(name))]
    path.write_text("\n".join(text) + "\n", "utf-8")


def _machine(told: dict[str, str]) -> list[str]:
    return [f"- {name}: {text}" for name, text in told.items()]


def _commits(measured_at: dict[str, str]) -> str:
    """The commit; where there are several, which workload was measured at which."""
    found = {
        commit: [name for name in sorted(measured_at) if measured_at[name] == commit] for commit in measured_at.values()
    }
    if len(found) == 1:
        return next(iter(found))
    return ", ".join(f"{commit} ({', '.join(names)})" for commit, names in found.items())


def _table(head: list[str], rows: list[list[str]]) -> list[str]:
    return [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}", *(f"| {' | '.join(row)} |" for row in rows)]


def _rates(measured: dict[str, Any]) -> list[str]:
    peers = {peer: text for peer, (text, *_) in PEERS.items() if any(peer in found for found in measured.values())}
    figures = {figure: text for figure, text in FIGURES.items() if any(figure in f["ours"] for f in measured.values())}
    sides = [*figures, *peers]
    rows = []
    for name, found in measured.items():
        runs = [found["ours"].get(side) or found.get(side) for side in sides]
        shown = [f"{r['rate']:,.0f} ({r['rate_whole']:,.0f})" if r else "-" for r in runs]
        own = next(r for r in runs if r)
        memory = ", ".join(f"{r['memory_mb']:,.0f}" if r else "-" for r in (own, *runs[len(figures) :]))
        split = found["split"]
        floor = found["floor"]["env"] + found["floor"]["update"] * split["updates_per_step"]
        work = f"{own['updates']:,} x {own['batch']}"
        rows.append([f"{name} {WORKLOADS[name].title}", *shown, f"{1e6 / floor:,.0f}", work, memory])
    names = [*(f"ours, {text}" for text in figures.values()), *peers.values()]
    return [
        "After the warm-up, and in brackets with the start.",
        "",
        *_table(["workload", *names, "floor", "updates", f"peak MB ({', '.join(['ours', *peers.values()])})"], rows),
    ]


def _ratios(measured: dict[str, Any]) -> list[str]:
    rows = []
    for name, found in measured.items():
        for peer in (peer for peer in PEERS if peer in found):
            for figure in (figure for figure in FIGURES if figure in found[peer]):
                goal = WORKLOADS[name].goal(figure, peer)
                ratio = found[peer][figure]
                met = "" if goal is None else "yes" if ratio["median_ratio"] >= 0.95 * goal else "no"
                pairs = ", ".join(f"{x:.2f}" for x in ratio["pairs"])
                shown = [f"{ratio['median_ratio']:.2f}", pairs, f"{ratio['median_ratio_whole']:.2f}"]
                rows.append([name, PEERS[peer][0], FIGURES[figure], *shown, "-" if goal is None else f"{goal}", met])
    head = ["workload", "peer", "ours", "median", "pairs", "with the start", "goal", "within 5% of it"]
    return _table(head, rows)


def _collecting(found: dict[str, Any]) -> list[str]:
    rows = []
    for envs, us in found.items():
        rate, bare = int(envs) / us["collect"] * 1e6, us["env"] + us["act"]
        times = [f"{us[part]:.1f}" for part in ("collect", "env", "act")]
        rows.append([envs, *times, f"{us['collect'] / bare:.2f}", f"{rate:,.0f}"])
    few, many = min(found, key=int), max(found, key=int)
    growth = found[few]["collect"] / found[many]["collect"] * int(many) / int(few)
    head = ["envs", "collecting, µs a vector step", "bare env", "bare forward", "ratio (goal 1.3)", "env steps/s"]
    return [*_table(head, rows), "", f"The rate grows {growth:.1f} x from {few} to {many} envs (goal 6 x)."]


def _parts(found: dict[str, Any], before: dict[str, Any] | None) -> list[str]:
    now, then = found["split"], None if before is None else before["split"]
    per_step = now["updates_per_step"]
    floor = {"environment": found["floor"]["env"], "updates": found["floor"]["update"] * per_step}
    rows = []
    for part in PARTS:
        if part not in now["split"]:
            continue
        name = part if part != "updates" else f"updates ({now['split'][part] / per_step:,.0f} µs each)"
        values = [] if then is None else [then["split"].get(part)]
        values += [now["split"][part], floor.get(part)]
        rows.append([name, *("-" if x is None else f"{x:,.1f}" for x in values)])

    def rest(split: dict[str, float]) -> float:
        return split["all"] - sum(x for part, x in split.items() if part != "all")

    splits = [*([] if then is None else [then["split"]]), now["split"]]
    rows.append(["Lightning, logging, checkpoints, the loop", *(f"{rest(split):,.1f}" for split in splits), "-"])
    rows.append(["all", *(f"{split['all']:,.1f}" for split in splits), f"{sum(floor.values()):,.1f}"])
    return _table(["µs per env step", *([] if then is None else ["before"]), "now", "floor"], rows)
