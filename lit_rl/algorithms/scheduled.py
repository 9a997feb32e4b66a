"""Scheduled numbers as the tensors that losses take."""

from __future__ import annotations

from torch import Tensor

from lit_rl.functional.schedules import Schedule, value_at


class Scheduled:
    """A schedule's value as a tensor, for a loss: the same tensor as long as the value stands still."""

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        self._last: tuple[float, Tensor] | None = None

    def at(self, env_steps: int, like: Tensor) -> Tensor:
        """The value (,) after `env_steps` environment steps, of the dtype and on the device of `like`."""
        value, last = value_at(self.schedule, env_steps), self._last
        if last is None or last[0] != value or last[1].dtype != like.dtype or last[1].device != like.device:
            last = self._last = value, like.new_tensor(value)
        return last[1]
