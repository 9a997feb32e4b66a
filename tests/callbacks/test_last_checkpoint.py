"""last.ckpt is there after every epoch that asks for it, and a fit goes on from it."""

from __future__ import annotations

from pathlib import Path

import pytest
import pytorch_lightning as pl
import torch
from counting_module import CountingModule, fit
from pytorch_lightning.callbacks import ModelCheckpoint

from lit_rl.callbacks.last import LastCheckpoint
from lit_rl.checkpoint import load
from lit_rl.errors import UsageError


class EpochsSaved(pl.Callback):
    """Reads last.ckpt when the next epoch begins, as a process that resumes would."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "last.ckpt"
        self.seen: list[int | None] = []

    def look(self) -> None:
        self.seen.append(load(self.path)["counters"]["env_steps"] if self.path.exists() else None)

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.look()


def test_every_epoch_leaves_a_full_checkpoint_after_its_evaluation(tmp_path: Path) -> None:
    saved = EpochsSaved(tmp_path)
    best = ModelCheckpoint(
        tmp_path, monitor="Eval/return", mode="max", filename="e={epoch}", auto_insert_metric_name=False
    )
    fit(CountingModule(), 3, [saved, best, LastCheckpoint(tmp_path)])
    saved.look()
    assert saved.seen == [0, 20, 40, 60]
    checkpoint = load(tmp_path / "last.ckpt")
    assert checkpoint["state_dict"]["weight"].tolist() == [6.0]
    assert len(checkpoint["optimizer_states"]) == 1
    [state] = [state for key, state in checkpoint["callbacks"].items() if key.startswith("ModelCheckpoint")]
    assert state["best_model_score"].item() == 60.0


def test_checkpoint_every_two_epochs_and_after_the_last(tmp_path: Path) -> None:
    saved = EpochsSaved(tmp_path)
    fit(CountingModule(), 5, [saved, LastCheckpoint(tmp_path, every=2)])
    saved.look()
    assert saved.seen == [0, 0, 40, 40, 80, 100]


def test_stage_that_is_told_to_stop_leaves_a_checkpoint(tmp_path: Path) -> None:
    class Stop(pl.Callback):
        def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
            trainer.should_stop = True

    fit(CountingModule(), 50, [Stop(), LastCheckpoint(tmp_path, every=10)])
    assert load(tmp_path / "last.ckpt")["counters"]["env_steps"] == 20


def test_checkpoint_is_written_while_global_step_is_zero(tmp_path: Path) -> None:
    module = CountingModule()
    module.step_optimizer = False
    trainer = fit(module, 1, [LastCheckpoint(tmp_path)])
    assert trainer.global_step == 0
    assert load(tmp_path / "last.ckpt")["counters"]["env_steps"] == 20


def test_sanity_check_writes_nothing(tmp_path: Path) -> None:
    class Look(pl.Callback):
        def on_sanity_check_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
            assert not (tmp_path / "last.ckpt").exists()

    fit(CountingModule(), 1, [Look(), LastCheckpoint(tmp_path)], num_sanity_val_steps=2)
    assert (tmp_path / "last.ckpt").exists()


def test_resumed_fit_trains_only_the_epochs_that_are_left(tmp_path: Path) -> None:
    fit(CountingModule(), 2, [LastCheckpoint(tmp_path)])
    module = CountingModule()
    trainer = fit(module, 4, [LastCheckpoint(tmp_path)], ckpt_path=tmp_path / "last.ckpt")
    assert module.trained_epochs == [2, 3]
    assert torch.equal(module.weight.detach(), torch.tensor([8.0]))
    assert (module.updates, trainer.global_step, module.env_steps) == (8, 8, 80)


def test_zero_epochs_between_checkpoints_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="at least 1"):
        LastCheckpoint(tmp_path, every=0)
