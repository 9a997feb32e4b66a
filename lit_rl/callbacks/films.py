"""Films of evaluation episodes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytorch_lightning as pl
from pytorch_lightning.callbacks import Callback


class Films(Callback):
    """After every evaluation of a fit, and the one that a stage starts with, on the first rank: its first ``episodes``
    episodes, played again before a camera.

    ``videos/epoch=3-episode-0.mp4`` in the run's folder; those of stage 2 begin with ``stage2-``.
    """

    def __init__(self, folder: Path, episodes: int) -> None:
        self.folder, self.episodes = folder / "videos", episodes

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if trainer.sanity_checking or not trainer.is_global_zero:
            return
        policy: Any = pl_module  # a LitPolicy
        fitting = trainer.state.fn == "fit"
        if policy.updates and not fitting:
            return
        data: Any = trainer.datamodule  # type: ignore[attr-defined]
        stage = f"stage{policy.stage}-" if policy.stage > 1 else ""
        moment = f"epoch={trainer.current_epoch}" if fitting else "start"
        data.played.film(policy.best_policy, self.folder, f"{stage}{moment}", self.episodes)
