"""The errors that people see: one line that says what was given, what is allowed and what to type."""


class UsageError(ValueError):
    """A setting, file or space that cannot be used; the command line prints it as one line and exits with 2."""


class EnvError(RuntimeError):
    """An environment raised or broke Gymnasium's rules; the message names the env, its step and the cause."""


class NumericsError(RuntimeError):
    """A NaN or infinite observation, reward, loss or gradient; the message names the tensor and where it was seen."""


class RankError(RuntimeError):
    """Another process of the run died; the message names it. ``quiet``: a third process prints it."""

    def __init__(self, message: str, quiet: bool = False) -> None:
        super().__init__(message)
        self.quiet = quiet


def printable(text: str) -> str:
    """The text with escapes for what a terminal would obey or could not show; lines stay lines."""
    return "".join(c if c.isprintable() or c == "\n" else ascii(c)[1:-1] for c in text)
