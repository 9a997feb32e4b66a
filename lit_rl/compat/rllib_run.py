"""RLlib's flags that say how a run is kept and ended, as settings of ours."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

from lit_rl.compat.rllib_keys import Values
from lit_rl.compat.rllib_values import clock
from lit_rl.data.config import at_least
from lit_rl.errors import UsageError


@dataclass
class RunFlags:
    """Flags of theirs that say how a run is kept and ended."""

    stop: dict[str, Any] = field(default_factory=dict)
    """When to end, '{"Eval/return": 475, "env_steps": 100000, "time_total_s": 600}'; training_iteration: epochs."""
    checkpoint_freq: int = 0
    """Epochs between two checkpoints that are kept, in checkpoints/; 0 keeps the best and the last alone."""
    checkpoint_at_end: bool | None = None
    """Keep a full checkpoint at the end of training: stage1/last.ckpt, which is always kept; false is refused."""
    keep_checkpoints_num: int | None = None
    """How many checkpoints of checkpoint_freq are kept; null for all."""
    checkpoint_score_attr: str | None = None
    """What these are kept by: training_iteration (the newest; null too), or a metric; less is better with min- before it."""
    local_dir: str | None = None
    """Folder that holds the runs: --output_dir."""

    def __post_init__(self) -> None:
        for name, value in self.stop.items():
            _check_limit(name, value)
        at_least("checkpoint_freq", self.checkpoint_freq, 0)
        if self.keep_checkpoints_num is not None:
            at_least("keep_checkpoints_num", self.keep_checkpoints_num, 1)
        if not self.checkpoint_freq and (self.keep_checkpoints_num, self.checkpoint_score_attr) != (None, None):
            raise UsageError(
                "--keep_checkpoints_num and --checkpoint_score_attr are about those of --checkpoint_freq: give it"
            )
        if self.checkpoint_at_end is False:
            raise UsageError(
                "--checkpoint_at_end false is not allowed: last.ckpt is what a run goes on from; for no checkpoint at all "
                "give --enable_checkpointing false"
            )


def _check_limit(name: str, value: Any) -> None:
    """Refuse what there is no stop at, or a limit that is none."""
    if name not in STOP:
        raise UsageError(f"--stop: there is no {name} to stop at; there are {', '.join(STOP)}")
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise UsageError(f"--stop: {name} {value!r} is not allowed: give a number")
    if STOP[name] not in ("stop_return", "max_time") and value < 1:
        raise UsageError(f"--stop: {name} {value} is not allowed: give at least 1")


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


def translate_run(flags: RunFlags, two_steps: bool = False) -> Values:
    """:class:`RunFlags` as settings of ours.

    Args:
        flags: those that were given.
        two_steps: whether there is a second stage, whose metrics have another name.

    Raises:
        UsageError: two limits of the same, or seconds out of range.
    """
    found: Values = {}
    for name, value in flags.stop.items():
        try:
            limit = clock(value) if name == "time_total_s" else value
        except UsageError as error:
            raise UsageError(f"--stop: {name} {error}") from None
        if found.setdefault(STOP[name], limit) != limit:
            raise UsageError(
                f"--stop: {name} {value} and another value of the same limit contradict each other: give one"
            )
    if flags.local_dir is not None:
        found["output_dir"] = flags.local_dir
    if flags.checkpoint_at_end:
        found["enable_checkpointing"] = True
    if flags.checkpoint_freq:
        score = "training_iteration" if flags.checkpoint_score_attr is None else flags.checkpoint_score_attr
        about = flags.checkpoint_freq, flags.keep_checkpoints_num, score
        found["callbacks"] = [_keeping(*about)]
        if two_steps:
            found["step2"] = {"callbacks": [_keeping(*about, "Step2Eval/")]}
    return found


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
