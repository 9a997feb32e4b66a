"""The progress bar of a run: one line an epoch, counted in env steps."""

from __future__ import annotations

import sys
import threading
import time
from typing import Any

import pytorch_lightning as pl
from pytorch_lightning.callbacks import TQDMProgressBar
from pytorch_lightning.callbacks.progress.tqdm_progress import Tqdm

SECONDS_BETWEEN_REFRESHES = 0.1


class _Bar(Tqdm):
    # tqdm would start a thread and make a semaphore that processes share; forked env workers want neither.
    monitor_interval = 0
    _lock = threading.RLock()


class EnvStepsBar(TQDMProgressBar):
    """One bar an epoch: env steps, return in training, what the last evaluation said, env steps per second.

    Where a stage learns from data, updates instead of env steps.

    It is drawn at most ten times a second, on rank 0; where the output is no terminal, once an epoch. There is no bar
    for evaluations and sanity checks.
    """

    BAR_FORMAT = "{desc} {percentage:3.0f}%|{bar}| {elapsed}{postfix}"

    def __init__(self) -> None:
        super().__init__(leave=True)
        self._next_refresh = 0.0
        self._started = (0.0, 0)  # time and count at the start of the epoch
        self._speed = 0.0  # env steps (or updates) per second, evaluation not counted

    def on_sanity_check_start(self, *_: Any) -> None:
        """No bar."""

    def on_sanity_check_end(self, *_: Any) -> None:
        """No bar."""

    def on_train_start(self, *_: Any) -> None:
        """The bar comes with the epoch."""

    def on_train_epoch_start(self, trainer: pl.Trainer, *_: Any) -> None:
        self._finish(trainer)
        policy: Any = trainer.lightning_module  # a LitPolicy, or any module with its counters
        self._started = time.monotonic(), _count(policy)[0]
        self._next_refresh = 0.0 if sys.stdout.isatty() else float("inf")
        total = self.total_train_batches
        self.train_progress_bar = _Bar(
            desc=f"Stage {policy.stage} epoch {trainer.current_epoch}",
            total=total if total < float("inf") else None,
            disable=self.is_disabled,
            mininterval=float("inf"),  # it is drawn when we say so,
            delay=1e-9,  # and not before it has something to say
            dynamic_ncols=True,
            file=sys.stdout,
            bar_format=self.BAR_FORMAT,
        )
        self.train_progress_bar.delay = 0

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        now = time.monotonic()
        if now < self._next_refresh and batch_idx + 1 < self.total_train_batches:
            return
        policy: Any = pl_module
        began, before = self._started
        self._speed = (_count(policy)[0] - before) / max(now - began, 1e-9)
        self.train_progress_bar.n = batch_idx + 1
        if now >= self._next_refresh:
            self._next_refresh = now + SECONDS_BETWEEN_REFRESHES
            self._draw(trainer)

    def on_validation_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """No bar."""

    def on_validation_batch_start(self, *_: Any, **__: Any) -> None:
        """No bar."""

    def on_validation_batch_end(self, *_: Any, **__: Any) -> None:
        """No bar."""

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if trainer.state.fn == "fit" and not trainer.sanity_checking and self._next_refresh < float("inf"):
            self._draw(trainer)

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """The module logs its epoch after this: the bar is drawn for the last time when the next one begins."""

    def on_train_end(self, trainer: pl.Trainer, *_: Any) -> None:
        self._finish(trainer)

    def on_exception(self, trainer: pl.Trainer, pl_module: pl.LightningModule, exception: BaseException) -> None:
        self._finish(trainer)

    def init_test_tqdm(self) -> _Bar:
        """No bar: a test takes seconds."""
        return _Bar(disable=True)

    def _finish(self, trainer: pl.Trainer) -> None:
        """Draw the bar of the epoch that has ended for the last time and leave it on its line."""
        if self._train_progress_bar is not None and not self.train_progress_bar.disable:
            self._write_numbers(trainer)
            self.train_progress_bar.close()  # draws it
        self._train_progress_bar = None

    def _draw(self, trainer: pl.Trainer) -> None:
        self._write_numbers(trainer)
        self.train_progress_bar.refresh()

    def _write_numbers(self, trainer: pl.Trainer) -> None:
        policy: Any = trainer.lightning_module
        metrics = trainer.callback_metrics
        count, unit = _count(policy)
        parts = [f"{count:,} {unit}"]
        for word, name in (("return", "Train/return"), ("eval", f"{policy.prefix}/return")):
            if name in metrics:
                parts.append(f"{word} {float(metrics[name]):.1f}")
        parts += [
            f"{word} {float(metrics[n]):.3f}" for word in ("f1", "mse") if (n := f"{policy.prefix}/{word}") in metrics
        ]
        parts.append(f"{self._speed:,.0f}/s")
        self.train_progress_bar.set_postfix_str(", ".join(parts), refresh=False)


def _count(policy: Any) -> tuple[int, str]:
    """What the stage counts, and in which unit."""
    return (policy.updates, "updates") if getattr(policy, "offline", False) else (policy.env_steps, "env steps")
