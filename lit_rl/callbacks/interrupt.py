"""Ctrl-C and SIGTERM: the first Ctrl-C ends a stage and the run goes on, the second ends the run."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterator
from types import FrameType, TracebackType
from typing import Any

import pytorch_lightning as pl
from pytorch_lightning.callbacks import Callback
from pytorch_lightning.utilities import rank_zero_only

from lit_rl.callbacks.stop import end_fit

SECONDS_TO_QUIT = 3.0  # between two Ctrl-C that mean: now
CTRL_C, TERMINATED = 130, 143  # exit codes


class Quit(BaseException):
    """Raised by a signal to end the run; neither Lightning nor an env's guard takes it for something else."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class Interrupts(Callback):
    """The signals of a run, from ``with`` on, and the callback that ends its stages.

    Ctrl-C while a stage runs or one is still to come (``stages_left``) ends that stage after its iteration, with an
    evaluation; a second one within three seconds or before the stage has ended raises Quit, and so does one at any
    other time. SIGTERM raises Quit; while a stage is fitted, Lightning ends the fit at the next point where that is safe.
    """

    def __init__(self, stages: int) -> None:
        self.stages_left = stages
        self.code: int | None = None  # what the process exits with, once that is clear
        self._began = False  # a stage has
        self._fitting = False
        self._module: Any = None  # the LitPolicy that is fitted
        self._asked: float | None = None  # when Ctrl-C asked for the end of a stage that has not ended yet
        self._last = float("-inf")
        self._pid = os.getpid()
        self._old: dict[int, Any] = {}
        self._pipe: tuple[int, int] | None = None  # one byte for each signal, however many come during one call into C

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():
            for number, handler in ((signal.SIGINT, self._on_ctrl_c), (signal.SIGTERM, self._on_sigterm)):
                self._old[number] = signal.getsignal(number)
                signal.signal(number, handler)
            self._pipe = os.pipe()
            for end in self._pipe:
                os.set_blocking(end, False)
            signal.set_wakeup_fd(self._pipe[1], warn_on_full_buffer=False)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        for number, handler in self._old.items():
            signal.signal(number, handler)
        if self._pipe is not None:
            signal.set_wakeup_fd(-1)
            for end in self._pipe:
                os.close(end)

    def _on_ctrl_c(self, number: int, frame: FrameType | None) -> None:
        if os.getpid() != self._pid or self.code is not None:
            return  # a worker that has just been forked, or a run that is ending
        now, before = time.monotonic(), self._last
        self._last = now
        again = self._asked is not None or now - before < SECONDS_TO_QUIT or self._arrived() > 1
        if again or not self._began or not self.stages_left:
            self._quit(CTRL_C)
        self._asked = now
        if self._module is not None:
            self._module.limits.stop_wanted = True
        rank_zero_only(_say)(
            "Ctrl-C: this stage ends after an evaluation, and the run goes on from the best so far; again to quit now"
        )

    def _arrived(self) -> int:
        """How many Ctrl-C have come since this was last asked."""
        with contextlib.suppress(BlockingIOError):
            return os.read(self._pipe[0], 1024).count(signal.SIGINT) if self._pipe else 1
        return 1

    def _on_sigterm(self, number: int, frame: FrameType | None) -> None:
        if os.getpid() != self._pid:
            os._exit(TERMINATED)
        if self._fitting:
            self.code = TERMINATED  # Lightning's handler, which called this one, ends the fit
        elif self.code is None:
            self._quit(TERMINATED)

    def _on_sigterm_of_ranks(self, number: int, frame: FrameType | None) -> None:
        """In place of Lightning's handler, which sends the others a message that they may not be waiting for."""
        if os.getpid() != self._pid:
            os._exit(TERMINATED)
        self.code = TERMINATED
        self._module.limits.quit_wanted = True

    def _quit(self, code: int) -> None:
        self.code = code
        raise Quit(code)

    def stage_ended(self) -> bool:
        """Told when a stage is over; whether Ctrl-C had asked for that."""
        asked, self._asked = self._asked is not None, None
        self.stages_left -= 1
        return asked

    def _end_if_asked(self, trainer: pl.Trainer) -> None:
        if self.code == CTRL_C:
            raise Quit(CTRL_C)  # something took the first one for an error of its own
        if self._asked is not None and trainer.world_size == 1:  # ranks agree at the end of an iteration
            end_fit(trainer)

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._began = self._fitting = True
        self._module = pl_module
        self._module.limits.stop_wanted = self._asked is not None
        if trainer.world_size > 1 and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, self._on_sigterm_of_ranks)
        self._end_if_asked(trainer)

    def on_train_batch_end(self, trainer: pl.Trainer, *_: Any) -> None:
        self._end_if_asked(trainer)

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if trainer.state.fn == "fit" and not trainer.sanity_checking:
            self._end_if_asked(trainer)

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._fitting = False
        if self.code is not None:  # it came after the last point where Lightning looks
            raise Quit(self.code)

    def on_exception(self, trainer: pl.Trainer, pl_module: pl.LightningModule, exception: BaseException) -> None:
        self._fitting = False


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Around a fit that somebody calls from Python: Ctrl-C raises KeyboardInterrupt, of which Lightning makes an exit with 1."""

    def quit_(number: int, frame: FrameType | None) -> None:
        raise Quit(CTRL_C)

    ours = (
        threading.current_thread() is threading.main_thread()
        and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    )
    if ours:
        signal.signal(signal.SIGINT, quit_)
    try:
        yield
    except Quit:
        raise KeyboardInterrupt from None
    finally:
        if ours:
            signal.signal(signal.SIGINT, signal.default_int_handler)


def _say(text: str) -> None:
    os.write(2, f"\nlit-rl: {text}\n".encode())  # print may be in the middle of a line of its own
