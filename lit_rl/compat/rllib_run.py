"""RLlib's flags that say how a run is kept and ended, as settings of ours."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from lit_rl.compat.rllib_keys import Values
from lit_rl.compat.rllib_values import clock
from lit_rl.errors import UsageError


@dataclass
class RunFlags:
    """Flags of theirs that say how a run is kept and ended."""

    stop: dict[str, Any] = field(default_factory=dict)
    """When to end, '{"Eval/return": 475, "env_steps": 100000, "time_total_s": 600}'; training_iteration: epochs."""
    checkpoint_freq: int = 0
    """Epochs between two checkpoints that are kept, in checkpoints/; 0 keeps the best and the last alone."""
    checkpoint_at_end: bool = True
    """Keep a full checkpoint at the end of training: stage1/last.ckpt, which cannot be turned off."""
    keep_checkpoints_num: int | None = None
    """How many checkpoints of checkpoint_freq are kept; null for all."""
    checkpoint_score_attr: str = "training_iteration"
    """What these are kept by: training_iteration (the newest), or a metric; less is better with min- before it."""
    local_dir: str | None = None
    """Folder that holds the runs: --output_dir."""


RUN_FLAGS = tuple(one.name for one in fields(RunFlags))
STOP = {
    "episode_reward_mean": "stop_return",
    "evaluation/episode_reward_mean": "stop_return",
    "Eval/return": "stop_return",
    "timesteps_total": "total_timesteps",
    "env_steps": "total_timesteps",
    "training_iteration": "max_epochs",
    "time_total_s": "max_time",
    "num_steps_trained": "max_steps",
    "updates": "max_steps",
}


def translate_run(values: Mapping[str, Any], two_steps: bool = False) -> Values:
    """:class:`RunFlags` as settings of ours.

    Args:
        values: those that were given.
        two_steps: whether there is a second stage, whose metrics have another name.

    Raises:
        UsageError: a stop criterion that there is none of here, or a number out of range.
    """
    found: Values = {}
    stop = values.get("stop") or {}
    if not isinstance(stop, dict):
        raise UsageError(f"--stop {stop} is not allowed: give {{name: value, ...}}")
    for name, value in stop.items():
        if name not in STOP:
            raise UsageError(f"--stop: there is no {name} to stop at; there are {', '.join(STOP)}")
        try:
            limit = clock(value) if name == "time_total_s" else value
        except UsageError as error:
            raise UsageError(f"--stop: {name} {error}") from None
        if found.setdefault(STOP[name], limit) != limit:
            raise UsageError(
                f"--stop: {name} {value} and another value of the same limit contradict each other: give one"
            )
    if values.get("local_dir") is not None:
        found["output_dir"] = values["local_dir"]
    every, kept = values.get("checkpoint_freq") or 0, values.get("keep_checkpoints_num")
    for name, number in (("checkpoint_freq", every), ("keep_checkpoints_num", 1 if kept is None else kept)):
        low = 0 if name == "checkpoint_freq" else 1
        if isinstance(number, bool) or not isinstance(number, int) or number < low:
            raise UsageError(f"--{name} {number} is not allowed: give a whole number of at least {low}")
    if "checkpoint_at_end" in values:
        found |= _at_end(values["checkpoint_at_end"])
    if not every and ("keep_checkpoints_num" in values or "checkpoint_score_attr" in values):
        raise UsageError(
            "--keep_checkpoints_num and --checkpoint_score_attr are about those of --checkpoint_freq: give it"
        )
    if every:
        score = str(values.get("checkpoint_score_attr", RunFlags.checkpoint_score_attr))
        found["callbacks"] = [_keeping(every, kept, score)]
        if two_steps:
            found["step2"] = {"callbacks": [_keeping(every, kept, score, "Step2Eval/")]}
    return found


def _at_end(given: Any) -> Values:
    if not isinstance(given, bool):
        raise UsageError(f"--checkpoint_at_end {given} is not allowed: give true, or leave it out")
    if not given:
        raise UsageError(
            "--checkpoint_at_end false is not allowed: last.ckpt is what a run goes on from; for no checkpoint at all give "
            "--enable_checkpointing false"
        )
    return {"enable_checkpointing": True}


SCORES = {"training_iteration": "epoch", "episode_reward_mean": "Eval/return", "timesteps_total": "epoch"}


def _keeping(every: int, kept: int | None, score: str, prefix: str = "Eval/") -> Values:
    """Lightning's ModelCheckpoint for these flags, as a class path."""
    metric = score.removeprefix("min-")
    monitor = SCORES.get(metric, metric)
    arguments = {
        "filename": "checkpoint-{epoch}",
        "auto_insert_metric_name": False,
        "every_n_epochs": every,
        "save_top_k": -1 if kept is None else kept,
        "monitor": monitor.replace("Eval/", prefix),
        "mode": "min" if score.startswith("min-") else "max",
        "save_on_train_epoch_end": True,  # where a run goes on from
    }
    return {"class_path": "pytorch_lightning.callbacks.ModelCheckpoint", "init_args": arguments}
