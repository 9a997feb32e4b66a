"""The checkpoint that a run goes on from."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
from pytorch_lightning.callbacks import Checkpoint

from lit_rl.callbacks.best import BestCheckpoint
from lit_rl.checkpoint import LAST, rotating
from lit_rl.errors import UsageError


class LastCheckpoint(Checkpoint):
    """Keeps ``last.ckpt``: everything, buffer included, when training begins, after every ``every``-th epoch's evaluation,
    after the last, and on SIGTERM after the iteration that it falls into.

    The one before stays as ``previous.ckpt``. It sees the state of the callbacks before it in the trainer's list, so it
    comes last. Lightning's own ``save_last`` skips epochs without a new best score, and all of them while
    ``global_step`` is 0. Resumed from it, ``max_time`` counts anew.
    """

    def __init__(self, folder: str | Path, every: int = 1) -> None:
        """``every``: epochs, at least 1; raises UsageError."""
        if every < 1:
            raise UsageError(f"--checkpoint_every is {every}: it counts epochs, at least 1")
        super().__init__()
        self.path = Path(folder) / LAST
        self.every = every

    def on_load_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        checkpoint["callbacks"].pop("Timer", None)

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        begun = trainer.ckpt_path
        # a fit that goes on from elsewhere has no file of its own yet, and the other one may be gone tomorrow
        if begun is None or Path(begun).resolve().parent != self.path.parent.resolve():
            self._save(trainer)

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if not trainer.received_sigterm:
            return
        in_evaluation = trainer.fit_loop.epoch_loop.batch_progress.is_last_batch  # Lightning would skip it when resumed
        exact = getattr(getattr(trainer, "datamodule", None), "exact_resume", False)  # only an epoch's end is exact
        if not in_evaluation and not exact:
            self._save(trainer)

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        epochs = trainer.current_epoch + 1
        if epochs % self.every == 0 or _is_last(trainer, epochs):
            self._save(trainer)

    def _save(self, trainer: pl.Trainer) -> None:
        with rotating(self.path) if trainer.is_global_zero else contextlib.nullcontext():
            trainer.save_checkpoint(self.path, weights_only=False)
        for callback in trainer.checkpoint_callbacks:
            if isinstance(callback, BestCheckpoint):
                callback.last_was_saved(trainer)


def _is_last(trainer: pl.Trainer, epochs: int) -> bool:
    return (
        trainer.should_stop
        or trainer.received_sigterm
        or _reached(epochs, trainer.max_epochs)
        or _reached(trainer.global_step, trainer.max_steps)
    )


def _reached(count: int, limit: int | None) -> bool:
    return limit is not None and 0 <= limit <= count
