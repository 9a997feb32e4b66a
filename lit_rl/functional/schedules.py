"""Schedules: a constant, or `[[env_steps, value], ...]` read as a line through the points, flat before and after."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from lit_rl.errors import UsageError

Schedule = float | list[list[float]]


def check_schedule(name: str, schedule: Schedule) -> None:
    """Raise UsageError (a ValueError) that names `name` unless `schedule` can be read by `value_at`.

    Allowed: one finite number, or `[[env_steps, value], ...]` with env steps >= 0 and strictly rising, all finite.
    """
    if _is_number(schedule):
        return
    allowed = "a finite number, or [[env_steps, value], ...] with env_steps >= 0 and rising"
    pairs = isinstance(schedule, (list, tuple)) and all(
        isinstance(point, (list, tuple)) and len(point) == 2 and all(map(_is_number, point)) for point in schedule
    )
    if not pairs or not schedule:
        raise UsageError(f"{name} is {schedule!r}; it must be {allowed}")
    steps = _points(schedule)[0]
    if steps[0] < 0 or any(later <= earlier for earlier, later in pairwise(steps)):
        raise UsageError(f"{name} has its points at the env steps {steps}; it must be {allowed}")


def check_schedule_range(name: str, schedule: Schedule, low: float = -math.inf, high: float = math.inf) -> None:
    """Raise UsageError that names the flag ``name`` unless `schedule` can be read and all its values lie in [low, high]."""
    check_schedule(name, schedule)
    values = [value for _, value in schedule] if isinstance(schedule, list) else [schedule]
    if not all(low <= value <= high for value in values):
        raise UsageError(f"--{name} {schedule} is out of range: it must lie between {low:g} and {high:g}")


def value_at(schedule: Schedule, env_steps: int) -> float:
    """The value after `env_steps` environment steps."""
    if isinstance(schedule, (int, float)):
        return float(schedule)
    return float(np.interp(env_steps, *_points(schedule)))


def values_along(schedule: Schedule, env_steps: int, stride: int, count: int) -> npt.NDArray[np.float32]:
    """The values (count,) after `env_steps` environment steps, `stride` more, ...; (1,) where they are one and the same."""
    still = standing_value(schedule, env_steps)
    if still is not None:
        return np.array([still], np.float32)
    assert isinstance(schedule, list)
    return np.interp(env_steps + stride * np.arange(count), *_points(schedule)).astype(np.float32)


def standing_value(schedule: Schedule, env_steps: int) -> float | None:
    """The value from `env_steps` environment steps on, where it does not change any more; else None."""
    if isinstance(schedule, (int, float)):
        return schedule
    return schedule[-1][1] if env_steps >= schedule[-1][0] else None


def final_value(schedule: Schedule) -> float:
    """The value at which the schedule stays after its last point."""
    return float(schedule if isinstance(schedule, (int, float)) else schedule[-1][1])


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _points(schedule: Any) -> tuple[list[float], list[float]]:
    return [point[0] for point in schedule], [point[1] for point in schedule]
