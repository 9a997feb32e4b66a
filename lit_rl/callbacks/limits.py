"""When a fit ends: at a number of updates or env steps, or because somebody outside wants it to."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence

import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import Timer

from lit_rl.callbacks.stop import end_fit
from lit_rl.collectives import reduced


class Limits:
    """The limits of a stage, beside those of the Trainer.

    Args:
        updates: that end it; None for no limit.
        env_steps: made in it, that end it after their iteration; None for no limit.

    Attributes:
        stop_wanted: from outside, at any time: end the fit after this iteration.
        quit_wanted: end the run, as SIGTERM asks for.
    """

    def __init__(self, updates: int | None, env_steps: int | None) -> None:
        self.updates, self.env_steps = updates, env_steps
        self.stop_wanted = self.quit_wanted = False
        self._pace = Pace()

    def begin(self, trainer: pl.Trainer, updates: int, env_steps: int) -> None:
        """A fit begins, of a stage that has made so many."""
        self._pace = Pace()
        if self._reached(updates, env_steps):
            end_fit(trainer)

    def end_iteration(self, trainer: pl.Trainer, updates: int, env_steps: int, device: torch.device) -> None:
        """End the fit, or the run, where it is time to."""
        # none must do so alone: the other ranks would wait for it for ever
        stop, quit_ = reduced([float(self.stop_wanted), float(self.quit_wanted)], "max", device)
        if quit_:
            trainer._signal_connector.received_sigterm = True
        if stop or self._reached(updates, env_steps):
            end_fit(trainer)

    def no_more(self, updates: int) -> bool:
        """Whether these are all the updates that there may be."""
        return self.updates is not None and updates >= self.updates

    def _reached(self, updates: int, env_steps: int) -> bool:
        return self.no_more(updates) or (self.env_steps is not None and env_steps >= self.env_steps)

    def seconds_left(self, trainer: pl.Trainer, updates: int, env_steps: int) -> float:
        """Of this fit, at the pace of its updates so far; 0 before there is one."""
        done = trainer.fit_loop.epoch_loop.total_batch_idx + 1
        epochs, batches = trainer.max_epochs, trainer.num_training_batches
        limits = [
            (done, None if epochs in (None, -1) else epochs * batches),
            (updates, self.updates),
            (env_steps, self.env_steps),
        ]
        if not updates:
            return 0.0
        timed = [c.time_remaining() for c in trainer.callbacks if isinstance(c, Timer)]  # type: ignore[attr-defined]
        return min([self._pace.seconds_left(limits), *(seconds for seconds in timed if seconds is not None)])


class Pace:
    """Counts that grow with the run, and when they were first seen."""

    def __init__(self) -> None:
        self._began: tuple[float, list[int]] | None = None

    def seconds_left(self, limits: Sequence[tuple[int, float | None]]) -> float:
        """Until the first of these counts reaches its limit (None for no limit); 0 while nothing is known."""
        now = time.perf_counter()
        if self._began is None:
            self._began = now, [count for count, _ in limits]
            return 0.0
        began, first = self._began
        left = math.inf
        for (count, limit), count_then in zip(limits, first, strict=True):
            if limit is not None:
                left = min(left, (limit - count) * (now - began) / max(count - count_then, 1))
        return left
