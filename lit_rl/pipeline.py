"""The two stages, top to bottom: learn, refine, test, keep the best."""

from __future__ import annotations

import os
import time
from dataclasses import asdict, dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

import pytorch_lightning as pl
from pytorch_lightning.callbacks import EarlyStopping, ModelCheckpoint

from lit_rl.algorithms.base import AlgorithmConfig
from lit_rl.callbacks.last import LastCheckpoint
from lit_rl.callbacks.progress import EnvStepsBar
from lit_rl.callbacks.stop import StopAtReturn
from lit_rl.checkpoint import AtomicCheckpointIO, copy_atomic, load, write_atomic
from lit_rl.data.config import DataConfig, EvalConfig, at_least
from lit_rl.datamodule import ExperienceDataModule
from lit_rl.envs.config import EnvConfig
from lit_rl.errors import UsageError
from lit_rl.lit_policy import PREFIXES, LitPolicy
from lit_rl.loggers.curve import draw_curve
from lit_rl.loggers.make import make_logger
from lit_rl.loggers.params import write_params
from lit_rl.loggers.records import Records
from lit_rl.loggers.summary import summary_json, summary_table


@dataclass
class RunConfig:
    """run"""

    algo: str = "DQN"
    """Algorithm: a name (lit-rl list shows them) or your own as module:Class. Alias: --run."""
    seed: int = 0
    """Seed of everything: weights, environments, exploration, sampling."""
    experiment_name: str | None = None
    """Name of the run's folder; <ALGO>_<ENV>_<date>_<time> by default."""
    output_dir: str = "output"
    """Folder that holds the runs."""
    ckpt_path: str | None = None
    """Start from the weights of this checkpoint, or of a run's best.ckpt, with counters at 0."""
    num_threads: int = 1
    """Threads of torch for one operation; more pays off from networks of about 256 x 256 on."""
    logger: Literal["tensorboard", "csv", "wandb", "mlflow", "false"] = "tensorboard"
    """Lightning logger; result.json and progress.csv are written whatever it is."""
    tuned: bool = True
    """Use the tuned settings of this algorithm and environment where there are any; typed flags win."""

    def __post_init__(self) -> None:
        at_least("seed", self.seed, 0)
        at_least("num_threads", self.num_threads, 1)
        name = self.experiment_name
        if name is not None and (
            not name or name in (".", "..") or any(c in "/\\" or not c.isprintable() for c in name)
        ):
            raise UsageError(
                f"--experiment_name {name!r} must be the name of a folder, without slashes or control characters"
            )


@dataclass
class Stage2Config:
    """stage 2"""

    two_steps: bool = False
    """Refine the best policy of stage 1 in a second stage with a Trainer of its own."""
    lr_2: float | None = None
    """Learning rate of stage 2; by default 0.3 times the last one of stage 1."""
    max_epochs_2: int | None = None
    """Epochs of stage 2; by default as many as stage 1 may take."""
    patience_2: int = 6
    """Evaluations without a better score that end stage 2."""
    average_weights_2: float | None = 0.995
    """Decay per update of the running average that stage 2 evaluates and keeps; null for the raw weights."""
    step2: dict[str, Any] = field(default_factory=dict)
    """Any other setting of stage 2 by flag name, '{"algo": "DQN", "n_step": 3}'; module: your own LitPolicy subclass."""

    def __post_init__(self) -> None:
        at_least("patience_2", self.patience_2, 1)


@dataclass
class LimitConfig:
    """limits"""

    total_timesteps: int | None = None
    """Env steps of a stage, rounded up to a whole iteration; other limits: --max_epochs, --max_steps (updates), --max_time."""

    def __post_init__(self) -> None:
        if self.total_timesteps is not None:
            at_least("total_timesteps", self.total_timesteps, 1)


@dataclass
class StageSettings:
    """Everything that one stage is built from."""

    algo: str
    algorithm: AlgorithmConfig
    evaluation: EvalConfig
    data: DataConfig
    limits: LimitConfig
    trainer: dict[str, Any]  # keyword arguments of pl.Trainer, max_steps (updates) among them
    module: str | None = None  # a user's own LitPolicy subclass, module:Class


@dataclass
class Settings:
    """Everything that a run is built from."""

    run: RunConfig
    env: EnvConfig
    stage1: StageSettings
    stage2: StageSettings | None = None


@dataclass
class Stage:
    """A stage that has run."""

    number: int
    policy: LitPolicy
    trainer: pl.Trainer
    best_path: Path | None
    best_score: float | None
    env_steps: int
    seconds: float
    stop_reason: str

    def summary(self) -> dict[str, Any]:
        """The stage's entry in summary.json; counts are the stage's own."""
        return {
            "best_score": self.best_score,
            "best_path": None if self.best_path is None else str(self.best_path),
            "env_steps": self.env_steps,
            "updates": self.policy.updates,
            "epochs": self.trainer.current_epoch,
            "seconds": self.seconds,
            "stop_reason": self.stop_reason,
        }


def run(settings: Settings) -> dict[str, Any]:
    """Learn (stage 1), refine (stage 2), test the best policy, and leave everything in the run's folder.

    Returns:
        What summary.json holds.

    Raises:
        UsageError: the settings cannot be used; nothing has been created.
    """
    started = time.perf_counter()
    prepare(settings.run)
    env, evaluation = settings.env, settings.stage1.evaluation
    data = ExperienceDataModule(
        **asdict(env),
        step_per_epoch=settings.stage1.data.step_per_epoch,
        episode_per_test=evaluation.episode_per_test,
        num_test_envs=evaluation.num_test_envs,
        test_episodes=evaluation.test_episodes,
        seed=settings.run.seed,
    )
    try:
        policy = build_policy(settings.stage1, data, 1)
        if settings.run.ckpt_path is not None:
            policy.load_weights(load(settings.run.ckpt_path)["state_dict"])
            policy.algorithm.start_from_policy()
        folder = make_folder(settings)
        write_params(folder, asdict(settings))
        last = stage1 = run_stage(policy, settings.stage1, data, folder, settings)
        stage2: Stage | None = None
        if settings.stage2 is not None:
            best = load_best(stage1)
            policy = build_policy(settings.stage2, data, 2)
            policy.start_from(best.best_policy)
            last = stage2 = run_stage(policy, settings.stage2, data, folder, settings)
        winner = load_best(last)
        save_best(last, folder / "best.ckpt")
        test = score(last.trainer, winner, data)
        summary = {
            "stage1": stage1.summary(),
            "stage2": None if stage2 is None else stage2.summary(),
            "test": {
                name.removeprefix("Test/").replace("return", "return_mean", 1)
                if name == "Test/return"
                else name.removeprefix("Test/"): value
                for name, value in test.items()
            },
            "best_path": str(folder / "best.ckpt"),
            "seconds": time.perf_counter() - started,
        }
        if last.trainer.is_global_zero:
            write_atomic(folder / "summary.json", summary_json(summary))
            draw_curve(folder)
            print(summary_table(summary))
        return summary
    finally:
        data.close()


def prepare(run: RunConfig) -> None:
    """Seed and threads of this process."""
    import torch

    torch.set_num_threads(run.num_threads)
    torch.set_flush_denormal(True)  # Adam's moments of dead units go denormal: 1.4 times slower otherwise
    pl.seed_everything(run.seed, verbose=False)


def build_policy(stage: StageSettings, data: ExperienceDataModule, number: int) -> LitPolicy:
    """The LitPolicy of a stage."""
    make = LitPolicy if stage.module is None else find_module(stage.module)
    max_steps = stage.trainer.get("max_steps", -1)
    return make(
        stage.algo,
        data.spaces,
        stage=number,
        average_weights=stage.evaluation.average_weights,
        max_updates=None if max_steps == -1 else max_steps,
        max_env_steps=stage.limits.total_timesteps,
        **{name: getattr(stage.algorithm, name) for name in asdict(stage.algorithm)},
    )


def find_module(path: str) -> type[LitPolicy]:
    """A user's LitPolicy subclass by import path.

    Raises:
        UsageError: it cannot be imported, or is none.
    """
    import importlib

    module, _, name = path.partition(":")
    try:
        found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise UsageError(f"module {path} cannot be imported: {error}") from None
    if not (isinstance(found, type) and issubclass(found, LitPolicy)):
        raise UsageError(f"module {path} is no subclass of lit_rl.LitPolicy")
    return found


def make_folder(settings: Settings) -> Path:
    """Make the run's folder, atomically; other ranks are told its name through the environment.

    Raises:
        UsageError: it exists already, or cannot be made.
    """
    run, base = settings.run, Path(settings.run.output_dir)
    told = os.environ.get("LIT_RL_FOLDER")
    if told is not None and os.environ.get("LOCAL_RANK", "0") != "0":
        return Path(told)
    stamp = datetime.now().strftime("%Y-%m-%d_%H-%M-%S")
    default = f"{run.algo.rpartition(':')[2]}_{settings.env.env.replace('/', '-').replace(':', '-')}_{stamp}"
    try:
        base.mkdir(parents=True, exist_ok=True)
        for attempt in range(1000):
            name = run.experiment_name or default + (f"_{attempt}" if attempt else "")
            try:
                (base / name).mkdir()
            except FileExistsError:
                if run.experiment_name:
                    raise UsageError(f"{base / name} exists already: choose another --experiment_name") from None
                continue
            os.environ["LIT_RL_FOLDER"] = str(base / name)
            return base / name
    except OSError as error:
        raise UsageError(f"--output_dir {base} cannot be written: {error.strerror}") from None
    raise UsageError(f"--output_dir {base} holds too many runs of this second")


def run_stage(
    policy: LitPolicy, stage: StageSettings, data: ExperienceDataModule, folder: Path, settings: Settings
) -> Stage:
    """Fit one stage under EarlyStopping and ModelCheckpoint on its monitor; stage 2 scores its starting weights first."""
    started, first = time.perf_counter(), data.env_steps
    number, home = policy.stage, folder / f"stage{policy.stage}"
    data.step_per_epoch = stage.data.step_per_epoch
    monitor, mode = monitored(stage.evaluation, number)
    name = monitor.rpartition("/")[2]
    best = ModelCheckpoint(
        home,
        f"epoch={{epoch}}-{name}={{{monitor}:.2f}}",
        monitor,
        mode=mode,
        save_weights_only=True,
        auto_insert_metric_name=False,
        save_on_train_epoch_end=False,
    )
    callbacks: list[pl.Callback] = []
    early = None
    if stage.evaluation.patience is not None:
        early = EarlyStopping(monitor, patience=stage.evaluation.patience, mode=mode, check_on_train_epoch_end=False)
        callbacks.append(early)
    stop = None
    if stage.evaluation.stop_return is not None:
        stop = StopAtReturn(f"{PREFIXES[number]}/return", stage.evaluation.stop_return)
        callbacks.append(stop)
    kwargs = {k: v for k, v in stage.trainer.items() if k != "max_steps"}
    if kwargs.get("enable_progress_bar") in (None, True) and not kwargs.get("barebones"):
        callbacks.append(EnvStepsBar())
    keeps = kwargs.get("enable_checkpointing") in (None, True) and not kwargs.get("fast_dev_run")
    callbacks.append(Records(folder, two_steps=settings.stage2 is not None))
    if keeps:
        callbacks += [best, LastCheckpoint(home, every=stage.data.checkpoint_every)]
    trainer = pl.Trainer(
        **kwargs
        | {
            "callbacks": [*callbacks, *(kwargs.get("callbacks") or [])],
            "plugins": [AtomicCheckpointIO(), *(kwargs.get("plugins") or [])],
            "logger": make_logger(settings.run.logger, folder, number),
            "default_root_dir": folder,
        }
    )
    best_path, best_score = None, None
    if number == 2:
        best_score = score(trainer, policy, data, "validate")[monitor]
        best_path = home / f"start-{name}={best_score:.2f}.ckpt"
        trainer.save_checkpoint(best_path, weights_only=True)
        if early is not None:
            early.best_score = early.best_score.new_tensor(best_score)
    if stop is None or best_score is None or not stop.met(best_score):
        trainer.fit(policy, datamodule=data)
    if best.best_model_path and best.best_model_score is not None:
        found = float(best.best_model_score)
        if best_score is None or (found > best_score if mode == "max" else found < best_score):
            best_path, best_score = Path(best.best_model_path), found
    reason = (
        "early stopping"
        if early is not None and early.stopped_epoch
        else "stop_return"
        if stop and stop.reached
        else "limit"
    )
    return Stage(
        number, policy, trainer, best_path, best_score, data.env_steps - first, time.perf_counter() - started, reason
    )


def monitored(evaluation: EvalConfig, number: int) -> tuple[str, Literal["max", "min"]]:
    """The metric that picks the best of a stage, and whether more or less of it is better."""
    monitor = evaluation.monitor or "Eval/return"
    if number == 2 and monitor.startswith("Eval/"):
        monitor = f"{PREFIXES[2]}/{monitor.removeprefix('Eval/')}"
    small = {"loss", "return_std", "mse"}
    mode = evaluation.monitor_mode
    if mode == "auto":
        mode = "min" if monitor.rpartition("/")[2] in small else "max"
    return monitor, mode


def load_best(stage: Stage) -> LitPolicy:
    """The stage's policy with its best weights; its last ones where nothing was kept."""
    if stage.best_path is not None:
        stage.policy.load_weights(load(stage.best_path)["state_dict"])
    return stage.policy


def save_best(stage: Stage, path: Path) -> None:
    """Keep the winner under its final name."""
    if stage.best_path is None:
        stage.trainer.save_checkpoint(path, weights_only=True)
    elif stage.trainer.is_global_zero:
        copy_atomic(stage.best_path, path)


def score(
    trainer: pl.Trainer, policy: LitPolicy, data: ExperienceDataModule, how: Literal["validate", "test"] = "test"
) -> dict[str, float]:
    """The metrics of one evaluation, or of the final test, of the policy as it is."""
    evaluate = trainer.validate if how == "validate" else trainer.test
    evaluate(policy, datamodule=data, verbose=False)
    return policy.reported
