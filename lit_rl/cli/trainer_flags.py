"""What happens to each parameter of ``pl.Trainer``: its name says nothing about manual optimization or two stages."""

from __future__ import annotations

import logging
import math
import os
import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal

from lit_rl.errors import UsageError

if TYPE_CHECKING:
    import pytorch_lightning as pl

NOT_SET: Any = object()


@dataclass(frozen=True)
class TrainerFlag:
    """What happens to one parameter, and its value where nobody typed it (NOT_SET: Lightning's own)."""

    how: Literal["passed", "ours", "refused"]
    note: str = ""  # ours: how; refused: what to use instead; passed: why the default is another
    default: Any = NOT_SET


PASSED = TrainerFlag("passed")

TRAINER_FLAGS: dict[str, TrainerFlag] = {
    "accelerator": PASSED,
    "strategy": PASSED,
    "devices": PASSED,
    "num_nodes": PASSED,
    "precision": PASSED,
    "logger": TrainerFlag("ours", "a field of RunConfig; loggers/make.py makes it in the run's folder"),
    "callbacks": TrainerFlag(
        "ours", "Callbacks beside ours: a class path, {class_path, init_args}, or a list of them."
    ),
    "fast_dev_run": PASSED,
    "max_epochs": TrainerFlag(
        "ours", "Epochs of a stage; by default the tuned number, else 100, without another limit."
    ),
    "min_epochs": PASSED,
    "max_steps": TrainerFlag("ours", "Updates of a stage, exactly; it ends with an evaluation. -1 for no limit."),
    "min_steps": PASSED,
    "max_time": PASSED,
    "limit_train_batches": PASSED,
    "limit_val_batches": PASSED,
    "limit_test_batches": PASSED,
    "limit_predict_batches": TrainerFlag("refused", "nothing is predicted; use --test_episodes or --episode_per_test"),
    "overfit_batches": TrainerFlag("refused", "experience is never the same twice; use --limit_train_batches"),
    "val_check_interval": PASSED,
    "check_val_every_n_epoch": PASSED,
    "num_sanity_val_steps": TrainerFlag("passed", "the first evaluation comes soon enough", 0),
    "log_every_n_steps": TrainerFlag("passed", "epochs have few iterations: 50 would hide what a subclass logs", 1),
    "enable_checkpointing": PASSED,
    "enable_progress_bar": PASSED,
    "enable_model_summary": TrainerFlag("passed", "a table of a small network hides the first lines", False),
    "accumulate_grad_batches": TrainerFlag("refused", "an update is one minibatch; use a larger --batch_size"),
    "gradient_clip_val": TrainerFlag("ours", "a field of the algorithm's Config; optimize/ clips"),
    "gradient_clip_algorithm": TrainerFlag("ours", "a field of the algorithm's Config; optimize/ clips"),
    "deterministic": PASSED,
    "benchmark": PASSED,
    "inference_mode": PASSED,
    "use_distributed_sampler": PASSED,
    "profiler": PASSED,
    "detect_anomaly": PASSED,
    "barebones": PASSED,
    "plugins": TrainerFlag("ours", "Plugins beside ours (which writes checkpoints): a class path, or a list of them."),
    "sync_batchnorm": PASSED,
    "reload_dataloaders_every_n_epochs": PASSED,
    "default_root_dir": TrainerFlag("ours", "The same as --output_dir: the run's folder is made in it."),
    "enable_autolog_hparams": PASSED,
    "model_registry": PASSED,
}


def own_defaults(typed: Mapping[str, Any]) -> dict[str, Any]:
    """Our values for the parameters that nobody typed (barebones forbids most), and the ranks that are there already.

    Raises:
        UsageError: other devices were typed than the processes that torchrun has started.
    """
    ranks = _torchrun_ranks(typed)
    if typed.get("barebones"):
        return ranks
    return ranks | {
        name: flag.default
        for name, flag in TRAINER_FLAGS.items()
        if flag.default is not NOT_SET and typed.get(name) is None
    }


def _torchrun_ranks(typed: Mapping[str, Any]) -> dict[str, int]:
    """Devices and nodes of a run that torchrun has started: left alone, Lightning makes each process a run of its own."""
    if "TORCHELASTIC_RUN_ID" not in os.environ:
        return {}
    world, here = int(os.environ["WORLD_SIZE"]), int(os.environ["LOCAL_WORLD_SIZE"])
    found = {"devices": here, "num_nodes": world // here}
    for name, value in found.items():
        if typed.get(name) not in (None, "auto", -1, "-1", value, str(value)):
            raise UsageError(
                f"--{name} {typed[name]} contradicts torchrun, which has started {here} processes on each of "
                f"{world // here} nodes: leave it out"
            )
    return found


def refuse(typed: Mapping[str, Any], lightning_defaults: Mapping[str, Any]) -> None:
    """Refuse by name what cannot work under manual optimization.

    Raises:
        UsageError: naming what to use instead.
    """
    for name, value in typed.items():
        flag = TRAINER_FLAGS.get(name, PASSED)
        if flag.how == "refused" and value != lightning_defaults.get(name):
            raise UsageError(f"--{name} is not supported: {flag.note}")
    precision = str(typed.get("precision"))
    if precision in ("16", "16-mixed", "16-true", "transformer-engine-float16"):
        raise UsageError(
            f"--precision {precision} is not supported, its loss scaling is missing: use bf16-mixed or 32-true"
        )
    _refuse_callbacks(typed.get("callbacks"))
    strategy = typed.get("strategy", "auto")
    name, start = _strategy(strategy)
    if re.search("spawn|fork|notebook", f"{name} {start}"):
        raise UsageError(f"--strategy {name} is not supported: what its workers learn stays in them; use ddp")


REFUSED_CALLBACKS = {
    "GradientAccumulationScheduler": "an update is one minibatch; use a larger --batch_size",
    "StochasticWeightAveraging": "it leaves manual optimization alone; use --average_weights",
    "WeightAveraging": "its files would hold the raw weights; use --average_weights",
    "BatchSizeFinder": "batches are made here; use --batch_size",
    "LearningRateFinder": "it needs automatic optimization; use --lr",
}


def _refuse_callbacks(callbacks: Any) -> None:
    for callback in callbacks if isinstance(callbacks, list) else [callbacks]:
        if isinstance(callback, dict):  # a class path, as it was typed
            names = [str(callback.get("class_path")).rpartition(".")[2].removeprefix("EMA")]
        else:
            names = [kind.__name__ for kind in type(callback).__mro__]
        for name in names:
            if name in REFUSED_CALLBACKS:
                raise UsageError(f"--callbacks {name} is not supported: {REFUSED_CALLBACKS[name]}")


def _strategy(strategy: Any) -> tuple[str, str]:
    """The name of a strategy and how it starts its processes."""
    if isinstance(strategy, str):
        return strategy, ""
    if isinstance(strategy, dict):
        init = strategy.get("init_args") or {}
        start = str(init.get("start_method", ""))
        return (
            f"{str(strategy.get('class_path')).rpartition('.')[2]}{f' with start_method {start}' if start else ''}",
            start,
        )
    start = str(getattr(strategy, "_start_method", ""))
    return f"{type(strategy).__name__}{f' with start_method {start}' if start else ''}", start


@dataclass(frozen=True)
class StageLength:
    """What is known beforehand of how long a stage can be."""

    iterations: int  # of an epoch
    env_steps: int  # of an iteration
    total_timesteps: int | None
    episodes: int  # of an evaluation


def check_lengths(trainer: Mapping[str, Any], length: StageLength, test_episodes: int) -> None:
    """Refuse what Lightning would refuse only when the run has begun, or divide by.

    Raises:
        UsageError: naming the flag and its range.
    """

    def out_of_range(name: str, need: str) -> UsageError:
        return UsageError(f"--{name} {_shown(trainer.get(name))} is out of range: {need}")

    every, interval = trainer.get("check_val_every_n_epoch", 1), trainer.get("val_check_interval")
    if every is not None and every < 1:
        raise out_of_range("check_val_every_n_epoch", "give at least 1, or null for --val_check_interval alone")
    if trainer.get("num_nodes", 1) < 1:
        raise out_of_range("num_nodes", "give at least 1")
    iterations = length.iterations
    of = {
        "train": (iterations, "iterations"),
        "val": (length.episodes, "episodes"),
        "test": (test_episodes, "episodes"),
    }
    for kind, (whole, what) in of.items():
        limit = trainer.get(f"limit_{kind}_batches")
        if isinstance(limit, float) and 0 < limit * whole < 1:
            raise out_of_range(f"limit_{kind}_batches", f"there are {whole} {what}; give 0 or at least {1 / whole:.3g}")
    limit = trainer.get("limit_train_batches")
    iterations = iterations if limit is None else _share(limit, iterations)
    counts = isinstance(interval, int) and not isinstance(interval, bool)  # of any share Lightning makes at least 1
    if interval is not None and counts and iterations and not trainer.get("fast_dev_run"):
        if interval < 1 or (interval > iterations and every is not None):
            raise out_of_range(
                "val_check_interval",
                f"an epoch has {iterations} iterations; give 1 to {iterations}; for more, --check_val_every_n_epoch N or null",
            )


def refuse_without_evaluation(trainer: Mapping[str, Any], length: StageLength) -> None:
    """Refuse what would leave ``--two_steps`` no evaluation to choose the best policy by.

    Raises:
        UsageError: naming the flag and what it would need.
    """

    def no(name: str, need: str) -> UsageError:
        return UsageError(f"--{name} {_shown(trainer.get(name))} leaves --two_steps no evaluation to choose by: {need}")

    if trainer.get("barebones"):
        raise no("barebones", "it keeps no checkpoint and logs nothing; leave it out")
    if trainer.get("enable_checkpointing") is False:
        raise UsageError("--enable_checkpointing false leaves --two_steps no best policy to go on from; leave it out")
    if trainer.get("fast_dev_run"):
        return  # one short epoch with an evaluation, whatever the limits are
    limit = trainer.get("limit_val_batches")
    if limit is not None and _share(limit, length.episodes) == 0:
        raise no("limit_val_batches", f"give at least 1 of the {length.episodes} episodes")
    limit = trainer.get("limit_train_batches")
    iterations = length.iterations if limit is None else _share(limit, length.iterations)
    if iterations == 0:
        raise no("limit_train_batches", f"give at least 1 of the {length.iterations} iterations")
    for name in ("max_epochs", "max_steps"):
        if trainer.get(name) == 0:
            raise no(name, "give at least 1")
    max_time = duration(trainer.get("max_time"))
    if max_time == 0:
        raise no("max_time", "give more time")
    epochs = math.inf if trainer.get("max_epochs", -1) == -1 else trainer["max_epochs"]
    if length.total_timesteps is not None:
        epochs = min(epochs, math.ceil(length.total_timesteps / (iterations * length.env_steps)))
    every = trainer.get("check_val_every_n_epoch", 1)
    if every is not None and every > epochs:
        raise no("check_val_every_n_epoch", f"the stage ends after {epochs:g} epochs; give at most that")
    interval = trainer.get("val_check_interval")
    if isinstance(interval, int) and interval != 1:
        most = iterations * (epochs if every is None else 1)
        if not 0 < interval <= most:
            where = "a stage" if every is None else "an epoch"
            raise no("val_check_interval", f"{where} has {most:g} iterations; give 1 to {most:g}")
    time_interval = duration(interval)
    if time_interval is not None and max_time is not None and time_interval > max_time:
        raise no("val_check_interval", "it is longer than --max_time")


def _share(limit: float, whole: int) -> int:
    """How many batches Lightning makes of a limit_*_batches."""
    return min(limit, whole) if isinstance(limit, int) else int(limit * whole)


def _shown(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def duration(value: Any) -> float | None:
    """Seconds of a time as Lightning takes it ("DD:HH:MM:SS", timedelta, dict); None for anything else."""
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, dict):
        return timedelta(**value).total_seconds()
    if isinstance(value, str) and re.fullmatch(r"\d+:\d+:\d+:\d+", value):
        days, hours, minutes, seconds = map(int, value.split(":"))
        return 60.0 * (60 * (24 * days + hours) + minutes) + seconds
    return None


def world_size(trainer: Mapping[str, Any]) -> int:
    """The number of ranks that these flags make, as far as they tell beforehand."""
    if "TORCHELASTIC_RUN_ID" in os.environ:
        return int(os.environ["WORLD_SIZE"])
    devices, accelerator = trainer.get("devices", "auto"), trainer.get("accelerator", "auto")
    if isinstance(devices, str) and "," in devices:
        devices = [part for part in devices.split(",") if part.strip()]
    if isinstance(devices, list):
        count = len(devices)
    elif str(devices).isdigit():
        count = int(devices)
    else:
        count = _all_devices(accelerator)
    return max(1, count) * max(1, int(trainer.get("num_nodes", 1)))


def _all_devices(accelerator: Any) -> int:
    import torch

    return torch.cuda.device_count() if accelerator in ("auto", "gpu", "cuda") and torch.cuda.is_available() else 1


def try_out(trainer: Mapping[str, Any]) -> pl.Trainer:
    """A Trainer of these arguments, to be dropped: what Lightning refuses is refused before a folder is made.

    Raises:
        UsageError: in Lightning's words.
    """
    import pytorch_lightning as pl
    from lightning_fabric.utilities.exceptions import MisconfigurationException

    from lit_rl.checkpoint import AtomicCheckpointIO

    # A strategy's object remembers the Trainer it was given to.
    kwargs = {k: v for k, v in trainer.items() if k not in ("strategy", "accelerator") or isinstance(v, str)}
    plugins = kwargs.get("plugins") or []
    kwargs["plugins"] = [AtomicCheckpointIO(), *(plugins if isinstance(plugins, list) else [plugins])]
    kwargs["callbacks"] = list(trainer.get("callbacks") or [])  # Lightning adds its own to the list that it is given
    logger = logging.getLogger("pytorch_lightning.utilities.rank_zero")
    disabled, logger.disabled = logger.disabled, True
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            made = pl.Trainer(**kwargs | {"logger": False})
    except (MisconfigurationException, ValueError, TypeError, RuntimeError, ImportError, OverflowError) as error:
        raise UsageError(f"Lightning's Trainer: {' '.join(str(error).split())}") from None
    finally:
        logger.disabled = disabled
    environment = getattr(made.strategy, "cluster_environment", None)
    if made.num_nodes > 1 and "MASTER_ADDR" not in os.environ:
        if environment is None or not environment.creates_processes_externally:
            raise UsageError(
                f"--num_nodes {made.num_nodes} needs a cluster that starts a process on each node: use torchrun or SLURM, "
                "or set MASTER_ADDR, MASTER_PORT and NODE_RANK"
            )
    return made
