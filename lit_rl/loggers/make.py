"""Lightning's loggers by name."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Literal, get_args

from pytorch_lightning.loggers import CSVLogger, Logger, MLFlowLogger, TensorBoardLogger, WandbLogger

from lit_rl.errors import UsageError

LoggerKind = Literal["tensorboard", "csv", "wandb", "mlflow", "false"]


def check_logger(kind: str) -> None:
    """Raise UsageError for an unknown logger and for one whose package is missing."""
    if kind not in get_args(LoggerKind):
        raise UsageError(f"--logger {kind} is unknown: use {', '.join(get_args(LoggerKind))}")
    if kind in ("wandb", "mlflow") and importlib.util.find_spec(kind) is None:
        raise UsageError(f"--logger {kind} needs the package {kind}: install it with: pip install -e '.[{kind}]'")


def make_logger(
    kind: LoggerKind, folder: str | Path, stage: int, *, purge_step: int | None = None
) -> Logger | Literal[False]:
    """The logger of one stage of the run in ``folder``, or False: both as ``pl.Trainer(logger=...)`` takes them.

    TensorBoard events go to ``folder/stageN``; with ``purge_step`` (env steps of the checkpoint that is resumed, plus
    1) TensorBoard drops what an earlier process logged from there on. CSV goes to ``folder/stageN/csv``, a new version
    for every resume. Raises UsageError for another name and for a logger whose package is missing.
    """
    folder = Path(folder)
    stage_name = f"stage{stage}"
    if kind == "false":
        return False
    if kind == "tensorboard":
        return TensorBoardLogger(folder, name="", version=stage_name, default_hp_metric=False, purge_step=purge_step)
    if kind == "csv":
        return CSVLogger(folder / stage_name, name="csv")
    check_logger(kind)
    run_name = f"{folder.name}/{stage_name}"
    if kind == "wandb":
        return WandbLogger(name=run_name, save_dir=folder, project="lit_rl", group=folder.name)
    return MLFlowLogger(experiment_name="lit_rl", run_name=run_name, save_dir=str(folder / "mlruns"))
