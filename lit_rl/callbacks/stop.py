"""Ending a stage as soon as the policy is good enough."""

from __future__ import annotations

from typing import Any

import pytorch_lightning as pl
from pytorch_lightning.callbacks import Callback

from lit_rl.errors import UsageError


def end_fit(trainer: pl.Trainer) -> None:
    """End after this iteration, with an evaluation, whatever the Trainer's minima and validation interval."""
    trainer.should_stop = True
    trainer.fit_loop.min_epochs = 0
    trainer.fit_loop.epoch_loop.min_steps = None
    trainer.check_val_every_n_epoch = 1


class StopAtReturn(Callback):
    """Ends the fit after the evaluation in which ``monitor`` reaches ``value``.

    ``reached`` says whether it did; it is saved, so that a stage that has ended this way stays ended when resumed,
    unless it is resumed with a value that was not reached. Raises UsageError when the metric is not there.
    """

    def __init__(self, monitor: str, value: float) -> None:
        self.monitor, self.value = monitor, value
        self.score: float | None = None  # the score that ended the fit

    @property
    def reached(self) -> bool:
        return self.score is not None and self.met(self.score)

    def met(self, score: float) -> bool:
        """Whether a score of ``monitor`` meets the value; NaN never does."""
        return score >= self.value

    def state_dict(self) -> dict[str, Any]:
        return {"score": self.score}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.score = state_dict["score"]

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if self.reached:
            end_fit(trainer)

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if trainer.sanity_checking or trainer.state.fn != "fit":
            return
        if self.monitor not in trainer.callback_metrics:
            raise UsageError(f"{self.monitor} is not logged; there are {', '.join(sorted(trainer.callback_metrics))}")
        score = float(trainer.callback_metrics[self.monitor])
        if self.met(score):
            self.score = score
            trainer.should_stop = True
