"""What a run prints when it ends."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

COLUMNS = ("", "metric", "mean ± std", "episodes", "env steps", "updates", "seconds")


def summary_table(summary: Mapping[str, Any]) -> str:
    """A run's ``summary.json`` as a table for people, a row for each stage and the test, and the path of the winner.

    Stages are read by ``metric, best_score, best_std, episodes, env_steps, updates, seconds``, the test by ``metric,
    return_mean, return_std, episodes, seconds``; "-" stands for what is not there. The winner is ``best_path``.
    """
    rows: list[tuple[str, ...]] = [COLUMNS]
    for name, mean, std in (
        ("stage1", "best_score", "best_std"),
        ("stage2", "best_score", "best_std"),
        ("test", "return_mean", "return_std"),
    ):
        part = summary.get(name)
        if part is not None:
            score = _score(part.get(mean), part.get(std))
            counts = [_count(part.get(key)) for key in ("episodes", "env_steps", "updates")]
            metric = part.get("metric") or ("Test/return" if name == "test" else "-")
            rows.append((name.replace("stage", "stage "), metric, score, *counts, _seconds(part.get("seconds"))))
    rows.append(("all", "", "", "", "", "", _seconds(summary.get("seconds"))))
    widths = [max(len(row[column]) for row in rows) for column in range(len(COLUMNS))]
    lines = ["  ".join(_aligned(row, widths)).rstrip() for row in rows]
    lines.insert(1, "  ".join("-" * width for width in widths))
    return "\n".join([*lines, f"best policy: {summary.get('best_path') or '-'}"])


def summary_json(summary: Mapping[str, Any]) -> str:
    """A run's summary as the text of ``summary.json``: null for NaN and infinities, paths as text."""
    return json.dumps(_finite(summary), indent=2, allow_nan=False, default=str) + "\n"


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _aligned(row: tuple[str, ...], widths: list[int]) -> list[str]:
    """Words to the left, numbers to the right."""
    return [cell.ljust(w) if i < 2 else cell.rjust(w) for i, (cell, w) in enumerate(zip(row, widths, strict=True))]


def _score(mean: float | None, std: float | None) -> str:
    if mean is None:
        return "-"
    return f"{mean:.2f}" if std is None else f"{mean:.2f} ± {std:.2f}"


def _count(number: float | None) -> str:
    return "-" if number is None else f"{number:,.0f}"


def _seconds(number: float | None) -> str:
    return "-" if number is None else f"{number:.1f}"
