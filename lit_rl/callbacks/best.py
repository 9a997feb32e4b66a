"""The best weights of a stage, kept so that no resumable checkpoint ever counts on a file that is gone."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any, Literal

import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import ModelCheckpoint
from pytorch_lightning.utilities import rank_zero_warn

START = "start-"  # how the name of the weights that a stage began with starts


class BestCheckpoint(ModelCheckpoint):
    """ModelCheckpoint that keeps the weights of the best evaluation in ``folder``, ``epoch=3-return=487.20.ckpt``.

    A file that was beaten goes only when neither ``last.ckpt`` nor ``previous.ckpt`` names it any more; a resumed fit
    removes what an evaluation after its checkpoint had left. States hold file names, so the folder may move. A user's
    own ModelCheckpoint may watch the same metric: Lightning tells the two apart by their state's key.

    Attributes:
        start: path, score and spread of the weights that the stage began with, where they were scored.
    """

    state_key = "lit_rl.BestCheckpoint"

    def __init__(self, folder: Path, monitor: str, mode: Literal["max", "min"]) -> None:
        name = monitor.rpartition("/")[2]
        super().__init__(
            folder,
            f"epoch={{epoch}}-{name}={{{monitor}:.2f}}",
            monitor,
            mode=mode,
            save_weights_only=True,
            auto_insert_metric_name=False,  # the slash in the metric's name would make a folder
            save_on_train_epoch_end=False,
        )
        self._last_global_step_saved = -1  # at 0, what was evaluated before the first update would never be kept
        self.start: tuple[str, float, float | None] | None = None
        self._beaten: list[str] = []  # since last.ckpt was saved
        self._named_by_previous: list[str] = []

    def begin_with(self, path: Path, score: float, std: float | None) -> None:
        """Count the weights that the stage begins with as its best so far."""
        kept = str(self._folder / path.name)
        self.start = kept, score, std
        value = torch.tensor(score)  # float32, as the scores it is compared with
        self.best_model_path = self.kth_best_model_path = kept
        self.best_model_score = self.current_score = self.kth_value = value
        self.best_k_models = {kept: value}

    @property
    def _folder(self) -> Path:
        return Path(str(self.dirpath))

    def state_dict(self) -> dict[str, Any]:
        state = super().state_dict()
        for name in ("best_model_path", "kth_best_model_path", "last_model_path"):
            state[name] = Path(state[name]).name
        state["best_k_models"] = {Path(path).name: score for path, score in self.best_k_models.items()}
        start = None if self.start is None else [Path(self.start[0]).name, *self.start[1:]]
        return state | {"dirpath": "", "start": start}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        def path(name: str) -> str:
            return str(self._folder / name) if name else ""

        state = state_dict | {"dirpath": self.dirpath}
        for name in ("best_model_path", "kth_best_model_path", "last_model_path"):
            state[name] = path(state[name])
        state["best_k_models"] = {path(name): score for name, score in state["best_k_models"].items()}
        super().load_state_dict(state)
        if state["start"] is not None:
            name, score, std = state["start"]
            self.start = path(name), score, std

    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if self.best_model_path and not Path(self.best_model_path).exists():
            rank_zero_warn(f"{self.best_model_path} is gone: the best of the evaluations to come takes its place")
            self.best_model_path = self.kth_best_model_path = ""
            self.best_model_score, self.best_k_models = None, {}
        if trainer.is_global_zero:
            for file in self._folder.glob("epoch=*.ckpt"):
                if str(file) not in self.best_k_models:
                    self._unlink(str(file))

    def last_was_saved(self, trainer: pl.Trainer) -> None:
        """Told when ``last.ckpt`` has been replaced, and what it was is ``previous.ckpt``."""
        if trainer.is_global_zero:
            for path in self._named_by_previous:
                self._unlink(path)
        self._named_by_previous, self._beaten = self._beaten, []

    def _remove_checkpoint(self, trainer: pl.Trainer, filepath: str) -> None:
        if not Path(filepath).name.startswith(START):
            self._beaten.append(filepath)

    def _unlink(self, path: str) -> None:
        with contextlib.suppress(OSError):
            Path(path).unlink()
