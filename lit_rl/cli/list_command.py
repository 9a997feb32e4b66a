"""``lit-rl list``: what there is."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from lit_rl.cli.command import Command
from lit_rl.cli.settings import ListSettings


def main(argv: list[str]) -> int:
    """Print the tables."""
    if Command("list", ListSettings).parse(argv) is not None:
        print(listing(), end="")
    return 0


def listing() -> str:
    """The algorithms and the zoo, as text."""
    from lit_rl.algorithms import MODULES, find_algorithm
    from lit_rl.zoo import entries

    algorithms = [(name, find_algorithm(name)) for name in MODULES]
    rows = [(name, _first_line(algorithm.__doc__), ", ".join(actions_of(algorithm))) for name, algorithm in algorithms]
    zoo = [
        (name, env, _text(found.get("reference")), _text(found.get("source")))
        for name in MODULES
        for env, found in entries(name).items()
    ]
    return "\n".join(
        [
            *_table(("--algo", "what it is", "actions"), rows),
            "",
            "Observations: Box (vectors and images), Discrete, MultiDiscrete, MultiBinary, Dict and Tuple of these, for all.",
            "Your own algorithm: --algo my_package.my_module:MyAlgorithm",
            "",
            *_table(("--algo", "--env", "reference", "source of the reference"), zoo),
            "",
        ]
    )


def actions_of(algorithm: Any) -> list[str]:
    """The kinds of action space that an algorithm takes, found by making it for each."""
    from gymnasium import spaces as gs

    from lit_rl.algorithms import make_algorithm
    from lit_rl.envs.spaces import Spaces
    from lit_rl.errors import UsageError

    kinds = (gs.Discrete(2), gs.MultiDiscrete([2, 3]), gs.MultiBinary(2), gs.Box(-1, 1, (2,)))
    found = []
    for kind in kinds:
        try:
            make_algorithm(algorithm, Spaces(gs.Box(-1, 1, (3,)), kind), {})
        except UsageError:
            continue
        found.append(type(kind).__name__)
    return found


def _first_line(text: str | None) -> str:
    return (text or "").strip().splitlines()[0].rstrip(".")


def _text(value: Any) -> str:
    return "-" if value is None else str(value)


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    lines = [header, *rows]
    widths = [max(len(line[i]) for line in lines) for i in range(len(header))]
    shown = ["  ".join(cell.ljust(w) for cell, w in zip(line, widths, strict=True)).rstrip() for line in lines]
    return [shown[0], "  ".join("-" * w for w in widths), *shown[1:]]
