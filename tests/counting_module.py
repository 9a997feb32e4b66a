"""The smallest LightningModule with a LitPolicy's counters, and a way to fit it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import Checkpoint

from lit_rl.checkpoint import AtomicCheckpointIO


class Batches:
    """A sized loader without side effects."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[torch.Tensor]:
        return iter(torch.zeros(self.count, 1))


class CountingModule(pl.LightningModule):
    """10 env steps and 1 update a batch; the weight is the number of updates, the returns follow from env steps."""

    def __init__(self, stage: int = 1, first_env_step: int = 0, silent_epochs: Sequence[int] = ()) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.weight = torch.nn.Parameter(torch.zeros(1))
        self.stage, self.prefix = stage, "Eval" if stage == 1 else "Step2Eval"
        self.env_steps, self.updates = first_env_step, 0
        self.silent_epochs = silent_epochs  # epochs in which no episode ends
        self.trained_epochs: list[int] = []
        self.step_optimizer = True
        self.save_hyperparameters({"lit_rl": {"algo": "Counting", "stage": stage}}, logger=False)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=1.0)

    def on_train_epoch_start(self) -> None:
        self.trained_epochs.append(self.current_epoch)

    def training_step(self, batch: torch.Tensor, batch_idx: int) -> None:
        if self.step_optimizer:
            optimizer = self.optimizers()
            self.weight.grad = -torch.ones(1)
            optimizer.step()
        self.env_steps += 10
        self.updates += 1

    def on_train_epoch_end(self) -> None:
        if self.current_epoch not in self.silent_epochs:
            self.log("Train/return", self.env_steps / 10 + 0.1)

    def validation_step(self, batch: torch.Tensor, batch_idx: int) -> None:
        pass

    def on_validation_epoch_end(self) -> None:
        self.log(f"{self.prefix}/return", float(self.env_steps))

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        checkpoint["counters"] = {"env_steps": self.env_steps, "updates": self.updates}

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        self.env_steps = checkpoint["counters"]["env_steps"]
        self.updates = checkpoint["counters"]["updates"]


def make_trainer(max_epochs: int, callbacks: Sequence[pl.Callback], **settings: Any) -> pl.Trainer:
    """A quiet CPU trainer that writes only what ``callbacks`` write."""
    quiet: dict[str, Any] = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    quiet |= {"accelerator": "cpu", "devices": 1, "num_sanity_val_steps": 0, "plugins": [AtomicCheckpointIO()]}
    quiet["enable_checkpointing"] = any(isinstance(callback, Checkpoint) for callback in callbacks)
    return pl.Trainer(max_epochs=max_epochs, callbacks=list(callbacks), **(quiet | settings))


def fit(
    module: CountingModule,
    max_epochs: int,
    callbacks: Sequence[pl.Callback],
    ckpt_path: Path | None = None,
    **settings: Any,
) -> pl.Trainer:
    """Two batches of training and one of evaluation an epoch."""
    trainer = make_trainer(max_epochs, callbacks, **settings)
    trainer.fit(module, Batches(2), Batches(1), ckpt_path=ckpt_path, weights_only=True)
    return trainer
