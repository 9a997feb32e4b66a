"""The last words of a run: a table for people, JSON for programs."""

from __future__ import annotations

import json
from pathlib import Path

from lit_rl.loggers.summary import summary_json, summary_table

SUMMARY = {
    "stage1": {"best_score": 487.2, "best_path": "a.ckpt", "env_steps": 51200, "updates": 25000, "seconds": 30.26},
    "stage2": None,
    "test": {"return_mean": 499.5, "return_std": 2.25, "episodes": 100.0},
    "best_path": "output/x/best.ckpt",
    "seconds": 45.0,
}


def test_table_has_a_row_for_each_stage_and_the_test_and_the_winner() -> None:
    assert summary_table(SUMMARY).splitlines() == [
        "         metric          mean ± std  episodes  env steps  updates  seconds",
        "-------  -----------  -------------  --------  ---------  -------  -------",
        "stage 1  -                   487.20         -     51,200   25,000     30.3",
        "test     Test/return  499.50 ± 2.25       100          -        -        -",
        "all                                                                   45.0",
        "best policy: output/x/best.ckpt",
    ]


def test_second_stage_has_its_own_row() -> None:
    stage2 = {"metric": "Step2Eval/return", "best_score": 500.0, "best_std": 0.0, "episodes": 30, "updates": 7}
    [line] = [line for line in summary_table(SUMMARY | {"stage2": stage2}).splitlines() if line.startswith("stage 2")]
    assert line.split() == ["stage", "2", "Step2Eval/return", "500.00", "±", "0.00", "30", "-", "7", "-"]


def test_json_holds_null_for_nan_and_paths_as_text() -> None:
    text = summary_json({"a": float("nan"), "b": [float("inf"), 1.5], "c": Path("x/y"), "d": None})
    assert json.loads(text) == {"a": None, "b": [None, 1.5], "c": "x/y", "d": None}
