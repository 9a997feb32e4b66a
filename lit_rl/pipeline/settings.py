"""Everything that a run is built from."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Literal

from lit_rl.algorithms.base import AlgorithmConfig
from lit_rl.data.config import DataConfig, EvalConfig, at_least
from lit_rl.data.offline.inputs import Input
from lit_rl.envs.config import EnvConfig
from lit_rl.errors import UsageError
from lit_rl.functional.schedules import Schedule, check_schedule_range
from lit_rl.loggers.make import LoggerKind
from lit_rl.optimize import Compile


@dataclass
class RunConfig:
    """run"""

    algo: str = "DQN"
    """Algorithm: a name, or your own as module:Class. Alias: --run."""
    seed: int = 0
    """Seed of everything: weights, environments, exploration, sampling."""
    experiment_name: str | None = None
    """Name of the run's folder; <ALGO>_<ENV>_<date>_<time> by default."""
    output_dir: str = "output"
    """Folder that holds the runs."""
    ckpt_path: str | None = None
    """Start from the weights of this checkpoint or of a run's best.ckpt, counters at 0; last: go on with a run (--resume)."""
    restore: str | None = None
    """Go on in a new run from all that a full checkpoint holds, counters and experience too; a run's folder: its newest one."""
    exact_resume: bool = False
    """Begin each epoch with fresh episodes, so that a run that was killed and resumed ends with the same bits (one device)."""
    num_threads: int | Literal["auto"] = "auto"
    """Threads of torch for one operation; auto: 1, and up to 8 for pictures."""
    compile: Compile = "auto"
    """Updates as native code: auto where it is built already, with a build beside a long run; true waits for it; false never."""
    matmul_precision: Literal["highest", "high", "medium"] = "highest"
    """Precision of float32 matrix products: medium may round to bfloat16, and is faster for networks of 256 x 256 on."""
    logger: LoggerKind = "tensorboard"
    """Lightning logger; result.json and progress.csv are written whatever it is."""
    log_level: Literal["debug", "info", "warning", "error"] = "warning"
    """What Lightning says of its own: everything from this level on."""
    hooks: dict[str, Any] | str | None = None
    """Your own lit_rl.data.hooks.Hooks, module:Class, or {module:Class: its arguments}; told of every episode and batch."""
    tuned: bool = True
    """Use the tuned settings of this algorithm and environment where there are any; typed flags win."""

    def __post_init__(self) -> None:
        if not 0 <= self.seed < 2**32:
            raise UsageError(f"--seed {self.seed} is out of range: it must lie between 0 and {2**32 - 1}")
        if self.restore is not None and self.ckpt_path is not None:
            raise UsageError(
                f"--restore {self.restore} and --ckpt_path {self.ckpt_path} contradict each other: give one of them"
            )
        if self.num_threads != "auto" and not 1 <= self.num_threads <= 1024:
            raise UsageError(
                f"--num_threads {self.num_threads} is out of range: it must lie between 1 and 1024, or be auto"
            )
        if not self.output_dir or not self.output_dir.isprintable():
            raise UsageError(
                f"--output_dir {self.output_dir!r} must be the path of a folder, without control characters"
            )
        name = self.experiment_name
        if name is not None and (
            name.strip() != name or name in ("", ".", "..") or any(c in "/\\" or not c.isprintable() for c in name)
        ):
            raise UsageError(
                f"--experiment_name {name!r} must be the name of a folder, without slashes, control characters, "
                "or blanks around it"
            )


@dataclass
class Stage2Config:
    """stage 2"""

    two_steps: bool = False
    """Refine the best policy of stage 1 in a second stage with a Trainer of its own."""
    lr_2: float | None = None
    """Learning rate of stage 2; by default 0.3 times the last one of stage 1 (0.1 times the first, where the last is 0), or
    0.3 times the first one of stage 2's own algorithm, where that is another."""
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
class RefineConfig:
    """stage 2: keeping what stage 1 learned"""

    critic_warmup: int | None = None
    """Updates at the start of stage 2 that move the critic alone; by default 200 where it starts anew, else 0."""
    critic_warmup_lr: float | None = None
    """Learning rate in that time; by default the one that stage 2's algorithm begins with where nothing was learned before."""
    warmup_steps: int | None = None
    """Env steps that the policy of stage 1 makes to fill an empty replay buffer; by default learning_starts."""
    anchor: Schedule | None = None
    """Weight of the KL divergence from stage 1's policy: a number, or [[env_step of stage 2, value], ...]; by default 0.2 that
    falls to 0 in half of stage 2 where stage 1 learned from data, else 0."""

    offline_fraction: float | None = None
    """Share of each minibatch of stage 2 that is drawn from the data of stage 1, in [0, 1); by default 0.5 where stage 1
    learned from data and stage 2 has a replay buffer, else 0."""

    def __post_init__(self) -> None:
        if self.offline_fraction is not None and not 0 <= self.offline_fraction < 1:
            raise UsageError(
                f"--offline_fraction {self.offline_fraction} is out of range: it must be at least 0 and below 1"
            )
        for name in ("critic_warmup", "warmup_steps", "critic_warmup_lr"):
            if getattr(self, name) is not None:
                at_least(name, getattr(self, name), 0)
        if self.anchor is not None:
            check_schedule_range("anchor", self.anchor, 0.0)


@dataclass
class KeepConfig:
    """keeping the best"""

    monitor: str | None = None
    """Metric that picks the best checkpoint and stops early: Eval/return (default) or any other; stage 2 reads Step2Eval/."""
    monitor_mode: Literal["auto", "max", "min"] = "auto"
    """Whether more or less of the monitored metric is better; auto knows which."""
    patience: int | None = None
    """Evaluations without a better score that end stage 1; by default it runs to its limit."""
    stop_return: float | None = None
    """End a stage as soon as an evaluation's mean return reaches this."""
    input_evaluation: list[Literal["is", "wis"]] | None = None
    """Estimates of the return that recorded episodes must allow, Eval/is_return and Eval/wis_return; null takes what there is."""
    average_weights: float | None = None
    """Evaluate, keep and test a running average of stage 1's weights with this decay per update, in (0, 1)."""
    checkpoint_every: int = 1
    """Epochs between two full checkpoints (last.ckpt, replay buffer included)."""
    videos: int = 0
    """Episodes of every evaluation that are filmed into the run's folder, videos/ (extra: video)."""

    def __post_init__(self) -> None:
        at_least("videos", self.videos, 0)
        at_least("checkpoint_every", self.checkpoint_every, 1)
        if self.patience is not None:
            at_least("patience", self.patience, 1)
        if self.stop_return is not None and not math.isfinite(self.stop_return):
            raise UsageError(f"--stop_return {self.stop_return} must be a finite number")
        if self.average_weights is not None and not 0 < self.average_weights < 1:
            raise UsageError(
                f"--average_weights {self.average_weights} is out of range: it must lie between 0 and 1, or be null"
            )


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
    data: DataConfig
    evaluation: EvalConfig
    keep: KeepConfig
    limits: LimitConfig
    trainer: dict[str, Any]  # keyword arguments of pl.Trainer, max_steps (updates) among them
    module: str | None = None  # a user's own LitPolicy subclass, module:Class
    refine: RefineConfig = field(default_factory=RefineConfig)  # of stage 2
    mixed_in: Input | None = None  # data that stage 2 draws a share of its minibatches from


@dataclass
class Settings:
    """Everything that a run is built from."""

    run: RunConfig
    env: EnvConfig
    stage1: StageSettings
    stage2: StageSettings | None = None
    flat: dict[str, Any] = field(default_factory=dict)  # every setting by flag name, for a run that goes on
    resume: bool = False  # go on with the experiment of that name
