"""The checkpoint that a run goes on from."""

from __future__ import annotations

from pathlib import Path

import pytorch_lightning as pl
from pytorch_lightning.callbacks import Checkpoint

from lit_rl.checkpoint import LAST
from lit_rl.errors import UsageError


class LastCheckpoint(Checkpoint):
    """Keeps ``last.ckpt``: everything, buffer included, after every ``every``-th epoch's evaluation and after the last.

    It sees the state of the callbacks before it in the trainer's list, so it comes last. Lightning's own ``save_last``
    skips epochs without a new best score, and all of them while ``global_step`` is 0.
    """

    def __init__(self, folder: str | Path, every: int = 1) -> None:
        """``every``: epochs, at least 1; raises UsageError."""
        if every < 1:
            raise UsageError(f"--checkpoint_every is {every}: it counts epochs, at least 1")
        super().__init__()
        self.path = Path(folder) / LAST
        self.every = every

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        epochs = trainer.current_epoch + 1
        if epochs % self.every == 0 or _is_last(trainer, epochs):
            trainer.save_checkpoint(self.path, weights_only=False)


def _is_last(trainer: pl.Trainer, epochs: int) -> bool:
    return (
        trainer.should_stop
        or trainer.received_sigterm
        or _reached(epochs, trainer.max_epochs)
        or _reached(trainer.global_step, trainer.max_steps)
    )


def _reached(count: int, limit: int | None) -> bool:
    return limit is not None and 0 <= limit <= count
