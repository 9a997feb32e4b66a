"""One stage: a LitPolicy and a Trainer of its own, under EarlyStopping and ModelCheckpoint on one eval metric."""

from __future__ import annotations

import time
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

import pytorch_lightning as pl
from pytorch_lightning.callbacks import Callback, ProgressBar
from pytorch_lightning.utilities import rank_zero_only

from lit_rl.algorithms import import_object
from lit_rl.callbacks.best import START, BestCheckpoint
from lit_rl.callbacks.films import Films
from lit_rl.callbacks.interrupt import Interrupts
from lit_rl.callbacks.last import LastCheckpoint
from lit_rl.callbacks.patience import Patience
from lit_rl.callbacks.progress import EnvStepsBar
from lit_rl.callbacks.stop import StopAtReturn
from lit_rl.checkpoint import AtomicCheckpointIO, load
from lit_rl.data.plans import ReplayPlan
from lit_rl.datamodule import ExperienceDataModule
from lit_rl.envs.seeds import env_seed
from lit_rl.errors import OWN, UsageError, in_one_line
from lit_rl.lit_policy import LitPolicy
from lit_rl.loggers.curve import PREFIXES
from lit_rl.loggers.make import make_logger
from lit_rl.loggers.paths import Paths
from lit_rl.loggers.records import Records, read_rows
from lit_rl.optimize import Compile
from lit_rl.pipeline.anew import Anew, going_on
from lit_rl.pipeline.monitor import find_monitor
from lit_rl.pipeline.resume import Resume, check_same
from lit_rl.pipeline.settings import Settings, StageSettings


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


@dataclass
class Prepared:
    """A stage that can run: its policy, and the metric that picks its best one."""

    policy: LitPolicy
    monitor: str
    mode: Literal["max", "min"]


def prepare(
    stage: StageSettings, data: ExperienceDataModule, number: int, compile: Compile, ranks: int = 1
) -> Prepared:
    """The LitPolicy of stage 1 or 2 for this many ranks, and what it is scored by.

    Raises:
        UsageError: spaces that the algorithm cannot handle, a monitor that will never be logged, or data that does not
            fit the algorithm's plan.
    """
    make = LitPolicy if stage.module is None else find_module(stage.module)
    max_steps = stage.trainer.get("max_steps", -1)
    refine: dict[str, Any] = {}
    if number == 2:
        refine = {name: getattr(stage.refine, name) for name in ("critic_warmup", "critic_warmup_lr")}
        refine |= {name: getattr(stage.refine, name) or 0.0 for name in ("anchor", "offline_fraction")}
    try:
        policy = make(
            stage.algo,
            data.spaces,
            stage=number,
            average_weights=stage.keep.average_weights,
            max_updates=None if max_steps == -1 else max_steps,
            max_env_steps=stage.limits.total_timesteps,
            compile=compile,
            **refine,
            **{field.name: getattr(stage.algorithm, field.name) for field in fields(stage.algorithm)},
        )
    except Exception as error:
        if stage.module is None or isinstance(error, OWN):
            raise
        raise UsageError(f"--step2: module {stage.module} cannot be made: {in_one_line(error)}") from error
    serve(data, stage)
    data.check(policy, ranks)
    if data.env is None and stage.keep.stop_return is not None:
        raise UsageError(f"--stop_return {stage.keep.stop_return} needs episodes that are played: add --env ID")
    monitor, mode = find_monitor(stage, policy, data)
    if stage.keep.videos:
        if data.environments is None:
            raise UsageError("--videos needs episodes that are played: add --env ID")
        data.environments.check_film()
    return Prepared(policy, monitor, mode)


def serve(data: ExperienceDataModule, stage: StageSettings) -> None:
    """Let the datamodule serve this stage from now on."""
    data.step_per_epoch, data.input, data.mixed_in = stage.data.step_per_epoch, stage.data.input, stage.mixed_in


def check_resume(
    stage: StageSettings, policy: LitPolicy, data: ExperienceDataModule, resume: Resume, ranks: int = 1
) -> None:
    """Refuse a checkpoint that a stage, which its policy was prepared for, could not go on from.

    Raises:
        UsageError: what would change what was learned, or experience of another kind or size.
    """
    check_same(policy, resume)
    serve(data, stage)
    plan, path = data.check(policy, ranks), resume.path
    sets = 0 if data.input is None else 1 if isinstance(data.input, str) else len(data.input)
    if sets != resume.recorded:
        given = [f"learned from {n} data set{'s' if n > 1 else ''}" if n else "acted" for n in (resume.recorded, sets)]
        remedy = "give --input as its run did" if resume.recorded else "leave --input out"
        raise UsageError(f"{path} is of a stage that {given[0]}, and this one would have {given[1]}: {remedy}")
    if isinstance(plan, ReplayPlan) and resume.ring is not None:
        rows, envs = resume.ring
        if (now := (plan.buffer_size // ranks // data.num_envs, data.num_envs)) != resume.ring:
            raise UsageError(
                f"{path} holds a replay buffer of {rows} rows for each of {envs} envs, and this run would have {now[0]} for "
                f"{now[1]}: give --num_envs, --buffer_size and --devices as its run did"
            )


def find_module(path: str) -> type[LitPolicy]:
    """A user's LitPolicy subclass by import path, ``my_pkg.policies:MyLitPolicy``.

    Raises:
        UsageError: it cannot be imported, or is none.
    """
    found = import_object(path, "--step2: module")
    if not (isinstance(found, type) and issubclass(found, LitPolicy)):
        raise UsageError(f"--step2: module {path} is no subclass of lit_rl.LitPolicy")
    return found


def run_stage(
    prepared: Prepared,
    settings: StageSettings,
    data: ExperienceDataModule,
    folder: Path,
    run: Settings,
    interrupts: Interrupts,
    resume: Resume | None,
) -> Stage:
    """Fit one stage, or go on with it; stage 2 scores its starting weights first and keeps them if nothing better comes."""
    policy, monitor, mode = prepared.policy, prepared.monitor, prepared.mode
    started, number = time.perf_counter(), policy.stage
    home = folder / f"stage{number}"
    serve(data, settings)
    data.appends = run.resume or number == 2
    keeper = BestCheckpoint(home, monitor, mode)
    patience = Patience(monitor, mode, settings.keep.patience)
    goal = settings.keep.stop_return
    stop = StopAtReturn(f"{PREFIXES[number]}/return", float("inf") if goal is None else goal)
    ours = [keeper, patience, *([] if data.env is None else [stop]), interrupts]
    trainer = make_trainer(settings, folder, run, number, ours, resume)
    if number == 2 and resume is None:
        # the same randomness, whether stage 1 ended in this process or in an earlier one
        pl.seed_everything(env_seed(run.run.seed, "train", 3, number), verbose=False)
        path, score, std = _score_start(trainer, policy, data, home, monitor)
        keeper.begin_with(path, score, std)
        patience.best_score.fill_(score)
    met = number == 2 and resume is None and data.env is not None and stop.met(policy.reported[stop.monitor])
    if not met:
        with going_on(folder, resume):
            trainer.fit(policy, datamodule=data, ckpt_path=None if resume is None else resume.path)
    interrupted = interrupts.stage_ended()
    reason = "early_stopping" if patience.reached else "stop_return" if met or stop.reached else "limit"
    if interrupted and reason == "limit":
        reason = "ctrl-c"
    before = 0.0 if resume is None else _seconds_before(folder, number, resume)
    made = 0 if policy.first_env_step is None else data.env_steps - policy.first_env_step
    seconds = before + time.perf_counter() - started
    episodes = data.episodes_scored(monitor)
    return Stage(policy, trainer, monitor, _best(keeper, folder, number), made, seconds, episodes, reason)


def _best(keeper: BestCheckpoint, folder: Path, number: int) -> Best:
    """What the stage keeps: its start where no evaluation was better."""
    if not keeper.best_model_path or keeper.best_model_score is None:
        return Best()
    path = folder / f"stage{number}" / Path(keeper.best_model_path).name
    if keeper.start is not None and keeper.best_model_path == keeper.start[0]:
        return Best(path, *keeper.start[1:])
    score = float(keeper.best_model_score)
    return Best(path, score, _std_of(folder, number, str(keeper.monitor), score))


def _seconds_before(folder: Path, number: int, resume: Resume) -> float:
    """What the stage had taken when the checkpoint was written."""
    rows = [row for row in read_rows(folder) if row["stage"] == number and row["epoch"] < resume.epochs]
    return float(sum(row["time_this_epoch_s"] for row in rows))


@rank_zero_only
def _remove_events(folder: Path) -> None:
    """Remove the curves of a stage that was stopped before its first checkpoint."""
    for events in folder.glob("events.out.tfevents.*"):
        events.unlink(missing_ok=True)


def make_trainer(
    settings: StageSettings, folder: Path, run: Settings, number: int, ours: list[Callback], resume: Resume | None
) -> pl.Trainer:
    """The stage's Trainer: the user's flags and callbacks, and what a run of ours leaves behind."""
    flags = {name: value for name, value in settings.trainer.items() if name != "max_steps"}
    if resume is not None and flags.get("max_epochs", -1) != -1:
        flags["max_epochs"] = max(flags["max_epochs"], resume.epochs)  # fewer than there were: nothing is left to do
    keeper, *others = ours
    plain = bool(flags.get("barebones"))  # no evaluation, no checkpoint, no logging
    # rows stand before what may keep a checkpoint that says how many there are
    records = [Paths(folder, f"stage{number}"), Records(folder, run.stage2 is not None), Anew(folder)]
    callbacks = [*([] if plain else [*others, *records]), *(flags.get("callbacks") or [])]
    purge_step = None
    if resume is not None:
        purge_step = 1 + (resume.env_steps if settings.data.input is None else resume.updates)
    has_bar = any(isinstance(callback, ProgressBar) for callback in callbacks)
    if not plain and not has_bar and flags.get("enable_progress_bar") in (None, True):
        callbacks.append(EnvStepsBar())
    if settings.keep.videos:
        callbacks.append(Films(folder, settings.keep.videos))
    if not plain and flags.get("enable_checkpointing") in (None, True):
        callbacks += [keeper, LastCheckpoint(folder / f"stage{number}", settings.keep.checkpoint_every)]
    flags |= {
        "callbacks": callbacks,
        "plugins": [AtomicCheckpointIO(), *(flags.get("plugins") or [])],
        "logger": False if plain else make_logger(run.run.logger, folder, number, purge_step=purge_step),
        "default_root_dir": folder,
    }
    if resume is None:
        _remove_events(folder / f"stage{number}")
    if not plain:
        flags["enable_checkpointing"] = True  # Records must run after the module's own hooks, as checkpoints do
    return pl.Trainer(**flags)


def _score_start(
    trainer: pl.Trainer, policy: LitPolicy, data: ExperienceDataModule, home: Path, monitor: str
) -> tuple[Path, float, float | None]:
    """Evaluate the weights that stage 2 begins with, and keep them; where, their score and its spread."""
    trainer.validate(policy, datamodule=data, verbose=False)
    score, prefix = policy.reported[monitor], PREFIXES[2]
    path = home / f"{START}{monitor.rpartition('/')[2]}={score:.2f}.ckpt"
    trainer.save_checkpoint(path, weights_only=True)
    std = policy.reported[f"{prefix}/return_std"] if monitor == f"{prefix}/return" else None
    return path, score, std


def _std_of(folder: Path, number: int, monitor: str, score: float) -> float | None:
    """The spread of returns in the evaluation that made this score, where the score is a mean return."""
    if not monitor.endswith("/return"):
        return None
    rows = [row for row in read_rows(folder) if row["stage"] == number and monitor in row]
    nearest = min(rows, key=lambda row: abs(row[monitor] - score), default={})
    std: float | None = nearest.get(f"{monitor}_std")
    return std
