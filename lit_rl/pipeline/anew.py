"""What a run does not take over from the checkpoint of another one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytorch_lightning as pl
from pytorch_lightning.callbacks import Callback, Checkpoint, EarlyStopping

from lit_rl.callbacks.stop import StopAtReturn


class Anew(Callback):
    """Begins rows, kept checkpoints, patience and the return to stop at anew where a fit goes on from another run's
    checkpoint: the files that these count are in that run's folder, and why it ended does not end this one.

    Args:
        folder: of this run.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def on_load_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        if self._folder.resolve() in Path(str(trainer.ckpt_path)).resolve().parents:
            return
        for callback in trainer.callbacks:  # type: ignore[attr-defined]
            if isinstance(callback, Checkpoint | EarlyStopping | StopAtReturn):
                checkpoint["callbacks"].pop(callback.state_key, None)
