"""Each logger by its name, in the run's folder."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from lit_rl.errors import UsageError
from lit_rl.loggers.make import make_logger


def steps(folder: Path, name: str) -> list[int]:
    events = EventAccumulator(str(folder))
    events.Reload()
    return [event.step for event in events.Scalars(name)]


def log(logger: Any, *at: int) -> None:
    for step in at:
        logger.log_metrics({"Train/return": float(step)}, step=step)
    logger.finalize("success")


def test_tensorboard_events_lie_in_the_stages_folder(tmp_path: Path) -> None:
    log(make_logger("tensorboard", tmp_path, 1), 10, 20)
    log(make_logger("tensorboard", tmp_path, 2), 30)
    assert steps(tmp_path / "stage1", "Train/return") == [10, 20]
    assert steps(tmp_path / "stage2", "Train/return") == [30]


def test_resumed_tensorboard_curve_has_no_step_twice(tmp_path: Path) -> None:
    log(make_logger("tensorboard", tmp_path, 1), 10, 20, 30)
    log(make_logger("tensorboard", tmp_path, 1, purge_step=11), 20, 30, 40)
    assert steps(tmp_path / "stage1", "Train/return") == [10, 20, 30, 40]


def test_resumed_csv_keeps_what_was_logged_before(tmp_path: Path) -> None:
    for step in (10, 20):
        log(make_logger("csv", tmp_path, 1), step)
    files = sorted((tmp_path / "stage1" / "csv").glob("*/metrics.csv"))
    assert [file.read_text().splitlines()[1].split(",")[-1] for file in files] == ["10", "20"]


def test_false_is_no_logger_and_making_one_creates_nothing(tmp_path: Path) -> None:
    assert make_logger("false", tmp_path, 1) is False
    make_logger("tensorboard", tmp_path, 1)
    make_logger("csv", tmp_path, 1)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", ["wandb", "mlflow"])
def test_missing_package_is_named_with_its_extra(tmp_path: Path, kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *a: None if name == kind else find(name, *a))
    with pytest.raises(UsageError, match=rf"pip install -e '\.\[{kind}\]'"):
        make_logger(kind, tmp_path, 1)


def test_unknown_name_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--logger comet is unknown: use tensorboard, csv, wandb, mlflow, false$"):
        make_logger("comet", tmp_path, 1)  # type: ignore[arg-type]
