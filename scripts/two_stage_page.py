"""The part of docs/results.md on two stages: from data, then online."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

from reproduce_curves import draw_seeds, finish, new_figure
from reproduce_jobs import SEEDS
from two_stage import data_file, run_file
from two_stage_sets import SETS, Set

HEAD = """## From data, then online

`python scripts/reproduce.py two_stage` makes the data sets and the runs. The data come from a policy of our own, trained
with a seed that no run has; the medium set is mixed from four checkpoints of that training. `two-stage` learns from the
medium set, then goes on online with the remedies of [two_stages.md](two_stages.md); `control` is the same without any of
them, at a full learning rate and with fresh exploration; `scratch` is the online algorithm alone. *Solved after* is the
number of env steps of the stage, warm-up included, at the first of two consecutive evaluations (30 episodes on fixed seeds)
at or above the solved score. *Collapsed* are the seeds in which two consecutive evaluations of stage 2 lie more than a tenth
of the range, from random actions to the solved score, below stage 1's best as played again in 100 other episodes. Test
returns are means of 100 episodes, ± the deviation between seeds.
"""


def solved_at(points: list[list[float]], solved: float) -> float | None:
    """Env steps at the first of two consecutive evaluations at or above the score; None for never."""
    for (steps, score), (_, after) in zip(points, points[1:], strict=False):
        if min(score, after) >= solved:
            return steps
    return None


def collapses(points: list[list[float]], start: float, solved: float, random: float) -> bool:
    """Whether two consecutive evaluations fall more than a tenth of the range under where the stage began."""
    floor = start - 0.1 * (solved - random)
    return any(max(one[1], two[1]) < floor for one, two in zip(points, points[1:], strict=False))


def finished(chosen: Set, results: Path, kind: str) -> list[dict[str, Any]]:
    """The results of a kind's finished runs, by seed."""
    paths = [run_file(chosen, results, kind, seed) for seed in SEEDS]
    return [json.loads(path.read_text()) for path in paths if path.exists()]


def section(results: Path) -> str:
    """All sets that have a finished run; empty where none has."""
    parts = []
    for chosen in SETS:
        if data_file(chosen, results).exists() and any(finished(chosen, results, kind) for kind in chosen.kinds):
            picture = f"two_stage-{chosen.name}.png"
            draw(chosen, results, results.parent / "images" / picture)
            parts += [f"### {chosen.env}\n", f"![Evaluations over env steps](images/{picture})\n"]
            parts += [data_line(chosen, results), table(chosen, results), commands(chosen, results)]
    return "\n".join([HEAD, *parts]) if parts else ""


def data_line(chosen: Set, results: Path) -> str:
    """What the data are."""
    about = json.loads(data_file(chosen, results).read_text())
    medium = statistics.mean(about["medium"])
    share = (medium - chosen.random) / (about["expert"] - chosen.random)
    levels = ", ".join(f"{level:.0f}" for level in about["medium"])
    return (
        f"Data by {chosen.teacher}: {about['episodes'] // 2} episodes of an expert with a mean return of "
        f"{about['expert']:.0f}; {about['episodes']} medium ones of {medium:.0f}, {share:.0%} of the expert's return above "
        f"random ({chosen.random:g}), by checkpoints of {levels}; commit {about['commit'][:7]}. Solved: {chosen.solved:g}.\n"
    )


def table(chosen: Set, results: Path) -> str:
    """A row for each kind of run."""
    lines = [
        "| run | seeds | test return | solved after (env steps, by seed) | mean | collapsed |",
        "|---|---:|---:|---|---:|---:|",
    ]
    for kind in chosen.kinds:
        runs = finished(chosen, results, kind)
        if not runs:
            continue
        tests = [run["test"] for run in runs]
        spread = f" ± {statistics.stdev(tests):.1f}" if len(tests) > 1 else ""
        start = f"| {kind} | {len(runs)} | {statistics.mean(tests):.1f}{spread} |"
        if kind not in ("two-stage", "control", "scratch"):
            lines.append(f"{start} | | |")
            continue
        steps = [solved_at(run["stage1"] if kind == "scratch" else run["stage2"], chosen.solved) for run in runs]
        shown = ", ".join("never" if at is None else f"{at:,.0f}" for at in steps)
        mean = "" if None in steps else f"{statistics.mean(at for at in steps if at is not None):,.0f}"
        fell = "" if kind == "scratch" else f"{sum(_collapsed(chosen, run) for run in runs)} of {len(runs)}"
        lines.append(f"{start} {shown} | {mean} | {fell} |")
    return "\n".join([*lines, ""])


def _collapsed(chosen: Set, run: dict[str, Any]) -> bool:
    return collapses(run["stage2"], run["stage1_again"], chosen.solved, chosen.random)


def commands(chosen: Set, results: Path) -> str:
    """What was typed, and at which commits."""
    runs = [run for kind in chosen.kinds for run in finished(chosen, results, kind)]
    typed = [chosen.command(kind, "$SEED") for kind in ("two-stage", "control", "scratch")]
    return "\n".join(["```bash", *typed, "```", "", f"Run at {run_at(runs)}.", ""])


def run_at(runs: list[dict[str, Any]]) -> str:
    """The commit of most runs, and those that were run at another."""
    commits = [run["commit"][:7] for run in runs]
    most = statistics.mode(commits)
    others = [
        f"{run['kind']} seed {run['seed']} at {commit}"
        for run, commit in zip(runs, commits, strict=True)
        if commit != most
    ]
    return f"commit {most}" + (f"; {', '.join(others)}" if others else "")


def draw(chosen: Set, results: Path, path: Path) -> None:
    """Evaluations of each seed (thin) and their mean (thick) over env steps of the stage that acts."""
    figure = new_figure(6.6, 3.1)
    axes = figure.subplots()
    for kind, color in (("two-stage", "tab:blue"), ("control", "tab:red"), ("scratch", "0.5")):
        runs = finished(chosen, results, kind)
        if kind == "scratch":
            curves = [dict(map(tuple, run["stage1"])) for run in runs]
        else:
            curves = [{0.0: run["stage1_again"]} | dict(map(tuple, run["stage2"])) for run in runs]
        draw_seeds(axes, curves, color, kind)
    axes.set_xlabel(f"env steps online ({chosen.online})", fontsize="small")
    axes.set_ylabel("return", fontsize="small")
    axes.legend(fontsize="x-small", frameon=False)
    finish(axes, f"{chosen.env}, stage 1 learned from data by {chosen.imitators[-1]}", chosen.solved)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Software": None})
