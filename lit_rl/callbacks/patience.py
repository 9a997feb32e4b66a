"""Ending a stage that no longer gets better."""

from __future__ import annotations

from typing import Any, Literal

import pytorch_lightning as pl
from pytorch_lightning.callbacks import EarlyStopping

from lit_rl.callbacks.stop import end_fit


class Patience(EarlyStopping):
    """EarlyStopping whose patience is the one of this run: a stage that it ended stays ended when it is resumed, unless
    it is resumed with more patience. A user's own EarlyStopping may watch the same metric.
    """

    state_key = "lit_rl.Patience"

    def __init__(self, monitor: str, mode: Literal["max", "min"], patience: int | None) -> None:
        """``patience``: evaluations without a better score; None never ends."""
        super().__init__(
            monitor, patience=patience or 2**31, mode=mode, check_on_train_epoch_end=False, log_rank_zero_only=True
        )

    @property
    def reached(self) -> bool:
        return self.wait_count >= self.patience

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        super().load_state_dict(state_dict | {"patience": self.patience})

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if self.reached:
            end_fit(trainer)
