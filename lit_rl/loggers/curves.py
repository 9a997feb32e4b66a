"""The curves of many runs in one picture: runs that differ by their seed alone are one line with a band."""

from __future__ import annotations

import io
import json
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from lit_rl.checkpoint import write_atomic
from lit_rl.errors import UsageError
from lit_rl.loggers.curve import PREFIXES, x_axis
from lit_rl.loggers.records import RESULT, Row, read_rows

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FORMATS = ("png", "pdf", "svg")
LEGEND = 40  # characters of settings that a legend has room for; where they are more, the folder names a run
OF_ONE_RUN = (
    "seed",
    "experiment_name",
    "output_dir",
    "ckpt_path",
    "restore",
    "num_threads",
    "logger",
    "enable_progress_bar",
)


@dataclass
class Group:
    """Runs of the same settings."""

    name: str
    first: str  # the folder of its first run
    runs: list[list[Row]] = field(default_factory=list)


def find_runs(paths: Sequence[str]) -> list[Path]:
    """The folders of runs that these paths are or hold.

    Raises:
        UsageError: there is none in one of them, or none has finished an epoch.
    """
    found: list[Path] = []
    for path in map(Path, paths):
        if not os.path.exists(path):
            raise UsageError(f"there is no run {path}")
        files = [path / RESULT] if (path / RESULT).is_file() else sorted(path.glob(f"*/{RESULT}"))
        inside = [file.parent for file in files if file.is_file()]
        if not inside:
            raise UsageError(f"{path} holds no run: there is no {RESULT} in it")
        found += [run for run in inside if run not in found]
    if not any(read_rows(run) for run in found):
        raise UsageError(f"{', '.join(map(str, found))}: no epoch was finished yet")
    return found


def without_return(runs: Sequence[Path]) -> list[Path]:
    """The runs whose evaluations have played no episodes: they learned from data, without an environment."""
    rows = {run: read_rows(run) for run in runs}
    return [run for run in runs if rows[run] and not any(len(_curve(rows[run], stage)[0]) for stage in PREFIXES)]


def group_runs(runs: Sequence[Path]) -> list[Group]:
    """The runs by their settings, seeds aside; a group of several names what tells it from the first one."""
    groups: dict[str, Group] = {}
    settings: list[dict[str, Any]] = []
    for run in runs:
        own = _settings(run)
        key = json.dumps(own, sort_keys=True) if own else str(run)
        if key not in groups:
            settings.append(own)
            groups[key] = Group(_name(run, own, settings[0]), run.name)
        groups[key].runs.append(read_rows(run))
    names = [group.name for group in groups.values()]
    for group in groups.values():
        if names.count(group.name) > 1:
            group.name = f"{group.name} ({group.first})"
    return list(groups.values())


def _settings(run: Path) -> dict[str, Any]:
    try:
        found = json.loads((run / "config.json").read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return {n: v for n, v in found.items() if n not in OF_ONE_RUN} if isinstance(found, dict) else {}


def _name(run: Path, own: dict[str, Any], first: dict[str, Any]) -> str:
    if not own:
        return run.name
    name = f"{own.get('algo')} on {own.get('env')}"
    other = [f"{n} {own[n]}" for n in own if n not in ("algo", "env") and n in first and own[n] != first[n]]
    same = (own.get("algo"), own.get("env")) == (first.get("algo"), first.get("env"))
    differs = ", ".join(other[:3])
    return f"{name}, {differs}" if same and 0 < len(differs) <= LEGEND else name


def draw_curves(paths: Sequence[str], out: str | Path) -> Path:
    """Draw the evaluations of runs over env steps into ``out``: the mean over seeds, and from worst to best as a band.

    Both stages are drawn, the second dashed, and the moment of the hand-over is marked.

    Raises:
        UsageError: no run, no epoch, no return, another format than png, pdf or svg, or the file cannot be written.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    kind = Path(out).suffix.removeprefix(".").lower()
    if kind not in FORMATS:
        raise UsageError(f"--out {out}: the file's ending must be one of {', '.join(FORMATS)}")
    runs = find_runs(paths)
    if set(runs) == set(without_return(runs)):
        raise UsageError(
            f"{runs[0]}: no evaluation has played episodes, so there is no return to draw: train with --env ID"
        )
    groups = group_runs(runs)
    figure = Figure(figsize=(8, 4.5), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    labels = {x_axis(rows)[0] for group in groups for rows in group.runs}
    for number, group in enumerate(groups):
        _draw(axes, group, f"C{number % 10}")
    axes.set_xlabel(" / ".join(sorted(labels)))
    axes.set_ylabel("return of an evaluation")
    axes.grid(alpha=0.25)
    axes.xaxis.set_major_formatter(lambda x, _: f"{x:,.0f}")
    axes.legend(fontsize="small", frameon=False)
    picture = io.BytesIO()
    figure.savefig(picture, format=kind)
    write_atomic(out, picture.getvalue())
    return Path(out)


def _draw(axes: Axes, group: Group, color: str) -> None:
    count = len(group.runs)
    label = group.name if count == 1 else f"{group.name}, {count} seeds"
    handovers: list[float] = []
    for stage in PREFIXES:
        drawn = [(curve, rows) for rows in group.runs if len((curve := _curve(rows, stage))[0])]
        curves = [curve for curve, _ in drawn]
        if not curves:
            continue
        xs, low, mean, high = band(curves)
        style = "-" if stage == 1 else "--"
        axes.plot(
            xs, mean, style, color=color, marker="o", markersize=3, label=label if stage == 1 else f"{label}, stage 2"
        )
        if count > 1:
            axes.fill_between(xs, low, high, color=color, alpha=0.15, linewidth=0)
        if stage == 1:
            handovers = [curve[0][-1] for curve, rows in drawn if _has_second(rows)]
    if handovers:
        axes.axvline(float(np.mean(handovers)), color=color, linewidth=1, linestyle=":", label="hand-over to stage 2")


def _has_second(rows: list[Row]) -> bool:
    return any(row["stage"] == 2 for row in rows)


def _curve(rows: list[Row], stage: int) -> tuple[list[float], list[float]]:
    """Env steps and mean returns of a stage's evaluations."""
    name = f"{PREFIXES[stage]}/return"
    points = [(x, row[name]) for x, row in zip(x_axis(rows)[1], rows, strict=True) if _is_finite(row.get(name))]
    return [float(x) for x, _ in points], [float(y) for _, y in points]


def _is_finite(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def band(curves: Sequence[tuple[Sequence[float], Sequence[float]]]) -> tuple[np.ndarray, ...]:
    """Points x where all curves are known, and there the smallest, mean and largest of them, straight between points."""
    begin, end = max(xs[0] for xs, _ in curves), min(xs[-1] for xs, _ in curves)
    x = np.unique([point for xs, _ in curves for point in xs if begin <= point <= end])
    if not len(x):  # they have no part of the axis in common
        x = np.unique([point for xs, _ in curves for point in xs])
    ys = np.array([np.interp(x, xs, ys) for xs, ys in curves])
    return x, ys.min(0), ys.mean(0), ys.max(0)
