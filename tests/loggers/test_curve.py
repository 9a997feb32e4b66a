"""curve.png is drawn from result.json alone."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from lit_rl.loggers import curve
from lit_rl.loggers.curve import draw_curve


def row(stage: int, env_steps: int, updates: int, **metrics: Any) -> dict[str, Any]:
    return {"stage": stage, "epoch": 0, "env_steps": env_steps, "updates": updates} | metrics


def write(folder: Path, rows: list[dict[str, Any]]) -> None:
    (folder / "result.json").write_text("".join(json.dumps(row) + "\n" for row in rows))


def lines(rows: list[dict[str, Any]]) -> dict[str, list[tuple[float, float]]]:
    axes = Figure().add_subplot()
    curve._draw(axes, rows)
    return {
        str(line.get_label()): [(float(x), float(y)) for x, y in np.asarray(line.get_xydata())] for line in axes.lines
    } | {"x": [], axes.get_xlabel(): []}


TWO_STAGES = [
    row(1, 100, 10, **{"Train/return": 20.0, "Eval/return": 30.0}),
    row(1, 200, 20, **{"Train/return": None, "Eval/return": 50.0}),
    row(2, 300, 5, **{"Train/return": 60.0, "Step2Eval/return": 70.0}),
]


def test_picture_is_whole_and_no_global_figure_is_left(tmp_path: Path) -> None:
    write(tmp_path, TWO_STAGES)
    had_pyplot = "matplotlib.pyplot" in sys.modules
    path = draw_curve(tmp_path)
    assert path == tmp_path / "curve.png"
    picture = path.read_bytes()
    assert picture.startswith(b"\x89PNG") and picture.endswith(b"IEND\xaeB`\x82")
    assert ("matplotlib.pyplot" in sys.modules) == had_pyplot
    assert sorted(file.name for file in tmp_path.iterdir()) == ["curve.png", "result.json"]


def test_both_stages_are_drawn_over_env_steps_and_the_handover_is_marked() -> None:
    drawn = lines(TWO_STAGES)
    assert "env steps" in drawn
    assert drawn["stage 1, training"] == [(100, 20)]
    assert drawn["stage 1, evaluation"] == [(100, 30), (200, 50)]
    assert drawn["stage 2, training"] == [(300, 60)]
    assert drawn["stage 2, evaluation"] == [(300, 70)]
    assert [x for x, _ in drawn["hand-over to stage 2"]] == [200, 200]


def test_one_stage_has_no_handover() -> None:
    assert not any("stage 2" in name for name in lines(TWO_STAGES[:2]))


def test_stage_without_env_steps_is_drawn_over_updates() -> None:
    offline = [row(1, 0, 10, **{"Eval/return": 1.0}), row(1, 0, 20, **{"Eval/return": 2.0})]
    drawn = lines([*offline, row(2, 64, 5, **{"Step2Eval/return": 3.0})])
    assert "updates" in drawn
    assert drawn["stage 1, evaluation"] == [(10, 1), (20, 2)]
    assert drawn["stage 2, evaluation"] == [(25, 3)]


def test_run_without_a_finished_epoch_still_has_a_picture(tmp_path: Path) -> None:
    assert draw_curve(tmp_path).stat().st_size > 1000
