"""The errors that people see: one line that says what was given, what is allowed and what to type."""

from __future__ import annotations

import traceback


class UsageError(ValueError):
    """A setting, file or space that cannot be used; the command line prints it as one line and exits with 2."""


class EnvError(RuntimeError):
    """An environment raised or broke Gymnasium's rules; the message names the env, its step and the cause."""


class NumericsError(RuntimeError):
    """A NaN or infinite observation, reward, loss or gradient; the message names the tensor and where it was seen."""


class AlgorithmError(RuntimeError):
    """A user's algorithm raised in an update; the message names algorithm, update, env step and cause, with its traceback."""


class RankError(RuntimeError):
    """Another process of the run died; the message names it. ``quiet``: a third process prints it."""

    def __init__(self, message: str, quiet: bool = False) -> None:
        super().__init__(message)
        self.quiet = quiet


def printable(text: str) -> str:
    """The text with escapes for what a terminal would obey or could not show; lines stay lines."""
    return "".join(c if c.isprintable() or c == "\n" else ascii(c)[1:-1] for c in text)


def own_traceback(error: BaseException) -> str:
    """What another's code raised, with the part of the traceback that is its own: all but where it was called."""
    called = error.__traceback__ and error.__traceback__.tb_next
    return "".join(traceback.format_exception(type(error), error, called)).rstrip()


OWN = (UsageError, EnvError, NumericsError, AlgorithmError, RankError)


def in_one_line(error: BaseException) -> str:
    """What another's code raised, and where: ``KeyError: 'x' (my_algos.py, line 3)``."""
    frames = traceback.extract_tb(error.__traceback__)
    said = " ".join(f"{type(error).__name__}: {error}".split()).removesuffix(": ")
    if isinstance(error, ImportError | SyntaxError) or not frames:  # says where by itself
        return said
    return f"{said} ({frames[-1].filename.replace(chr(92), '/').rpartition('/')[2]}, line {frames[-1].lineno})"
