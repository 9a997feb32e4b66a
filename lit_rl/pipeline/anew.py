"""What a run does not take over from the checkpoint of another one."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
from pytorch_lightning.callbacks import Callback, Checkpoint, EarlyStopping

from lit_rl.callbacks.stop import StopAtReturn
from lit_rl.pipeline.resume import Resume


def is_of(folder: Path, checkpoint: str | Path) -> bool:
    """Whether a checkpoint stands in a run's folder."""
    return folder.resolve() in Path(checkpoint).resolve().parents


@contextlib.contextmanager
def going_on(folder: Path, resume: Resume | None) -> Iterator[None]:
    """Around a fit of the run in ``folder``: of another run's checkpoint nobody expects the callbacks that only that one had.

    Of the run's own Lightning names them, as their state is lost.
    """
    if resume is None or is_of(folder, resume.path):
        yield
        return
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Be aware that when using `ckpt_path`, callbacks")
        yield


class Anew(Callback):
    """Begins rows, kept checkpoints, patience, time and the return to stop at anew where a fit goes on from another run's
    checkpoint: the files that these count are in that run's folder, and why it ended does not end this one.

    Args:
        folder: of this run.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def on_load_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        if is_of(self._folder, str(trainer.ckpt_path)):
            return
        checkpoint["callbacks"].pop("Timer", None)
        for callback in trainer.callbacks:  # type: ignore[attr-defined]
            if isinstance(callback, Checkpoint | EarlyStopping | StopAtReturn):
                checkpoint["callbacks"].pop(callback.state_key, None)
