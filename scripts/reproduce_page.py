"""docs/results.md and its pictures from the runs that are finished."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from reproduce_curves import draw_seeds, finish, new_figure
from reproduce_jobs import OURS, SB3, Job, provenance, seeds_of_commits
from two_stage_page import section as two_stage_section

from lit_rl.zoo import entries

HEAD = """# Results

Written by `python scripts/reproduce.py --table` from the files in [results/](results): one for each run, with its command,
its evaluations, its test, the commit and the versions. `python scripts/reproduce.py SET` runs what a set lacks.

Each run is the command below its set, nothing more, with the tuned settings in `lit_rl/zoo` (one stage; `--two_steps`
refines it further). Updates that become native code midway change last digits, so that a repeated run is another sample of
the same distribution; `--compile false` repeats its own digits. A run's score is the mean return of the best checkpoint in
100 test episodes, on seeds that no evaluation used; the table has the mean over the seeds ± the standard deviation between
them. Evaluations pick the best checkpoint and make the curves; their episodes do not count as env steps. Settings were
chosen on other seeds (100 and above) than those shown here. A row whose runs come from more than one commit is not one
result: it says so beside its seeds, and below its command which seed was run at which. Seconds are of whole processes on
2 CPU cores that other work shared; CPU seconds count the process's own.
References are what others reached, mostly in single runs; the sources below the table say with how many env steps.
"""


class Difference(NamedTuple):
    """Of two means: the first minus the second, and its 95% interval."""

    mean: float
    low: float
    high: float


def write_page(jobs: Iterable[Job], results: Path) -> None:
    """Write results.md beside the folder ``results``, and a picture of each set into images/ there."""
    page = [HEAD, table(jobs, results)]
    for name in dict.fromkeys(job.set for job in jobs):
        of_set = [job for job in jobs if job.set == name]
        if any(finished(job, results, library) for job in of_set for library in job.libraries):
            draw(of_set, results, results.parent / "images" / f"{name}.png")
            page.append(section(name, of_set, results))
    page.append(two_stage_section(results))
    (results.parent / "results.md").write_text("\n".join(page))


def finished(job: Job, results: Path, library: str = OURS) -> list[dict[str, Any]]:
    """The results of a job's finished runs, by seed."""
    paths = [job.result(results, seed, library) for seed in job.seeds]
    return [json.loads(path.read_text()) for path in paths if path.exists()]


def table(jobs: Iterable[Job], results: Path) -> str:
    """A row for each job."""
    lines = [
        "| environment | algorithm | env steps | seeds | test return | goal | met | reference | seconds (CPU) |",
        "|---|---|---:|---:|---:|---:|---|---:|---:|",
    ]
    for job in jobs:
        runs, reference = finished(job, results), entries(job.algo)[job.env]["reference"]
        goal = "as SB3" if job.goal is None else f"≥ {job.goal:g}"
        start = f"| {job.env} | {job.algo} |"
        if not runs:
            lines.append(f"{start} | 0 of {len(job.seeds)} | | {goal} | not run yet | {reference:g} | |")
            continue
        steps = max(run["env_steps"] for run in runs)
        seconds, cpu = (statistics.mean(run[name] for run in runs) for name in ("seconds", "cpu_seconds"))
        seeds = f"{len(runs)}" if len(runs) == len(job.seeds) else f"{len(runs)} of {len(job.seeds)}"
        if len(seeds_of_commits(runs)) > 1:
            seeds += f", of {len(seeds_of_commits(runs))} commits"
        lines.append(
            f"{start} {steps:,} | {seeds} | {mean_std(scores(runs))} | {goal} | {verdict(job, results)} "
            f"| {reference:g} | {seconds:,.0f} ({cpu:,.0f}) |"
        )
    return "\n".join([*lines, ""])


def scores(runs: list[dict[str, Any]], which: str = "test") -> list[float]:
    return [run[which]["return_mean"] for run in runs]


def mean_std(values: Sequence[float]) -> str:
    """Mean and sample standard deviation, the latter from two values on."""
    mean = statistics.mean(values)
    return f"{mean:.1f} ± {statistics.stdev(values):.1f}" if len(values) > 1 else f"{mean:.1f}"


def verdict(job: Job, results: Path) -> str:
    """Whether the goal is met by all of a job's seeds."""
    runs = finished(job, results)
    if len(runs) < len(job.seeds):
        return "not all run yet"
    if job.goal is not None:
        return "yes" if statistics.mean(scores(runs)) >= job.goal else "no"
    theirs = finished(job, results, SB3)
    if len(theirs) < len(job.seeds):
        return "not all run yet"
    found = [difference(scores(runs, which), scores(theirs, which)) for which in ("test", "last_test")]
    return "yes" if all(one.high >= 0 for one in found) else "no"


def section(name: str, jobs: list[Job], results: Path) -> str:
    """A set: its picture, and for each job the command, the scores of the seeds, and the reference's source."""
    lines = [f"## {name}", "", f"![Evaluations over env steps](images/{name}.png)", ""]
    for job in jobs:
        runs = finished(job, results)
        if not runs:
            continue
        seeds = ", ".join(f"{run['seed']}: {run['test']['return_mean']:.1f}" for run in runs)
        lines += [
            f"**{job.algo}**, at most {job.budget:,} env steps:",
            "",
            "```bash",
            job.command("$SEED"),
            "```",
            "",
            f"Test return by seed: {seeds}; {provenance(runs)}. Reference: {entries(job.algo)[job.env]['source']}.",
            "",
        ]
        if job.goal is None:
            lines += comparison(job, results)
    return "\n".join(lines)


def comparison(job: Job, results: Path) -> list[str]:
    """A job beside stable-baselines3."""
    ours, theirs = finished(job, results), finished(job, results, SB3)
    if not theirs:
        return []
    version = theirs[0]["versions"][SB3]
    lines = [
        f"| policy | ours | {SB3} {version} | difference of means, 95% interval |",
        "|---|---:|---:|---:|",
    ]
    for shown, which in (("best checkpoint", "test"), ("final", "last_test")):
        a, b = scores(ours, which), scores(theirs, which)
        found = "-"
        if min(len(a), len(b)) > 1:
            of = difference(a, b)
            found = f"{of.mean:+.0f} ({of.low:+.0f} to {of.high:+.0f})"
        lines.append(f"| {shown} | {mean_std(a)} | {mean_std(b)} | {found} |")
    seconds = [statistics.mean(run["cpu_seconds"] for run in runs) for runs in (ours, theirs)]
    counts = f"{len(ours)} and {len(theirs)} seeds, {seconds[0]:,.0f} and {seconds[1]:,.0f} CPU seconds a run"
    return [*lines, "", f"{counts} (Welch's interval).", ""]


def difference(a: Sequence[float], b: Sequence[float]) -> Difference:
    """mean(a) - mean(b) with Welch's 95% interval, for two or more values each (Welch 1947, Biometrika 34)."""
    mean = statistics.mean(a) - statistics.mean(b)
    va, vb = statistics.variance(a) / len(a), statistics.variance(b) / len(b)
    if va + vb == 0:
        return Difference(mean, mean, mean)
    freedom = (va + vb) ** 2 / (va**2 / (len(a) - 1) + vb**2 / (len(b) - 1))
    half = t_quantile(0.975, freedom) * math.sqrt(va + vb)
    return Difference(mean, mean - half, mean + half)


def t_quantile(p: float, freedom: float) -> float:
    """Where Student's distribution function reaches p, 0.5 < p < 1: bisection on its density's integral (Simpson)."""
    log_scale = math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2) - 0.5 * math.log(freedom * math.pi)

    def density(t: float) -> float:
        return math.exp(log_scale - (freedom + 1) / 2 * math.log1p(t * t / freedom))

    def above_half(t: float, parts: int = 2_000) -> float:
        h = t / parts
        inner = sum((4 if i % 2 else 2) * density(i * h) for i in range(1, parts))
        return h / 3 * (density(0) + inner + density(t))

    low, high = 0.0, 1_000.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if above_half(middle) < p - 0.5 else (low, middle)
    return (low + high) / 2


def draw(jobs: list[Job], results: Path, path: Path) -> None:
    """A panel for each job: the evaluations of each seed (thin) and their mean (thick) over env steps."""
    shown = [job for job in jobs if any(finished(job, results, library) for library in job.libraries)]
    figure = new_figure(3.4 * len(shown), 2.6)
    for axes, job in zip(figure.subplots(1, len(shown), squeeze=False)[0], shown, strict=True):
        for library, color in zip(job.libraries, ("tab:blue", "tab:orange"), strict=False):
            curves = [dict(map(tuple, run["curve"])) for run in finished(job, results, library)]
            draw_seeds(axes, curves, color, library)
        if job.goal is None:
            axes.legend(fontsize="x-small", frameon=False)
        finish(axes, f"{job.algo}, {job.env}", job.goal)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Software": None})
