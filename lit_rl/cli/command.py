"""The small subcommands: a dataclass of settings for each, its words and its flags."""

from __future__ import annotations

import dataclasses
from typing import Any, Generic, TypeVar

from lit_rl.cli.arguments import take_apart
from lit_rl.cli.flags import Flags, members
from lit_rl.errors import UsageError

Settings = TypeVar("Settings")


class Command(Generic[Settings]):
    """A subcommand whose flags are the fields of a dataclass.

    Args:
        name: of the command.
        settings: the dataclass; its docstring says what the command does.
        words: what stands without a flag: the name of a required field, and how the usage shows it; a list of texts takes
            any number.
    """

    def __init__(self, name: str, settings: type[Settings], words: tuple[str, str] | None = None) -> None:
        self.name, self.settings = name, settings
        self.words = words
        shown = f" {words[1]}" if words else ""
        self.flags = Flags(name, f"lit-rl {name}{shown} [--<flag> VALUE ...]\n\n{settings.__doc__}")
        self.flags.add("flags", settings, skip={words[0]} if words else set())
        self.flags.write_help()

    def parse(self, argv: list[str]) -> Settings | None:
        """The settings that were typed; None where ``--help`` was, which has been printed.

        Raises:
            UsageError: a word or flag too many or too few, or a value of the wrong type.
        """
        switches = [name for name, hint in self.flags.hints.items() if bool in members(hint)]
        line = take_apart(argv, ("help",), switches)
        if line.actions:
            print(self.flags.format_help(), end="")
            return None
        values = self.flags.check(dict(line.flags))
        if self.words is None:
            line.refuse_words()
        else:
            values[self.words[0]] = self._checked_words(line.words)
        return self.settings(**values)

    def _checked_words(self, words: list[str]) -> Any:
        assert self.words is not None
        field = next(f for f in dataclasses.fields(self.settings) if f.name == self.words[0])  # type: ignore[arg-type]
        many = str(field.type).startswith("list")
        if not words or (len(words) > 1 and not many):
            told = "nothing" if not words else " ".join(words)
            raise UsageError(f"lit-rl {self.name} takes {self.words[1]}, and was given {told}")
        return words if many else words[0]
