"""``lit-rl plot``: the curves of one run or many in one picture."""

from __future__ import annotations

from lit_rl.cli.command import Command
from lit_rl.cli.settings import PlotSettings


def main(argv: list[str]) -> int:
    """Draw, and say where the picture is."""
    settings = Command("plot", PlotSettings, ("runs", "RUN [RUN ...]")).parse(argv)
    if settings is None:
        return 0
    from lit_rl.loggers.curves import draw_curves

    print(draw_curves(settings.runs, settings.out))
    return 0
