"""``lit-rl plot``: the curves of one run or many in one picture."""

from __future__ import annotations

import sys

from lit_rl.cli.command import Command
from lit_rl.cli.settings import PlotSettings


def main(argv: list[str]) -> int:
    """Draw, and say where the picture is and what it lacks."""
    settings = Command("plot", PlotSettings, ("runs", "RUN [RUN ...]")).parse(argv)
    if settings is None:
        return 0
    from lit_rl.loggers.curves import draw_curves, find_runs, without_return

    print(draw_curves(settings.runs, settings.out))
    for run in without_return(find_runs(settings.runs)):
        print(f"{run} is not in it: no evaluation has played episodes; train with --env ID", file=sys.stderr)
    return 0
