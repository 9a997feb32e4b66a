"""Metrics on their way to callbacks and loggers."""

from __future__ import annotations

import warnings

import pytorch_lightning as pl
from pytorch_lightning.trainer.states import TrainerFn


def report(module: pl.LightningModule, metrics: dict[str, float], step: int) -> None:
    """Give metrics to callbacks by Lightning's log; while fitting, to loggers at ``step``, exactly (not as float32)."""
    trainer = module.trainer
    fitting = trainer.state.fn == TrainerFn.FITTING
    if not trainer.barebones:  # Lightning has no log then
        with warnings.catch_warnings():  # validate and test return only what is logged, where nobody logs it too
            warnings.filterwarnings("ignore", ".*have no logger configured")
            module.log_dict(metrics if fitting else metrics | {"step": float(step)}, logger=not fitting)
    if fitting and trainer.is_global_zero and not trainer.sanity_checking:
        for logger in trainer.loggers:
            logger.log_metrics(metrics, step=step)
