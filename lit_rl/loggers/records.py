"""``result.json`` (one JSON object a line and epoch) and ``progress.csv`` (the same as a table), over both stages."""

from __future__ import annotations

import csv
import io
import json
import math
import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import Checkpoint
from pytorch_lightning.utilities import rank_zero_warn

from lit_rl.checkpoint import write_atomic
from lit_rl.data.hooks import call
from lit_rl.errors import UsageError

RESULT = "result.json"
PROGRESS = "progress.csv"
FIXED = ("stage", "epoch", "env_steps", "updates", "time_total_s", "time_this_epoch_s")
EXPECTED = (
    *(f"Train/{name}" for name in ("return", "length", "episodes", "return_min", "return_max")),
    *(f"Eval/{name}" for name in ("return", "return_std", "return_min", "return_max", "length", "episodes")),
)

Row = dict[str, Any]


class Records(Checkpoint):
    """Appends a row to ``result.json`` and ``progress.csv`` in ``folder`` after each epoch, on rank 0.

    ``two_steps``: the table's header has columns for stage 2 from the start. A metric that nobody foresaw widens the
    header later; the rows above it stay as they are and end where their columns end.

    A Checkpoint, because only those run after the module's own ``on_train_epoch_end``. It stands before LastCheckpoint:
    then the rows that a checkpoint counts are on disk before it is, and a resumed run cuts those that came later.
    """

    def __init__(self, folder: str | Path, two_steps: bool = False) -> None:
        super().__init__()
        self.folder = Path(folder)
        self.two_steps = two_steps
        self._rows = 0
        self._time_total = 0.0  # seconds, over both stages and all resumes
        self._time_before = 0.0  # seconds that this epoch had taken when it was saved
        self._resumed = False
        self._old: dict[str, torch.Tensor] = {}
        self._epoch_began = time.perf_counter()

    def state_dict(self) -> dict[str, Any]:
        seconds = round(time.perf_counter() - self._epoch_began, 3)
        return {"rows": self._rows, "time_total_s": self._time_total, "time_this_epoch_s": seconds}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._rows = state_dict["rows"]
        self._time_total = state_dict["time_total_s"]
        self._time_before = state_dict["time_this_epoch_s"]
        self._resumed = True

    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if not trainer.is_global_zero:
            return
        if self._resumed:
            self._resumed = False
            self.truncate_to(self._rows)
            return
        rows = read_rows(self.folder)
        self.truncate_to(len(rows))
        self._time_total = rows[-1]["time_total_s"] if rows else 0.0

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._epoch_began = time.perf_counter() - self._time_before
        self._time_before = 0.0

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        # Lightning keeps a metric until it is logged again; the tensors that are there now are not the new epoch's.
        self._old = dict(trainer.callback_metrics)

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        now = time.perf_counter()
        seconds, self._epoch_began = round(now - self._epoch_began, 3), now
        self._time_total = round(self._time_total + seconds, 3)
        policy: Any = pl_module  # a LitPolicy, or any module with its counters
        metrics = {name: _number(x) for name, x in trainer.callback_metrics.items() if self._old.get(name) is not x}
        if not trainer.is_global_zero:
            return
        fixed = (policy.stage, trainer.current_epoch, policy.env_steps, policy.updates, self._time_total, seconds)
        row = metrics | dict(zip(FIXED, fixed, strict=True))
        hooks = getattr(getattr(trainer, "datamodule", None), "hooks", None)
        if hooks is not None:
            call(hooks.on_train_result, row)
        self._append(row)
        self._rows += 1

    def truncate_to(self, rows: int) -> None:
        """Keep the first ``rows`` rows of both files, byte for byte, and nothing behind them."""
        self._rows = truncate_to(self.folder, rows)

    def _append(self, row: Row) -> None:
        result, progress = self.folder / RESULT, self.folder / PROGRESS
        header = _header(progress)
        size = result.stat().st_size if result.exists() else 0
        row = {name: row[name] for name in dict.fromkeys([*FIXED, *row])}
        _append_line(result, _json_line(row))
        try:
            if header is None:
                _write_table(self.folder, _columns(row, self.two_steps))
            elif new := [name for name in row if name not in header]:
                above = progress.read_bytes().split(b"\n", 1)[1]
                header += new
                write_atomic(progress, _csv_line(header) + above + _csv_line([row.get(name) for name in header]))
            else:
                _append_line(progress, _csv_line([row.get(name) for name in header]))
        except BaseException:
            os.truncate(result, size)  # both files have the row, or none has
            raise


def read_rows(folder: str | Path) -> list[Row]:
    """The rows of ``result.json``, oldest first, up to the first line that was not written whole or is no row.

    Raises:
        UsageError: the file cannot be read.
    """
    path = Path(folder) / RESULT
    rows: list[Row] = []
    try:
        written = path.read_bytes() if path.exists() else b""
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror or error}") from None
    for line in written.splitlines(keepends=True):
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            break
        if not line.endswith(b"\n") or not isinstance(row, dict):
            break
        if not all(isinstance(row.get(name), int | float) for name in FIXED):
            break
        rows.append(row)
    return rows


def truncate_to(folder: str | Path, rows: int) -> int:
    """Keep the first ``rows`` rows of both files byte for byte and nothing behind them; returns how many are there.

    Warns when there are fewer; raises UsageError when a file cannot be changed.
    """
    result, progress = Path(folder) / RESULT, Path(folder) / PROGRESS
    there = _keep_lines(result, min(rows, len(read_rows(folder))))
    if there < rows:
        rank_zero_warn(f"{result} has {there} rows and the checkpoint counts {rows}: the others are lost")
    header = _header(progress)
    kept = _keep_lines(progress, there + 1 if there else 0)
    if there and (kept < there + 1 or header is None or not _is_text(progress)):
        _write_table(Path(folder), header or [*FIXED, *EXPECTED])
    return there


def _keep_lines(path: Path, count: int) -> int:
    """Cut a file behind its first ``count`` whole lines; returns how many it has."""
    if not path.exists():
        return 0
    lines = [line for line in path.read_bytes().splitlines(keepends=True)[:count] if line.endswith(b"\n")]
    size = sum(map(len, lines))
    if size < path.stat().st_size:
        try:
            os.truncate(path, size)
        except OSError as error:
            raise UsageError(f"cannot cut {path} back to {count} lines: {error.strerror or error}") from error
    return len(lines)


def _append_line(path: Path, line: bytes) -> None:
    """Add one line, on disk when this returns; a line that does not fit is taken back and raises UsageError."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path, "ab", buffering=0) as file:
            size = file.seek(0, os.SEEK_END)
            try:
                while line:
                    line = line[file.write(line) :]
                os.fsync(file.fileno())
            except BaseException:
                os.ftruncate(file.fileno(), size)
                raise
    except OSError as error:
        raise UsageError(
            f"cannot write {path}: {error.strerror or error}; the rows that were there are untouched"
        ) from error


def _write_table(folder: Path, header: list[str]) -> None:
    """Write ``progress.csv`` anew from ``result.json``, with at least the columns of ``header``."""
    rows = read_rows(folder)
    names = list(dict.fromkeys([*header, *(name for row in rows for name in row)]))
    lines = [_csv_line(names), *(_csv_line([row.get(name) for name in names]) for row in rows)]
    write_atomic(folder / PROGRESS, b"".join(lines))


def _columns(row: Row, two_steps: bool) -> list[str]:
    """The header of a table that begins with ``row``, which may lack a finished episode or an evaluation."""
    names = [*FIXED, *EXPECTED, *row]
    names += [f"Step2{name}" for name in names if two_steps and name.startswith("Eval/")]
    return list(dict.fromkeys(names))


def _header(path: Path) -> list[str] | None:
    if not path.exists():
        return None
    with open(path, "rb") as file:
        line = file.readline()
    try:
        return next(csv.reader([line.decode()])) if line.endswith(b"\n") else None
    except (ValueError, csv.Error):  # damaged: the table is written anew
        return None


def _is_text(path: Path) -> bool:
    try:
        path.read_bytes().decode()
    except ValueError:
        return False
    return True


def _json_line(row: Row) -> bytes:
    return json.dumps(row, allow_nan=False).encode() + b"\n"


def _csv_line(cells: Iterable[Any]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(cells)
    return text.getvalue().encode()


def _number(value: torch.Tensor | float) -> int | float | None:
    """A metric as JSON has it: null for NaN and infinities, and 0.1 for the float32 that is nearest to it."""
    number: int | float = value.item() if isinstance(value, torch.Tensor) else value
    if not math.isfinite(number):
        return None
    if isinstance(value, torch.Tensor) and value.dtype == torch.float32:
        return float(str(np.float32(number)))
    return number
