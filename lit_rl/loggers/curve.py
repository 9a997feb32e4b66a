"""``curve.png``: the return over both stages."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING

from lit_rl.checkpoint import write_atomic
from lit_rl.loggers.records import Row, read_rows

if TYPE_CHECKING:
    from matplotlib.axes import Axes

CURVE = "curve.png"
PREFIXES = {1: "Eval", 2: "Step2Eval"}
COLORS = {1: "tab:blue", 2: "tab:orange"}
QUANTITIES = {
    "return": "return of an episode",
    "f1": "F1 on held-out episodes",
    "mse": "squared error of held-out actions",
}


def draw_curve(folder: str | Path) -> Path:
    """Draw the returns in ``folder``'s ``result.json`` over env steps, the hand-over between the stages marked.

    Where nothing was played, what held-out episodes say: F1, or the mean squared error. A stage that makes no env steps has
    its updates on the x-axis, and then so has the other. Raises UsageError when the picture cannot be written.
    """
    # Not pyplot: it would choose a backend for the whole process and keep the figure.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    rows = read_rows(folder)
    figure = Figure(figsize=(8, 4.5), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    _draw(axes, rows)
    picture = io.BytesIO()
    figure.savefig(picture, format="png")
    path = Path(folder) / CURVE
    write_atomic(path, picture.getvalue())
    return path


def _draw(axes: Axes, rows: list[Row]) -> None:
    label, xs = x_axis(rows)
    quantity, shown = next(((q, s) for q, s in QUANTITIES.items() if _has(rows, q)), ("return", QUANTITIES["return"]))
    for stage, color in COLORS.items():
        here = [(x, row) for x, row in zip(xs, rows, strict=True) if row["stage"] == stage]
        train = [(x, row["Train/return"]) for x, row in here if row.get("Train/return") is not None]
        prefix = PREFIXES[stage]
        evaluations = [(x, row) for x, row in here if row.get(f"{prefix}/{quantity}") is not None]
        ex = [x for x, _ in evaluations]
        if train:
            axes.plot(
                *zip(*train, strict=True), color=color, alpha=0.45, linestyle="--", label=f"stage {stage}, training"
            )
        if evaluations:
            axes.plot(
                ex, [row[f"{prefix}/{quantity}"] for _, row in evaluations], color=color, marker="o", markersize=4
            )
            axes.lines[-1].set_label(f"stage {stage}, evaluation")
        if evaluations and all(
            row.get(f"{prefix}/{quantity}_{end}") is not None for _, row in evaluations for end in ("min", "max")
        ):
            low, high = ([row[f"{prefix}/{quantity}_{end}"] for _, row in evaluations] for end in ("min", "max"))
            axes.fill_between(ex, low, high, color=color, alpha=0.12, linewidth=0, label="worst to best episode")
    if any(row["stage"] == 2 for row in rows):
        handover = max((x for x, row in zip(xs, rows, strict=True) if row["stage"] == 1), default=0)
        axes.axvline(handover, color="0.35", linewidth=1, linestyle=":", label="hand-over to stage 2")
    axes.set_xlabel(label)
    axes.set_ylabel(shown)
    axes.grid(alpha=0.25)
    if rows:
        axes.xaxis.set_major_formatter(lambda x, _: f"{x:,.0f}")
        axes.legend(fontsize="small", frameon=False)
    else:
        axes.text(0.5, 0.5, "no epoch was finished", ha="center", transform=axes.transAxes)


def _has(rows: list[Row], quantity: str) -> bool:
    return any(row.get(f"{prefix}/{quantity}") is not None for row in rows for prefix in PREFIXES.values())


def x_axis(rows: list[Row]) -> tuple[str, list[int]]:
    """Env steps; updates over both stages where a stage made none."""
    ends = {row["stage"]: row for row in rows}
    before = 0
    for stage in sorted(ends):
        if ends[stage]["env_steps"] == before:
            first = ends[1]["updates"] if 1 in ends else 0
            return "updates", [row["updates"] + (first if row["stage"] == 2 else 0) for row in rows]
        before = ends[stage]["env_steps"]
    return "env steps", [row["env_steps"] for row in rows]
