"""Flags that are the fields of dataclasses: their types, defaults, help and checks, for every subcommand.

Imports nothing heavy, so that ``--help`` of a small command is there at once.
"""

from __future__ import annotations

import argparse
import copy
import dataclasses
import difflib
import re
import types
import typing
from collections.abc import Collection, Iterable, Mapping
from datetime import timedelta
from typing import Any, Literal

import jsonargparse
import numpy as np

from lit_rl.errors import UsageError

MOST_DIGITS = 18  # of a whole number


class Flags:
    """The flags of a command.

    Attributes:
        groups: the names of the flags by group.
        hints: the type of each flag.
        defaults: the value of each where nobody gives it.
        also: flags that are no settings, for messages on unknown names.
    """

    also: tuple[str, ...] = ("help",)

    def __init__(self, command: str, usage: str) -> None:
        self.command = command
        self.groups: dict[str, list[str]] = {}
        self.hints: dict[str, Any] = {}
        self.defaults: dict[str, Any] = {}
        self._parser = jsonargparse.ArgumentParser(
            prog=f"lit-rl {command}",
            usage=usage,
            formatter_class=_Formatter,
            exit_on_error=False,
            default_env=False,
            allow_abbrev=False,
        )

    def add(self, group: str, config: type[Any], title: str | None = None, skip: Collection[str] = frozenset()) -> None:
        """The fields of a dataclass but those to ``skip``, in a group of their own."""
        fields = [field for field in dataclasses.fields(config) if field.init and field.name not in skip]
        hints = typing.get_type_hints(config)
        for field in fields:
            self.hints[field.name] = hints[field.name]
            factory = field.default_factory
            self.defaults[field.name] = field.default if factory is dataclasses.MISSING else factory()
        self.groups[group] = [field.name for field in fields]
        # The setting is jsonargparse's own and global; its default is False, as it is left here.
        jsonargparse.set_parsing_settings(docstring_parse_attribute_docstrings=True)
        try:
            told = self._parser.add_argument_group(title or group)
            told.add_class_arguments(config, None, as_group=False, skip=set(skip))
        finally:
            jsonargparse.set_parsing_settings(docstring_parse_attribute_docstrings=False)

    def write_help(self) -> None:
        """Give every flag the help that people see."""
        for action in self._parser._actions:
            action.option_strings = [name for name in action.option_strings if not name.endswith("+")]
            if action.dest.endswith(".help"):
                action.help = argparse.SUPPRESS
            elif action.dest in self.hints:
                kinds = members(self.hints[action.dest])
                action.nargs = "?" if bool in kinds else None
                action.metavar = "true|false" if kinds == [bool] else "VALUE"
                default, text = self.help_of(action.dest, action.help or "")
                kind = describe(self.hints[action.dest])
                kind = "" if kinds == [bool] or len(kind) > 80 else f"{kind}; "
                action.help = f"{text} ({kind}default {shown_value(default)})".replace("%", "%%")

    def help_of(self, name: str, text: str) -> tuple[Any, str]:
        """The default to show for a flag, and what its docstring says."""
        return self.defaults[name], text

    def format_help(self) -> str:
        """The help of all flags, by group."""
        return self._parser.format_help()

    def group_of(self, name: str) -> str | None:
        """The group that a flag stands in; None for an unknown name."""
        return next((group for group, names in self.groups.items() if name in names), None)

    def check(
        self, values: Mapping[str, Any], origin: Mapping[str, str] | str = "", prefix: str = "--"
    ) -> dict[str, Any]:
        """The values by flag name, each in its type; classes stay class paths.

        Args:
            values: raw ones, strings as they were typed included; True for a flag that was typed without a value.
            origin: where they stand, for messages; for each, or one for all.
            prefix: how messages begin a name.

        Raises:
            UsageError: an unknown name, with the nearest ones, or a value of the wrong type.
        """
        checked = {}
        for name, value in values.items():
            where = origin if isinstance(origin, str) else origin.get(name, "")
            if name not in self.hints:
                raise UsageError(self.unknown(name, f"{prefix}{name}{where}"))
            checked[name] = self.checked(name, value, f"{prefix}{name}", where)
        return checked

    def unknown(self, name: str, shown: str) -> str:
        """What to say of a name that there is no flag for."""
        return f"unknown setting {shown}; {nearest(name, [*self.hints, *self.also], self.command)}"

    def checked(self, name: str, value: Any, shown: str, where: str) -> Any:
        """One value in its type; ``shown`` and ``where`` are what messages call it."""
        hint = self.hints[name]
        kinds = members(hint)
        value = as_plain(value)
        if value is True and bool not in kinds and where:
            raise UsageError(f"{shown} true{where} is not allowed: give {describe(hint)}")
        if value is True and bool not in kinds:
            raise UsageError(f"{shown}{where} needs a value: {describe(hint)}")
        if isinstance(value, str) and timedelta in kinds and re.fullmatch(r"[\d:]+:[\d:]+", value):
            return value  # YAML reads 10:00:00:00 as a number
        if isinstance(value, str) and {str, int} <= set(kinds) and re.fullmatch(r"-?\d+", value):
            if len(value) > MOST_DIGITS:
                raise UsageError(f"{shown} {value[:MOST_DIGITS]}...{where} is not allowed: give {describe(hint)}")
            return int(value)
        try:
            if (value is None and type(None) not in kinds) or (value == "" and str not in kinds):
                raise TypeError("null")
            namespace = self._parser.parse_object({name: copy.deepcopy(value)}, defaults=False)
            found = namespace.as_dict()[name]
            if found is None and type(None) not in kinds:
                raise TypeError("null")
        except (argparse.ArgumentError, TypeError, ValueError, RecursionError) as error:
            given = "null" if value is None else repr(value) if isinstance(value, str) else shown_value(value)
            raise UsageError(f"{shown} {given}{where} is not allowed: give {describe(hint)}{_detail(error)}") from None
        return found


def nearest(name: str, known: Iterable[str], command: str = "train") -> str:
    """A sentence with the known names that look most like ``name``."""
    name = name.replace("-", "_")
    names = list(known)
    begin = sorted((n for n in names if n.startswith(name)), key=len) if len(name) > 1 else []
    close = list(dict.fromkeys([*begin, *difflib.get_close_matches(name, names, 3, 0.6)]))[:3]
    return f"nearest: {', '.join(close)}" if close else f"lit-rl {command} --help lists the known ones"


def describe(hint: Any) -> str:
    """A type in words: "a number or null"."""
    return " or ".join(dict.fromkeys(map(_describe_one, members(hint))))


_WORDS = {int: "a whole number", float: "a number", str: "a text", type(None): "null", timedelta: "DD:HH:MM:SS"}


def _describe_one(hint: Any) -> str:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint is bool:
        return "true or false"
    if hint in _WORDS:
        return _WORDS[hint]
    if origin is Literal:
        return " or ".join(map(str, arguments))
    if origin is list:
        return f"[{describe(arguments[0])}, ...]"
    if hint is dict or origin is dict:
        return "{name: value, ...}"
    return getattr(hint, "__name__", str(hint))


def members(hint: Any) -> list[Any]:
    """The types that a union allows."""
    union = typing.get_origin(hint) in (typing.Union, types.UnionType)
    return [m for argument in typing.get_args(hint) for m in members(argument)] if union else [hint]


def as_plain(value: Any) -> Any:
    """Numbers and arrays of numpy's as Python's own."""
    if isinstance(value, dict):
        return {key: as_plain(part) for key, part in value.items()}
    if type(value) in (list, tuple):
        return type(value)(map(as_plain, value))
    return value.tolist() if isinstance(value, np.generic | np.ndarray) else value


def is_plain(value: Any) -> bool:
    if isinstance(value, dict):
        return all(map(is_plain, value.values()))
    if isinstance(value, list | tuple):
        return all(map(is_plain, value))
    return value is None or isinstance(value, bool | int | float | str)


def _detail(error: Exception) -> str:
    """What jsonargparse found wrong with a class path or its arguments."""
    lines = [line.strip(" -") for line in str(error).splitlines()[1:]]
    found = [line for line in lines if re.match("Option|Import|Unexpected|No module|Problem|Key", line)]
    return f" ({' '.join(dict.fromkeys(found))})" if found else ""


def shown_value(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return f"{value:g}" if isinstance(value, float) else str(value)


class _Formatter(argparse.HelpFormatter):
    def __init__(self, prog: str, **settings: Any) -> None:
        super().__init__(prog, max_help_position=28, **settings)
