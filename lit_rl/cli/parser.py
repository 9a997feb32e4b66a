"""Every flag of ``lit-rl train``: from the config dataclasses, the algorithm's own Config and pl.Trainer's signature."""

from __future__ import annotations

import argparse
import copy
import dataclasses
import difflib
import inspect
import re
import types
import typing
from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any, Literal

import jsonargparse
import numpy as np
import pytorch_lightning as pl

from lit_rl.algorithms import MODULES, algorithm_name, algorithms_with
from lit_rl.algorithms.base import Algorithm
from lit_rl.cli.trainer_flags import NOT_SET, PASSED, TRAINER_FLAGS
from lit_rl.data.config import DataConfig, EvalConfig
from lit_rl.envs.config import EnvConfig
from lit_rl.errors import UsageError, in_one_line
from lit_rl.pipeline import LimitConfig, RunConfig, Stage2Config

TRAINER = "Trainer"
OTHER_FLAGS = ("help", "version", "config", "print_config", "run", "resume")


class FlagParser:
    """The flags that belong to an algorithm: their types, defaults, help and checks.

    Attributes:
        groups: the names of the flags by group.
        hints: the type of each flag.
        defaults: the value of each where nobody gives it; Lightning's own for pl.Trainer's.
    """

    def __init__(self, algorithm: type[Algorithm]) -> None:
        self.algorithm = algorithm
        self.algo = algorithm_name(algorithm)
        self.configs: dict[str, type[Any]] = {
            "run": RunConfig,
            "stage 2": Stage2Config,
            "environment": EnvConfig,
            "data": DataConfig,
            "evaluation": EvalConfig,
            "algorithm": algorithm.Config,
            "limits": LimitConfig,
        }
        self.groups: dict[str, list[str]] = {}
        self.hints: dict[str, Any] = {}
        self.defaults: dict[str, Any] = {}
        self._parser = jsonargparse.ArgumentParser(
            prog="lit-rl train",
            usage="lit-rl train [--two_steps] [--env ID] [--algo NAME] [--config FILE] [--<flag> VALUE ...]",
            formatter_class=_Formatter,
            exit_on_error=False,
            default_env=False,
            allow_abbrev=False,
        )
        self._add_other_flags()
        for group, config in self.configs.items():
            try:
                self._add_dataclass(group, config)
            except Exception as error:
                if group != "algorithm" or isinstance(error, UsageError):
                    raise
                raise UsageError(f"--algo {self.algo}: its Config cannot be read: {in_one_line(error)}") from error
        self._add_trainer()
        self._write_help()

    def _add_other_flags(self) -> None:
        add = self._parser.add_argument
        config = "Settings from a YAML or JSON file, or inline: '{\"gamma\": 0.98}'. A later one wins, a flag over all."
        add("--config", metavar="FILE", help=config)
        add(
            "--print_config", action="store_true", help="Print all settings as YAML that --config reads back, and exit."
        )
        add("--resume", action="store_true", help="Go on with the run named by --experiment_name: --ckpt_path last.")
        add("--version", action="store_true", help="Print the version and exit.")

    def _add_dataclass(self, group: str, config: type[Any]) -> None:
        fields = [field for field in dataclasses.fields(config) if field.init]
        taken = [field.name for field in fields if field.name in self.hints]
        if taken:
            raise UsageError(
                f"--algo {self.algo} has a setting named {taken[0]}, which is a flag of every run: rename it"
            )
        hints = typing.get_type_hints(config)
        for field in fields:
            self.hints[field.name] = hints[field.name]
            factory = field.default_factory
            self.defaults[field.name] = field.default if factory is dataclasses.MISSING else factory()
            if self.defaults[field.name] is dataclasses.MISSING:
                raise UsageError(f"--algo {self.algo} has a setting without a default: {field.name}")
        self.groups[group] = [field.name for field in fields]
        title = f"{group} {self.algo}" if group == "algorithm" else group
        # The setting is jsonargparse's own and global; its default is False, as it is left here.
        jsonargparse.set_parsing_settings(docstring_parse_attribute_docstrings=True)
        try:
            self._parser.add_argument_group(title).add_class_arguments(config, None, as_group=False)
        finally:
            jsonargparse.set_parsing_settings(docstring_parse_attribute_docstrings=False)

    def _add_trainer(self) -> None:
        """The parameters of pl.Trainer that are no fields of ours already."""
        parameters = list(inspect.signature(pl.Trainer.__init__).parameters.values())[1:]
        taken = {p.name for p in parameters if p.name in self.hints}
        parameters = [p for p in parameters if p.name not in taken]
        for parameter in parameters:
            self.hints[parameter.name] = parameter.annotation
            self.defaults[parameter.name] = parameter.default
        self.groups[TRAINER] = [p.name for p in parameters]
        group = self._parser.add_argument_group(f"Lightning's {TRAINER}, in each stage")
        group.add_class_arguments(pl.Trainer, None, as_group=False, skip=set(taken))

    def _write_help(self) -> None:
        for action in self._parser._actions:
            action.option_strings = [name for name in action.option_strings if not name.endswith("+")]
            if action.dest.endswith(".help"):
                action.help = argparse.SUPPRESS
            elif action.dest in self.hints:
                kinds = _members(self.hints[action.dest])
                action.nargs = "?" if bool in kinds else None
                action.metavar = "true|false" if kinds == [bool] else "VALUE"
                action.help = self._help(action.dest, action.help or "").replace("%", "%%")
                if action.dest == "algo":
                    action.option_strings = [*action.option_strings, "--run"]

    def _help(self, name: str, text: str) -> str:
        default = self.defaults[name]
        if name in self.groups[TRAINER]:
            flag = TRAINER_FLAGS.get(name, PASSED)
            default = default if flag.default is NOT_SET else flag.default
            text = {"ours": flag.note, "refused": f"Not supported: {flag.note}."}.get(flag.how, _plain_text(text))
        if name == "algo":
            text = text.replace("a name,", f"{', '.join(MODULES)},")
        kind = describe(self.hints[name])
        kind = "" if self.hints[name] is bool or len(kind) > 80 else f"{kind}; "
        return f"{text} ({kind}default {_shown(default)})"

    def format_help(self) -> str:
        """The help of all flags, by group."""
        return self._parser.format_help()

    def group_of(self, name: str) -> str | None:
        """The group that a flag stands in; None for an unknown name."""
        return next((group for group, names in self.groups.items() if name in names), None)

    def check(
        self, values: Mapping[str, Any], origin: Mapping[str, str] | str = "", prefix: str = "--"
    ) -> dict[str, Any]:
        """The values by flag name, each in its type; classes stay class paths (see :meth:`instantiate`).

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
                if elsewhere := algorithms_with(name):
                    raise UsageError(f"{self.algo} has no setting {prefix}{name}{where}; {elsewhere} have it")
                raise UsageError(f"unknown setting {prefix}{name}{where}; {nearest(name, [*self.hints, *OTHER_FLAGS])}")
            checked[name] = self._checked(name, value, f"{prefix}{name}", where)
        return checked

    def _checked(self, name: str, value: Any, shown: str, where: str) -> Any:
        hint = self.hints[name]
        kinds = _members(hint)
        value = _as_plain(value)
        if name == "env" and callable(value):
            return value
        if name == "algo" and isinstance(value, type) and issubclass(value, Algorithm):
            return algorithm_name(value)
        if name == "logger" and value is False:
            return "false"
        if value is True and bool not in kinds and where:
            raise UsageError(f"{shown} true{where} is not allowed: give {describe(hint)}")
        if value is True and bool not in kinds:
            raise UsageError(f"{shown}{where} needs a value: {describe(hint)}")
        if not _is_plain(value):
            if timedelta in kinds and isinstance(value, timedelta):
                return value
            if _is_lightnings(value, kinds):
                return value
        if isinstance(value, str) and timedelta in kinds and re.fullmatch(r"[\d:]+:[\d:]+", value):
            return value  # YAML reads 10:00:00:00 as a number
        if isinstance(value, str) and {str, int} <= set(kinds) and re.fullmatch(r"-?\d+", value):
            return int(value)
        try:
            if value is None and type(None) not in kinds:
                raise TypeError("null")
            namespace = self._parser.parse_object({name: copy.deepcopy(value)}, defaults=False)
            found = namespace.as_dict()[name]
            if found is None and type(None) not in kinds:
                raise TypeError("null")
        except (argparse.ArgumentError, TypeError, ValueError) as error:
            given = "null" if value is None else repr(value) if isinstance(value, str) else _shown(value)
            raise UsageError(f"{shown} {given}{where} is not allowed: give {describe(hint)}{_detail(error)}") from None
        return found

    def instantiate(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """The values with new objects in place of class paths.

        Raises:
            UsageError: a class that refuses its arguments.
        """
        made = {}
        for name, value in values.items():
            if _holds_class_path(value):
                try:
                    namespace = self._parser.parse_object({name: copy.deepcopy(value)}, defaults=False)
                    value = self._parser.instantiate(namespace)[name]
                except Exception as error:  # whatever the user's class raises
                    raise UsageError(f"--{name} cannot be made: {type(error).__name__}: {error}") from None
            made[name] = value
        return made


_PARSERS: dict[type[Algorithm], FlagParser] = {}


def parser_of(algorithm: type[Algorithm]) -> FlagParser:
    """The flags that belong to an algorithm; kept, as building them takes a tenth of a second and they never change."""
    if algorithm not in _PARSERS:
        _PARSERS[algorithm] = FlagParser(algorithm)
    return _PARSERS[algorithm]


def nearest(name: str, known: Iterable[str]) -> str:
    """A sentence with the known names that look most like ``name``."""
    name = name.replace("-", "_")
    names = list(known)
    begin = sorted((n for n in names if n.startswith(name)), key=len) if len(name) > 1 else []
    close = list(dict.fromkeys([*begin, *difflib.get_close_matches(name, names, 3, 0.6)]))[:3]
    return f"nearest: {', '.join(close)}" if close else "lit-rl train --help lists the known ones"


def describe(hint: Any) -> str:
    """A type in words: "a number or null"."""
    return " or ".join(dict.fromkeys(map(_describe_one, _members(hint))))


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


def _members(hint: Any) -> list[Any]:
    """The types that a union allows."""
    union = typing.get_origin(hint) in (typing.Union, types.UnionType)
    return [m for argument in typing.get_args(hint) for m in _members(argument)] if union else [hint]


def _as_plain(value: Any) -> Any:
    """Numbers and arrays of numpy's as Python's own."""
    if isinstance(value, dict):
        return {key: _as_plain(part) for key, part in value.items()}
    if type(value) in (list, tuple):
        return type(value)(map(_as_plain, value))
    return value.tolist() if isinstance(value, np.generic | np.ndarray) else value


def _is_plain(value: Any) -> bool:
    if isinstance(value, dict):
        return all(map(_is_plain, value.values()))
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, bool | int | float | str)


def _is_lightnings(value: Any, kinds: list[Any]) -> bool:
    """Whether ``value`` is an object of Lightning's that these types allow, or a list of such; class paths may be among them."""
    members = [m for kind in kinds for part in (kind, *typing.get_args(kind)) for m in _members(part)]
    allowed = tuple(
        m for m in members if inspect.isclass(m) and m.__module__.startswith(("pytorch_lightning", "lightning"))
    )
    items = value if isinstance(value, list | tuple) else [value]
    return all(isinstance(item, (*allowed, str, dict)) for item in items) and bool(allowed)


def _holds_class_path(value: Any) -> bool:
    return (
        any(map(_holds_class_path, value))
        if isinstance(value, list)
        else isinstance(value, dict) and "class_path" in value
    )


def _detail(error: Exception) -> str:
    """What jsonargparse found wrong with a class path or its arguments."""
    lines = [line.strip(" -") for line in str(error).splitlines()[1:]]
    found = [line for line in lines if re.match("Option|Import|Unexpected|No module|Problem|Key", line)]
    return f" ({' '.join(dict.fromkeys(found))})" if found else ""


def _plain_text(text: str) -> str:
    """The beginning of one of Lightning's docstrings, without its markup and its defaults."""
    text = re.sub(r":\w+:`~?([^`]*)`", lambda m: m[1].rpartition(".")[2], " ".join(text.split()))
    text = re.sub(r"\s*(Default: \S+?\.?|Disabled by default \(\S+\)\.)(?= |$)", "", text).replace("`", "").strip()
    sentences = re.split(r"(?<=[.)]) (?=[A-Z])", text)
    return " ".join(s for i, s in enumerate(sentences) if i == 0 or len(" ".join(sentences[: i + 1])) < 200)


def _shown(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return f"{value:g}" if isinstance(value, float) else str(value)


class _Formatter(argparse.HelpFormatter):
    def __init__(self, prog: str, **settings: Any) -> None:
        super().__init__(prog, max_help_position=28, **settings)
