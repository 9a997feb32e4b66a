"""The small subcommands: a dataclass of settings for each, its words and its flags."""

from __future__ import annotations

import dataclasses
from typing import Any, Generic, TypeVar

from lit_rl.cli.flags import Flags, members
from lit_rl.errors import UsageError

Settings = TypeVar("Settings")

RUN = "run"  # RLlib's and our other name of --algo


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
        words, flags = self._split(argv)
        if words is None:
            print(self.flags.format_help(), end="")
            return None
        values = self.flags.check(flags)
        if self.words is None:
            if words:
                raise UsageError(f"unexpected argument {words[0]}: settings are given as --name value")
        else:
            values[self.words[0]] = self._checked_words(words)
        return self.settings(**values)

    def _split(self, argv: list[str]) -> tuple[list[str] | None, dict[str, Any]]:
        """Words and flags; no words at all where help is asked for."""
        tokens, words = list(argv), []
        flags: dict[str, Any] = {}
        while tokens:
            token = tokens.pop(0)
            if token in ("-h", "--help"):
                return None, {}
            if not token.startswith("--") or token == "--":
                words.append(token)
                continue
            name, equals, value = token[2:].partition("=")
            name = name.replace("-", "_")
            name = "algo" if name == RUN else name
            given: Any = value
            is_bool = bool in members(self.flags.hints.get(name))
            if not equals and name.startswith("no_") and bool in members(self.flags.hints.get(name[3:])):
                name, given = name[3:], False
            elif not equals and is_bool and (not tokens or tokens[0] not in ("true", "false")):
                given = True
            elif not equals:
                given = tokens.pop(0) if tokens and not tokens[0].startswith("--") else True
            flags[name] = given
        return words, flags

    def _checked_words(self, words: list[str]) -> Any:
        assert self.words is not None
        field = next(f for f in dataclasses.fields(self.settings) if f.name == self.words[0])  # type: ignore[arg-type]
        many = str(field.type).startswith("list")
        if not words or (len(words) > 1 and not many):
            told = "nothing" if not words else " ".join(words)
            raise UsageError(f"lit-rl {self.name} takes {self.words[1]}, and was given {told}")
        return words if many else words[0]
