"""Settings of collecting and evaluating."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

from lit_rl.errors import UsageError

MOST = 2**31 - 1  # of anything that is counted


def at_least(name: str, value: float, low: float) -> None:
    """Refuse a number below ``low`` or beyond all counting, infinity and NaN by name."""
    if value == math.inf:
        raise UsageError(f"--{name} {value} is out of range: it must be a finite number")
    if not value >= low:
        raise UsageError(f"--{name} {value} is out of range: it must be at least {low:g}")
    if value > MOST:
        raise UsageError(f"--{name} {value} is out of range: it must be at most {MOST}")


@dataclass
class DataConfig:
    """data"""

    step_per_epoch: int = 10_000
    """Env steps of an epoch, over all envs and ranks (with --input: updates, by default 1,000); one evaluation ends each."""
    checkpoint_every: int = 1
    """Epochs between two full checkpoints (last.ckpt, replay buffer included)."""
    input: dict[str, Any] | str | None = None
    """Learn from recorded episodes: a .jsonl(.gz) file, a glob, minari:<id>, minari-path:<folder>, {source: probability}."""
    validation_fraction: float = 0.1
    """Share of the recorded episodes, in [0, 1), that is held out to score by."""
    skip_bad_episodes: bool = False
    """Drop recorded episodes that cannot be learned from, and count them, instead of refusing the data set."""
    window_mb: float = 512.0
    """MiB of memory for the recorded episodes that minibatches are drawn from; a larger data set streams through."""
    output: str | None = None
    """Record what the run collects, as episodes: a new .jsonl or .jsonl.gz file, minari:<id> or minari-path:<folder>."""

    return_window: int = 1
    """Training episodes that Train/return and Train/length are means of, at least: older ones where an epoch ends fewer."""

    def __post_init__(self) -> None:
        at_least("return_window", self.return_window, 1)
        at_least("step_per_epoch", self.step_per_epoch, 1)
        at_least("checkpoint_every", self.checkpoint_every, 1)
        if not 0 <= self.validation_fraction < 1:
            raise UsageError(
                f"--validation_fraction {self.validation_fraction} is out of range: it must be at least 0 and below 1"
            )
        at_least("window_mb", self.window_mb, 0.01)


@dataclass
class EvalConfig:
    """evaluation"""

    episode_per_test: int = 30
    """Episodes of one evaluation; their seeds are fixed, so every evaluation plays the same episodes."""
    num_test_envs: int = 10
    """Vectorised environments that play evaluation and test episodes; changes the speed, never a result."""
    test_episodes: int = 100
    """Episodes of the final test, on seeds that no evaluation uses."""
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

    videos: int = 0
    """Episodes of every evaluation that are filmed into the run's folder, videos/ (extra: video)."""

    def __post_init__(self) -> None:
        at_least("videos", self.videos, 0)
        for name in ("episode_per_test", "num_test_envs", "test_episodes"):
            at_least(name, getattr(self, name), 1)
        if self.patience is not None:
            at_least("patience", self.patience, 1)
        if self.stop_return is not None and not math.isfinite(self.stop_return):
            raise UsageError(f"--stop_return {self.stop_return} must be a finite number")
        if self.average_weights is not None and not 0 < self.average_weights < 1:
            raise UsageError(
                f"--average_weights {self.average_weights} is out of range: it must lie between 0 and 1, or be null"
            )
