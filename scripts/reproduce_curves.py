"""Curves over env steps as docs/results.md shows them."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Curve = dict[float, float]  # score by env steps


def new_figure(width: float, height: float) -> Figure:
    """A figure of so many inches. Not pyplot's: it would choose a backend for the whole process and keep the figure."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), dpi=72, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def draw_seeds(axes: Axes, curves: Sequence[Curve], color: str, label: str) -> None:
    """Each seed thin, and their mean thick where all of them are."""
    for curve in curves:
        axes.plot(list(curve), list(curve.values()), color=color, linewidth=0.7, alpha=0.4)
    if curves:
        at = sorted(set.intersection(*(set(curve) for curve in curves)))
        means = [statistics.mean(curve[x] for curve in curves) for x in at]
        axes.plot(at, means, color=color, linewidth=1.8, label=label)


def finish(axes: Axes, title: str, goal: float | None) -> None:
    """Title, grid, the score to reach, and env steps in thousands."""
    if goal is not None:
        axes.axhline(goal, color="0.4", linewidth=0.9, linestyle=":")
    axes.set_title(title, fontsize="small")
    axes.tick_params(labelsize="x-small")
    axes.xaxis.set_major_formatter(lambda x, _: f"{x / 1000:g}k")
    axes.grid(alpha=0.25)
