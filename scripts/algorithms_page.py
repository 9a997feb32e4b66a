"""Writes the part of docs/algorithms.md that says what the code says: papers, differences from them, and flags.

    python scripts/algorithms_page.py

A test holds the page against it, and the tables above it against what the algorithms do, cell by cell.
"""

from __future__ import annotations

import inspect
import sys
from dataclasses import fields
from pathlib import Path

from lit_rl.algorithms import MODULES, find_algorithm
from lit_rl.algorithms.base import AlgorithmConfig
from lit_rl.cli.parser import parser_of

PAGE = Path(__file__).parents[1] / "docs" / "algorithms.md"
MARK = "<!-- from here on written by scripts/algorithms_page.py -->\n"


def generated() -> str:
    """The sections of all algorithms."""
    shared = AlgorithmConfig()
    sections = ["## Flags that all of them have\n", table(settings(shared), "DQN", shared)]
    for name in MODULES:
        config = find_algorithm(name).Config()
        own = [flag for flag in settings(config) if getattr(config, flag) != getattr(shared, flag, None)]
        own += [flag for flag in settings(config) if not hasattr(shared, flag) and flag not in own]
        sections += [f"## {name}\n", about(name), table(own, name, config)]
    return "\n".join(sections)


def settings(config: AlgorithmConfig) -> list[str]:
    """The names of the settings of a config."""
    return [field.name for field in fields(config) if field.init]


def about(name: str) -> str:
    """The docstring of an algorithm's module, as Markdown: every paper, and what is different from it."""
    module = inspect.getmodule(find_algorithm(name))
    assert module is not None and module.__doc__
    return module.__doc__.replace("``", "`").replace("\nDifferences ", "\n\nDifferences ").strip() + "\n"


def table(names: list[str], name: str, config: AlgorithmConfig) -> str:
    """Some of an algorithm's flags, in the order of --help, with the values in ``config`` and what their help says."""
    parser = parser_of(find_algorithm(name))
    actions = {action.dest: action for action in parser._parser._actions}
    rows = ["| flag | default | what it is |", "|---|---|---|"]
    for flag in [flag for flag in parser.groups["algorithm"] if flag in names]:
        text = " ".join((actions[flag].help or "").replace("%%", "%").split())
        meaning = text.rpartition(" (")[0].rstrip(".")  # without type and default
        default = str(getattr(config, flag)).replace("None", "null").replace("True", "true").replace("False", "false")
        rows.append(f"| `--{flag}` | `{default}` | {meaning} |")
    return "\n".join(rows) + "\n"


def main() -> int:
    head = PAGE.read_text("utf-8").split(MARK)[0]
    PAGE.write_text(head + MARK + "\n" + generated(), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
