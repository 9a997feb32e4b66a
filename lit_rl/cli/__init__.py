"""The command line: ``lit-rl train --two_steps``, and the same run from Python, ``lit_rl.train(two_steps=True)``.

``arguments`` reads what was typed, ``parser`` knows every flag, ``resolve`` turns both into the pipeline's Settings.
"""

from __future__ import annotations

import difflib
import importlib
import os
import select
import sys
from typing import Any

from lit_rl import __version__
from lit_rl.errors import AlgorithmError, EnvError, NumericsError, RankError, UsageError, printable

COMMANDS = {
    "train": ("lit_rl.cli.train_command", "learn a policy, refine it (--two_steps), test it, keep the best"),
    "rollout": ("lit_rl.cli.rollout_command", "play episodes with a trained policy, score them, film them, keep them"),
    "list": ("lit_rl.cli.list_command", "the algorithms, their spaces, and the tuned settings"),
    "plot": ("lit_rl.cli.plot_command", "draw the curves of one run or many"),
    "export": ("lit_rl.cli.export_command", "write a trained policy for use without Python"),
}


def main(argv: list[str] | None = None) -> int:
    """Run ``lit-rl <command> ...``.

    Returns:
        The exit code: 0, 1 where the run failed while it ran, 2 where it could not be started as it was asked for, 130
        after the Ctrl-C that ended it, or 141, as shells have it, where nobody reads its output any more (``| head``).
        SIGTERM exits with 143.
    """
    argv = sys.argv[1:] if argv is None else argv
    try:
        _find_own_modules()
        code = _dispatch(argv)
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        if not _nobody_reads():
            raise
        return 141
    except UsageError as error:
        _print_error(" ".join(str(error).split()))
        return 2
    except (AlgorithmError, EnvError, NumericsError) as error:
        _print_error(str(error))
        return 1
    except RankError as error:
        if not error.quiet:
            print(f"lit-rl: error: {printable(str(error))}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def _find_own_modules() -> None:
    """Let the console script find a user's own my_algos.py as ``python train.py`` does."""
    try:
        here = os.getcwd()
    except OSError as error:
        raise UsageError(f"the current folder cannot be used: {error.strerror}") from None
    if here not in sys.path:
        sys.path.append(here)


def _nobody_reads() -> bool:
    """Whether stdout is a pipe without a reader; what is left of it then goes nowhere, without another error at exit."""
    out = sys.stdout.fileno()
    poll = select.poll()
    poll.register(out, 0)
    gone = bool(poll.poll(0))  # nothing but the pipe's end is asked about
    if gone:
        os.dup2(os.open(os.devnull, os.O_WRONLY), out)
    return gone


def _print_error(message: str) -> None:
    """Print an error once, however many ranks it happened on."""
    message = printable(message)
    if "RANK" in os.environ or "LOCAL_RANK" in os.environ:
        from lit_rl.pipeline.ranks import what_to_print

        said = what_to_print(message)
    else:
        said = message
    if said is not None:
        print(f"lit-rl: error: {said}", file=sys.stderr)


def train(**settings: Any) -> Any:
    """Train as ``lit-rl train`` does, with the flag names as keywords: ``train(two_steps=True, lr=1e-3)``.

    Values may be what flags cannot say: a function that makes the env, callbacks, a strategy. ``config`` is a file, a
    dict, or a list of them, and loses to the other keywords.

    Returns:
        What summary.json holds; a list of that where it was several runs (``num_samples``, ``file``).

    Raises:
        UsageError: settings that cannot be used; nothing has been created.
        EnvError: the environment raised or broke Gymnasium's rules.
        NumericsError: a NaN or infinite observation, reward, loss or weight.
        AlgorithmError: an algorithm of the user's own raised.
        RankError: another process of the run died.
    """
    from lit_rl.cli.arguments import from_python
    from lit_rl.cli.train_command import run_request

    return run_request(from_python(settings))


def _dispatch(argv: list[str]) -> int:
    command = argv[0] if argv else "--help"
    if command == "--version" or (command in COMMANDS and "--version" in argv):
        print(__version__)
        return 0
    if command in COMMANDS:
        run: Any = importlib.import_module(COMMANDS[command][0]).main
        return int(run(argv[1:]))
    if command in ("-h", "--help"):
        print(_usage())
        return 0 if argv else 2
    near = difflib.get_close_matches(command, COMMANDS, 1)
    hint = f"did you mean {near[0]}? " if near else "give the command first: lit-rl train --two_steps. "
    raise UsageError(f"unknown command {command}; {hint}Commands: {', '.join(COMMANDS)}")


def _usage() -> str:
    lines = [f"  {name:<8} {text}" for name, (_, text) in COMMANDS.items()]
    return "\n".join(
        ["usage: lit-rl <command> [--flag value ...]", "", *lines, "", "lit-rl <command> --help has the flags"]
    )
