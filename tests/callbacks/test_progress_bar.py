"""One line of progress an epoch, at most ten drawings a second."""

from __future__ import annotations

import io
import multiprocessing.synchronize
import re
import sys
import threading
import time
from typing import Any

import pytest
import torch
from counting_module import Batches, CountingModule, make_trainer

from lit_rl.callbacks.progress import EnvStepsBar


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def fit(monkeypatch: pytest.MonkeyPatch, output: io.StringIO, batches: int, epochs: int, **settings: Any) -> list[str]:
    """What was drawn, drawing by drawing."""
    monkeypatch.setattr(sys, "stdout", output)
    trainer = make_trainer(epochs, [EnvStepsBar()], enable_progress_bar=True, **settings)
    trainer.fit(CountingModule(), Batches(batches), Batches(1))
    trainer.test(CountingTest(), Batches(3), verbose=False)
    monkeypatch.undo()
    return [part for part in re.split(r"[\r\n]+", output.getvalue()) if part.strip()]


class CountingTest(CountingModule):
    def test_step(self, batch: torch.Tensor, batch_idx: int) -> None:
        pass


def test_each_epoch_leaves_one_line_with_its_own_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    output = Terminal()
    fit(monkeypatch, output, batches=2, epochs=2, num_sanity_val_steps=1)
    lines = [line.split("\r")[-1] for line in output.getvalue().split("\n") if "epoch" in line]
    assert len(lines) == 2
    assert re.match(r"Stage 1 epoch 0 100%\|[#█]+\| 00:0\d, 20 env steps, return 2.1, eval 20.0, [\d,]+/s$", lines[0])
    assert re.match(r"Stage 1 epoch 1 100%\|[#█]+\| 00:0\d, 40 env steps, return 4.1, eval 40.0, [\d,]+/s$", lines[1])
    assert "Validation" not in output.getvalue() and "Sanity" not in output.getvalue()


def test_bar_is_drawn_at_most_ten_times_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    began = time.monotonic()
    drawings = [drawing for drawing in fit(monkeypatch, Terminal(), batches=300, epochs=1) if "epoch" in drawing]
    assert 3 <= len(drawings) <= 6 + 10 * (time.monotonic() - began)


def test_log_file_gets_one_drawing_an_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    drawings = [drawing for drawing in fit(monkeypatch, io.StringIO(), batches=50, epochs=3) if "epoch" in drawing]
    assert len(drawings) == 3
    assert "1,500 env steps" in drawings[-1]


def test_bar_brings_no_thread_and_no_shared_semaphore(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[object] = []
    init = multiprocessing.synchronize.SemLock.__init__

    def counted(self: Any, *args: Any, **kwargs: Any) -> None:
        made.append(self)
        init(self, *args, **kwargs)

    monkeypatch.setattr(multiprocessing.synchronize.SemLock, "__init__", counted)
    before = set(threading.enumerate())
    bar = EnvStepsBar()
    trainer = make_trainer(1, [bar], enable_progress_bar=True)
    trainer.fit(CountingModule(), Batches(2), Batches(1))
    assert set(threading.enumerate()) == before
    assert made == []
