"""One stage: a LitPolicy and a Trainer of its own, under EarlyStopping and ModelCheckpoint on one eval metric."""

from __future__ import annotations

import importlib
import time
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

import pytorch_lightning as pl
from pytorch_lightning.callbacks import Callback, EarlyStopping, ModelCheckpoint

from lit_rl.callbacks.last import LastCheckpoint
from lit_rl.callbacks.progress import EnvStepsBar
from lit_rl.callbacks.stop import StopAtReturn
from lit_rl.checkpoint import AtomicCheckpointIO, load
from lit_rl.data.config import EvalConfig
from lit_rl.data.evaluation import STATISTICS
from lit_rl.datamodule import ExperienceDataModule
from lit_rl.errors import UsageError
from lit_rl.lit_policy import PREFIXES, LitPolicy
from lit_rl.loggers.make import LoggerKind, make_logger
from lit_rl.loggers.records import Records, read_rows
from lit_rl.pipeline.settings import StageSettings

SMALLER_IS_BETTER = ("loss", "mse", "return_std")


@dataclass
class Best:
    """The best policy of a stage: where it is kept, and what its evaluation said."""

    path: Path | None = None  # None where nothing was kept: the policy as it is, then
    score: float | None = None
    std: float | None = None


@dataclass
class Stage:
    """A stage that has run."""

    policy: LitPolicy
    trainer: pl.Trainer
    monitor: str
    best: Best
    env_steps: int
    seconds: float
    episodes: int
    stop_reason: str

    def summary(self) -> dict[str, Any]:
        """The stage's entry in summary.json; counts are the stage's own."""
        return {
            "metric": self.monitor,
            "best_score": self.best.score,
            "best_std": self.best.std,
            "best_path": None if self.best.path is None else str(self.best.path),
            "episodes": self.episodes,
            "env_steps": self.env_steps,
            "updates": self.policy.updates,
            "epochs": self.trainer.current_epoch,
            "seconds": self.seconds,
            "stop_reason": self.stop_reason,
        }

    def load_best(self) -> LitPolicy:
        """The stage's policy with its best weights; its last ones where nothing was kept."""
        if self.best.path is not None:
            self.policy.load_weights(load(self.best.path)["state_dict"])
        return self.policy


def build_policy(stage: StageSettings, data: ExperienceDataModule, number: int, ranks: int = 1) -> LitPolicy:
    """The LitPolicy of stage 1 or 2, for this many ranks.

    Raises:
        UsageError: spaces that the algorithm cannot handle, a monitor that will never be logged, or data that does not
            fit the algorithm's plan.
    """
    make = LitPolicy if stage.module is None else find_module(stage.module)
    max_steps = stage.trainer.get("max_steps", -1)
    policy = make(
        stage.algo,
        data.spaces,
        stage=number,
        average_weights=stage.evaluation.average_weights,
        max_updates=None if max_steps == -1 else max_steps,
        max_env_steps=stage.limits.total_timesteps,
        **{field.name: getattr(stage.algorithm, field.name) for field in fields(stage.algorithm)},
    )
    monitored(stage.evaluation, number)
    data.step_per_epoch = stage.data.step_per_epoch
    data.check(policy.algorithm, ranks)
    return policy


def find_module(path: str) -> type[LitPolicy]:
    """A user's LitPolicy subclass by import path, ``my_pkg.policies:MyLitPolicy``.

    Raises:
        UsageError: it cannot be imported, or is none.
    """
    module, _, name = path.partition(":")
    try:
        found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise UsageError(f"module {path} cannot be imported: {error}") from None
    if not (isinstance(found, type) and issubclass(found, LitPolicy)):
        raise UsageError(f"module {path} is no subclass of lit_rl.LitPolicy")
    return found


def monitored(evaluation: EvalConfig, number: int) -> tuple[str, Literal["max", "min"]]:
    """The metric that picks the best of a stage, and whether more or less of it is better.

    Raises:
        UsageError: it will never be logged.
    """
    monitor = evaluation.monitor or "Eval/return"
    if number == 2 and monitor.startswith("Eval/"):
        monitor = f"{PREFIXES[2]}/{monitor.removeprefix('Eval/')}"
    known = [f"{PREFIXES[number]}/{name}" for name in STATISTICS]
    if monitor not in known:
        raise UsageError(f"--monitor {monitor} is never logged at an evaluation; there are {', '.join(known)}")
    mode = evaluation.monitor_mode
    if mode == "auto":
        mode = "min" if monitor.rpartition("/")[2] in SMALLER_IS_BETTER else "max"
    return monitor, mode


def run_stage(
    policy: LitPolicy,
    settings: StageSettings,
    data: ExperienceDataModule,
    folder: Path,
    logger: LoggerKind,
    two_steps: bool,
) -> Stage:
    """Fit one stage; stage 2 scores its starting weights first and keeps them if nothing better comes."""
    started, first = time.perf_counter(), data.env_steps
    home = folder / f"stage{policy.stage}"
    monitor, mode = monitored(settings.evaluation, policy.stage)
    data.step_per_epoch = settings.data.step_per_epoch
    name = monitor.rpartition("/")[2]
    keeper = ModelCheckpoint(
        home,
        f"epoch={{epoch}}-{name}={{{monitor}:.2f}}",
        monitor,
        mode=mode,
        save_weights_only=True,
        auto_insert_metric_name=False,  # the slash in the metric's name would make a folder
        save_on_train_epoch_end=False,
    )
    keeper._last_global_step_saved = -1  # at 0, what was evaluated before the first update would never be kept
    patience = EarlyStopping(
        monitor,
        patience=settings.evaluation.patience or 2**31,
        mode=mode,
        check_on_train_epoch_end=False,
        log_rank_zero_only=True,
    )
    stop = StopAtReturn(f"{PREFIXES[policy.stage]}/return", settings.evaluation.stop_return or float("inf"))
    trainer = _make_trainer(settings, folder, logger, policy.stage, two_steps, [keeper, patience, stop])
    best = Best()
    if policy.stage == 2:
        best = _score_start(trainer, policy, data, home, monitor)
        patience.best_score.fill_(best.score)  # type: ignore[arg-type]
    if best.score is None or not stop.met(policy.reported[stop.monitor]):
        trainer.fit(policy, datamodule=data)
    if keeper.best_model_path and keeper.best_model_score is not None:
        score = float(keeper.best_model_score)
        if best.score is None or (score > best.score if mode == "max" else score < best.score):
            std = _std_of(folder, policy.stage, monitor, score)
            best = Best(Path(keeper.best_model_path), score, std)
    reason = "early_stopping" if patience.stopped_epoch else "stop_return" if stop.reached else "limit"
    seconds = time.perf_counter() - started
    return Stage(
        policy, trainer, monitor, best, data.env_steps - first, seconds, settings.evaluation.episode_per_test, reason
    )


def _make_trainer(
    settings: StageSettings, folder: Path, logger: LoggerKind, number: int, two_steps: bool, ours: list[Callback]
) -> pl.Trainer:
    """The stage's Trainer: the user's flags and callbacks, and what a run of ours leaves behind."""
    flags = {name: value for name, value in settings.trainer.items() if name != "max_steps"}
    keeper, *others = ours
    plain = bool(flags.get("barebones"))  # no evaluation, no checkpoint, no logging
    callbacks = [*([] if plain else others), *(flags.get("callbacks") or [])]
    if not plain and flags.get("enable_progress_bar") in (None, True):
        callbacks.append(EnvStepsBar())
    if not plain:
        callbacks.append(Records(folder, two_steps))
    if not plain and flags.get("enable_checkpointing") in (None, True):
        # the order counts: rows first, then the full checkpoint that says how many there are
        callbacks += [keeper, LastCheckpoint(folder / f"stage{number}", settings.data.checkpoint_every)]
    flags |= {
        "callbacks": callbacks,
        "plugins": [AtomicCheckpointIO(), *(flags.get("plugins") or [])],
        "logger": False if plain else make_logger(logger, folder, number),
        "default_root_dir": folder,
    }
    if not plain:
        flags["enable_checkpointing"] = True  # Records must run after the module's own hooks, as checkpoints do
    return pl.Trainer(**flags)


def _score_start(trainer: pl.Trainer, policy: LitPolicy, data: ExperienceDataModule, home: Path, monitor: str) -> Best:
    """Evaluate the weights that stage 2 begins with, and keep them."""
    trainer.validate(policy, datamodule=data, verbose=False)
    score, prefix = policy.reported[monitor], PREFIXES[2]
    path = home / f"start-{monitor.rpartition('/')[2]}={score:.2f}.ckpt"
    trainer.save_checkpoint(path, weights_only=True)
    std = policy.reported[f"{prefix}/return_std"] if monitor == f"{prefix}/return" else None
    return Best(path, score, std)


def _std_of(folder: Path, number: int, monitor: str, score: float) -> float | None:
    """The spread of returns in the evaluation that made this score, where the score is a mean return."""
    if not monitor.endswith("/return"):
        return None
    rows = [row for row in read_rows(folder) if row["stage"] == number and monitor in row]
    nearest = min(rows, key=lambda row: abs(row[monitor] - score), default={})
    std: float | None = nearest.get(f"{monitor}_std")
    return std
