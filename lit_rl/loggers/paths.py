"""In ``params.json``: what computed the updates of each stage."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytorch_lightning as pl
from pytorch_lightning.callbacks import Callback

from lit_rl.loggers.params import UPDATES, note_updates, read_params


class Paths(Callback):
    """Notes from which update on the gradients of a stage were native or eager, and why.

    Args:
        folder: of the run.
        stage: "stage1" or "stage2".
    """

    def __init__(self, folder: Path, stage: str) -> None:
        self._folder, self._stage = folder, stage
        self._before: dict[str, list[dict[str, Any]]] = {}  # of the processes that the stage ran in before
        self._noted = 0

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._noted = 0
        found = read_params(self._folder).get(UPDATES, {}).get(self._stage, {})
        self._before = {
            name: [entry for entry in entries if entry["from_update"] < pl_module.updates]
            for name, entries in found.items()
        }

    def on_train_batch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule, *_: Any) -> None:
        history: dict[str, list[dict[str, Any]]] = pl_module.native.history()  # type: ignore[union-attr, operator]
        entries = sum(map(len, history.values()))
        if entries != self._noted and trainer.is_global_zero:
            self._noted = entries
            whole = {name: self._before.get(name, []) + made for name, made in history.items()}
            note_updates(self._folder, self._stage, self._before | whole)
