"""result.json and progress.csv hold one whole row an epoch, over stages, resumes and full disks."""

from __future__ import annotations

import csv
import json
import resource
import signal
from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as pl
import torch
from counting_module import CountingModule, fit

from lit_rl.callbacks.last import LastCheckpoint
from lit_rl.errors import UsageError
from lit_rl.loggers.records import Records, read_rows, truncate_to


def table(folder: Path) -> list[dict[str, str]]:
    with open(folder / "progress.csv", newline="") as file:
        return list(csv.DictReader(file))


def without_times(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: value for name, value in row.items() if not name.startswith("time_")} for row in rows]


def test_each_epoch_has_one_row_with_this_epochs_metrics(tmp_path: Path) -> None:
    fit(CountingModule(), 2, [Records(tmp_path)])
    rows = [json.loads(line) for line in (tmp_path / "result.json").read_text().splitlines()]
    assert without_times(rows) == [
        {"stage": 1, "epoch": 0, "env_steps": 20, "updates": 2, "Eval/return": 20.0, "Train/return": 2.1},
        {"stage": 1, "epoch": 1, "env_steps": 40, "updates": 4, "Eval/return": 40.0, "Train/return": 4.1},
    ]
    assert list(rows[0])[:6] == ["stage", "epoch", "env_steps", "updates", "time_total_s", "time_this_epoch_s"]
    total = rows[0]["time_this_epoch_s"] + rows[1]["time_this_epoch_s"]
    assert rows[1]["time_total_s"] == pytest.approx(total, abs=1e-9)
    assert [row["Train/return"] for row in table(tmp_path)] == ["2.1", "4.1"]
    assert [float(row["time_total_s"]) for row in table(tmp_path)] == [row["time_total_s"] for row in rows]


def test_sanity_check_leaves_no_row(tmp_path: Path) -> None:
    fit(CountingModule(), 1, [Records(tmp_path)], num_sanity_val_steps=1)
    assert len(read_rows(tmp_path)) == len(table(tmp_path)) == 1


def test_epoch_without_evaluation_or_finished_episode_does_not_repeat_old_numbers(tmp_path: Path) -> None:
    fit(CountingModule(silent_epochs=[1, 2]), 4, [Records(tmp_path)], check_val_every_n_epoch=2)
    assert [(row.get("Train/return"), row.get("Eval/return")) for row in read_rows(tmp_path)] == [
        (2.1, None),
        (None, 40.0),
        (None, None),
        (8.1, 80.0),
    ]
    assert [row["Eval/return"] for row in table(tmp_path)] == ["", "40.0", "", "80.0"]


def test_nan_and_infinity_are_null(tmp_path: Path) -> None:
    class Diverging(CountingModule):
        def on_train_epoch_end(self) -> None:
            self.log_dict({"Train/a": float("nan"), "Train/b": float("inf"), "Train/c": torch.tensor(0.1)})

    fit(Diverging(), 1, [Records(tmp_path)])
    [row] = read_rows(tmp_path)
    assert (row["Train/a"], row["Train/b"], row["Train/c"]) == (None, None, 0.1)
    assert "NaN" not in (tmp_path / "result.json").read_text()
    assert (table(tmp_path)[0]["Train/a"], table(tmp_path)[0]["Train/c"]) == ("", "0.1")


def test_metric_cannot_take_the_place_of_a_counter(tmp_path: Path) -> None:
    class Careless(CountingModule):
        def on_train_epoch_end(self) -> None:
            self.log("env_steps", 0.5)

    fit(Careless(), 1, [Records(tmp_path)])
    [row] = read_rows(tmp_path)
    assert row["env_steps"] == 20 and next(iter(row)) == "stage"


def test_second_stage_goes_on_in_the_same_files_without_touching_a_byte(tmp_path: Path) -> None:
    fit(CountingModule(), 2, [Records(tmp_path, two_steps=True)])
    first, first_table = (tmp_path / "result.json").read_bytes(), (tmp_path / "progress.csv").read_bytes()
    fit(CountingModule(stage=2, first_env_step=40), 2, [Records(tmp_path)])
    assert (tmp_path / "result.json").read_bytes().startswith(first)
    assert (tmp_path / "progress.csv").read_bytes().startswith(first_table)
    rows = read_rows(tmp_path)
    assert [(row["stage"], row["epoch"], row["env_steps"], row["updates"]) for row in rows] == [
        (1, 0, 20, 2),
        (1, 1, 40, 4),
        (2, 0, 60, 2),
        (2, 1, 80, 4),
    ]
    assert [row["Step2Eval/return"] for row in table(tmp_path)] == ["", "", "60.0", "80.0"]
    totals = [row["time_total_s"] for row in rows]
    assert totals == sorted(totals) and totals[2] > totals[1]


def test_metric_that_nobody_foresaw_widens_the_header_and_no_row_above_it(tmp_path: Path) -> None:
    class Late(CountingModule):
        def on_train_epoch_end(self) -> None:
            if self.current_epoch == 1:
                self.log("Train/surprise, late", 0.5)

    fit(Late(), 1, [Records(tmp_path), LastCheckpoint(tmp_path)])
    [header, row] = (tmp_path / "progress.csv").read_text().splitlines()
    assert header.startswith("stage,epoch,env_steps,updates,time_total_s,time_this_epoch_s,Train/return,Train/length,")
    fit(Late(), 3, [Records(tmp_path), LastCheckpoint(tmp_path)], ckpt_path=tmp_path / "last.ckpt")
    lines = (tmp_path / "progress.csv").read_text().splitlines()
    assert (lines[0], lines[1]) == (f'{header},"Train/surprise, late"', row)
    assert [row["Train/surprise, late"] for row in table(tmp_path)] == [None, "0.5", ""]


def test_resumed_run_keeps_its_rows_byte_for_byte_and_cuts_later_ones(tmp_path: Path) -> None:
    class KilledBeforeCheckpoint(LastCheckpoint):
        def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
            if trainer.current_epoch == 2:
                raise RuntimeError("killed")
            super().on_train_epoch_end(trainer, pl_module)

    with pytest.raises(RuntimeError, match="killed"):
        fit(CountingModule(), 5, [Records(tmp_path), KilledBeforeCheckpoint(tmp_path)])
    before, table_before = (tmp_path / "result.json").read_bytes(), (tmp_path / "progress.csv").read_bytes()
    assert len(read_rows(tmp_path)) == 3
    with open(tmp_path / "result.json", "ab") as file:
        file.write(b'{"stage": 1, "epo')
    module = CountingModule()
    fit(module, 5, [Records(tmp_path), LastCheckpoint(tmp_path)], ckpt_path=tmp_path / "last.ckpt")
    assert module.trained_epochs == [2, 3, 4]
    after, table_after = (tmp_path / "result.json").read_bytes(), (tmp_path / "progress.csv").read_bytes()
    assert after.splitlines()[:2] == before.splitlines()[:2]
    assert table_after.splitlines()[:3] == table_before.splitlines()[:3]
    rows = read_rows(tmp_path)
    assert [row["epoch"] for row in rows] == [0, 1, 2, 3, 4]
    assert [row["env_steps"] for row in rows] == [20, 40, 60, 80, 100]
    assert rows[2]["time_total_s"] >= rows[1]["time_total_s"] + rows[2]["time_this_epoch_s"] - 1e-9
    assert len(table(tmp_path)) == 5


def test_resumed_rows_equal_those_of_an_uninterrupted_run_but_for_times(tmp_path: Path) -> None:
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    fit(CountingModule(), 4, [Records(whole), LastCheckpoint(whole)])
    fit(CountingModule(), 1, [Records(parts), LastCheckpoint(parts)])
    fit(CountingModule(), 4, [Records(parts), LastCheckpoint(parts)], ckpt_path=parts / "last.ckpt")
    assert without_times(read_rows(parts)) == without_times(read_rows(whole))


def test_cutting_keeps_whole_rows_and_mends_the_table(tmp_path: Path) -> None:
    fit(CountingModule(), 3, [Records(tmp_path)])
    whole, whole_table = (tmp_path / "result.json").read_bytes(), (tmp_path / "progress.csv").read_bytes()
    assert truncate_to(tmp_path, 3) == 3
    assert (tmp_path / "result.json").read_bytes() == whole
    (tmp_path / "progress.csv").write_bytes(whole_table[:-5])
    assert truncate_to(tmp_path, 3) == 3
    assert (tmp_path / "progress.csv").read_bytes() == whole_table
    (tmp_path / "progress.csv").unlink()
    assert truncate_to(tmp_path, 2) == 2
    assert (tmp_path / "result.json").read_bytes() == b"".join(whole.splitlines(keepends=True)[:2])
    assert (tmp_path / "progress.csv").read_bytes() == b"".join(whole_table.splitlines(keepends=True)[:3])
    with pytest.warns(UserWarning, match="has 2 rows and the checkpoint counts 5"):
        assert truncate_to(tmp_path, 5) == 2
    assert truncate_to(tmp_path, 0) == 0
    assert (tmp_path / "result.json").read_bytes() == (tmp_path / "progress.csv").read_bytes() == b""
    assert truncate_to(tmp_path / "nowhere", 0) == 0


@pytest.mark.parametrize("line", [b'{"stage": 1}', b'{"stage": 1, "epoch": null}', b"[" * 100_000])
def test_a_line_that_is_no_row_is_cut_with_all_behind_it(line: bytes, tmp_path: Path) -> None:
    fit(CountingModule(), 3, [Records(tmp_path)])
    first, _, last = (tmp_path / "result.json").read_bytes().splitlines(keepends=True)
    (tmp_path / "result.json").write_bytes(first + line + b"\n" + last)
    assert len(read_rows(tmp_path)) == 1
    with pytest.warns(UserWarning, match="has 1 rows and the checkpoint counts 3"):
        truncate_to(tmp_path, 3)
    assert (tmp_path / "result.json").read_bytes() == first
    assert len(table(tmp_path)) == 1


@pytest.mark.parametrize("place", [3, -9])
def test_a_table_with_bad_bytes_is_written_anew(place: int, tmp_path: Path) -> None:
    fit(CountingModule(), 2, [Records(tmp_path)])
    content = bytearray((tmp_path / "progress.csv").read_bytes())
    content[place] = 0xFF
    (tmp_path / "progress.csv").write_bytes(content)
    assert truncate_to(tmp_path, 2) == 2
    assert [row["epoch"] for row in table(tmp_path)] == ["0", "1"]


@pytest.mark.parametrize("room", range(60, 700, 40))
def test_full_disk_leaves_the_same_whole_rows_in_both_files(tmp_path: Path, room: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, hard))
    try:
        with pytest.raises(UsageError, match=r"cannot write .*(result.json|progress.csv): File too large"):
            fit(CountingModule(), 8, [Records(tmp_path)])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, handler)
    rows = read_rows(tmp_path)
    assert (tmp_path / "result.json").read_bytes().endswith(b"\n") or not rows
    assert [row["epoch"] for row in rows] == list(range(len(rows)))
    assert len(rows) == (len(table(tmp_path)) if (tmp_path / "progress.csv").exists() else 0)
    fit(CountingModule(), 1, [Records(tmp_path)])
    assert len(read_rows(tmp_path)) == len(table(tmp_path)) == len(rows) + 1
