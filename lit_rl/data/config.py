"""Settings of collecting and evaluating."""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

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

    def __post_init__(self) -> None:
        for name in ("episode_per_test", "num_test_envs", "test_episodes"):
            at_least(name, getattr(self, name), 1)


def divided(settings: Mapping[str, Any], owner: type[Any], *kinds: type[Any]) -> tuple[Any, ...]:
    """Settings as records of these kinds, each with those that are its fields.

    Raises:
        UsageError: a setting that none of them has; the message calls what was given it ``owner``.
    """
    names = {kind: [field.name for field in fields(kind)] for kind in kinds}
    known = [name for own in names.values() for name in own]
    for name in settings:
        if name not in known:
            near = ", ".join(difflib.get_close_matches(name, known) or known)
            raise UsageError(f"{owner.__name__} has no setting {name}; nearest: {near}")
    return tuple(kind(**{name: settings[name] for name in own if name in settings}) for kind, own in names.items())
