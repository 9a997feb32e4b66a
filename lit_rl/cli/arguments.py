"""What was typed, before it means anything: flags, config files and inline configs, by setting name.

Nothing here knows a flag, so the algorithm can be read off before the parser that belongs to it is built.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import yaml

from lit_rl.errors import UsageError

ALIASES = {"run": "algo"}
RESUME = "resume"  # another way to say --ckpt_path last
SHORT = {"-h": "--help", "-f": "--file"}
MOST_VALUES = 1_000_000  # of a config
ACTIONS = ("help", "print_config")  # flags that do something instead of setting something


@dataclass
class Request:
    """The settings that were typed, raw, and where each came from (for messages: " (in my.yaml)", "" for a flag)."""

    values: dict[str, Any] = field(default_factory=dict)
    origin: dict[str, str] = field(default_factory=dict)
    actions: set[str] = field(default_factory=set)

    def add(self, values: Mapping[Any, Any], origin: str, lines: Mapping[str, int] | None = None) -> None:
        """Lay ``values`` over what is there; ``lines`` are those of a file that they stand on."""
        for key in values:
            if not isinstance(key, str):
                raise UsageError(f"{key!r}{origin} is no setting: the keys of a config are flag names")
            name = "ckpt_path" if key == RESUME else ALIASES.get(key, key)
            if name != key and name in values:
                raise UsageError(f"{key} and {name}{origin} say the same: give one of them")
            if key == RESUME:
                if values[key] in (False, "false"):
                    continue
                if values[key] not in (True, "true"):
                    raise UsageError(
                        f"--resume {values[key]}{origin} is not allowed: the run's name is --experiment_name"
                    )
            self.values[name] = "last" if key == RESUME else values[key]
            line = (lines or {}).get(key)
            self.origin[name] = origin if line is None else f"{origin.removesuffix(')')}, line {line})"


def from_argv(argv: list[str]) -> Request:
    """Read ``--name value``, ``--name=value`` and bare ``--name`` (True); configs lie below flags wherever they stand.

    Raises:
        UsageError: a stray word, or a config that cannot be read.
    """
    line = take_apart(argv, ACTIONS)
    line.refuse_words()
    request = Request(actions=line.actions)
    for name, value in line.flags:
        if name == "config":
            if value is True or not value:
                raise UsageError("--config needs a file, or settings such as '{\"gamma\": 0.98}'")
            request.add(*read_config(value))
    request.add({name: value for name, value in line.flags if name != "config"}, "")
    return request


@dataclass
class Line:
    """An argument line, taken apart."""

    words: list[str] = field(default_factory=list)
    # as typed, in order; True: without a value
    flags: list[tuple[str, str | Literal[True]]] = field(default_factory=list)
    actions: set[str] = field(default_factory=set)

    def refuse_words(self) -> None:
        """Refuse what stands without a flag, by name."""
        if self.words:
            raise UsageError(f"unexpected argument {self.words[0]}: settings are given as --name value")


def take_apart(argv: list[str], actions: Collection[str], switches: Collection[str] = ()) -> Line:
    """Tell words from ``--name value``, ``--name=value`` and bare ``--name``; dashes in a name are underscores.

    Args:
        argv: what was typed.
        actions: flags that take no value.
        switches: flags that a word may follow, because they take no other value than true or false; ``--no_<name>`` is false.

    Raises:
        UsageError: an action with a value.
    """
    line, tokens = Line(), [SHORT.get(token, token) for token in argv]
    while tokens:
        token = tokens.pop(0)
        name, equals, value = token[2:].partition("=")
        if not token.startswith("--") or not name:
            line.words.append(token)
            continue
        name = name.replace("-", "_")
        name = ALIASES.get(name, name)
        if name in actions:
            if equals:
                raise UsageError(f"--{name} takes no value")
            line.actions.add(name)
        elif equals:
            line.flags.append((name, value))
        elif name.startswith("no_") and name[3:] in switches:
            line.flags.append((name[3:], "false"))
        elif tokens and not tokens[0].startswith("--") and (name not in switches or tokens[0] in ("true", "false")):
            line.flags.append((name, tokens.pop(0)))
        else:
            line.flags.append((name, True))
    return line


def from_python(settings: dict[str, Any]) -> Request:
    """The request that keywords make."""
    request = Request()
    configs = settings.pop("config", [])
    for config in configs if isinstance(configs, list | tuple) else [configs]:
        if not isinstance(config, dict | str | os.PathLike):
            raise UsageError(f"config {config!r} is not allowed: give {{setting: value, ...}}, or the name of a file")
        request.add(*((config, " (in config)", {}) if isinstance(config, dict) else read_config(os.fspath(config))))
    request.add({name: _plain(value) for name, value in settings.items()}, "")
    return request


def read_config(text: str, flag: str = "--config") -> tuple[dict[Any, Any], str, dict[str, int]]:
    """The settings of a YAML or JSON file, or of inline YAML or JSON, how messages say where they stand, and on which line.

    Raises:
        UsageError: no such file, or neither YAML nor JSON, or no mapping.
    """
    inline = text.lstrip().startswith(("{", "[")) or "\n" in text or ": " in text
    shown = "the inline config" if inline else text
    try:
        if not inline and Path(text).is_char_device():
            raise OSError(0, "it is a device, not a file")
        content = text if inline else Path(text).read_text("utf-8")
        found = load_yaml(content)
        stands = _lines(content)
        lines = {} if inline else {".".join(path): line for path, line in stands.items()}
    except OSError as error:
        raise UsageError(f"{flag} {text} cannot be read: {error.strerror}") from None
    except RecursionError:
        raise UsageError(f"{flag}: {shown} is nested too deep") from None
    except (yaml.YAMLError, ValueError) as error:
        raise UsageError(f"{flag}: {shown} is neither YAML nor JSON: {_problem(error)}") from None
    if found is None:
        return {}, "", {}
    if not isinstance(found, dict):
        raise UsageError(f"{flag}: {shown} must hold settings by flag name, such as '{{\"gamma\": 0.98}}'")
    return found, f" (in {shown})", lines


def _problem(error: Exception) -> str:
    """What is wrong with a text, on which line, and what stands there."""
    for mark in (getattr(error, "problem_mark", None), getattr(error, "context_mark", None)):
        lines = (getattr(mark, "buffer", None) or "").rstrip("\0").split("\n")
        if mark is not None and mark.line < len(lines) and lines[mark.line].strip():
            return f"line {mark.line + 1}, {lines[mark.line].strip()[:80]!r}: {getattr(error, 'problem', error)}"
    return " ".join(str(error).split())


def _lines(text: str) -> dict[tuple[str, ...], int]:
    """The line of every key of a YAML text, by its path.

    Raises:
        ValueError: a key stands twice in one mapping: the first would be forgotten.
    """
    lines: dict[tuple[str, ...], int] = {}
    seen: set[int] = set()

    def walk(node: yaml.Node | None, path: tuple[str, ...]) -> None:
        if not isinstance(node, yaml.MappingNode) or id(node) in seen:
            return
        seen.add(id(node))
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode) or key.value == "<<":
                continue
            inner, line = (*path, key.value), key.start_mark.line + 1
            if inner in lines:
                raise ValueError(f"line {line}: {key.value} stands there twice, first on line {lines[inner]}")
            lines[inner] = line
            walk(value, inner)

    walk(yaml.compose(text, Loader=_Loader), ())
    return lines


def load_yaml(text: str) -> Any:
    """YAML with the numbers of YAML 1.2: 1e-3 is a float and 10:00:00:00 a string.

    Raises:
        YAMLError: it is none, or its aliases make it endless or huge.
    """
    found = yaml.load(text, Loader=_Loader)
    if _size(found, set(), {}) > MOST_VALUES:
        raise yaml.YAMLError("its aliases stand for too much")
    return found


def _size(value: Any, above: set[int], known: dict[int, int]) -> int:
    """How many values there are when every alias is written out."""
    parts = [*value.keys(), *value.values()] if isinstance(value, dict) else value
    if not isinstance(parts, list | tuple | set):
        return 1
    if id(value) in above:
        raise yaml.YAMLError("an alias stands in what it stands for")
    if id(value) not in known:
        known[id(value)] = 1 + sum(_size(part, above | {id(value)}, known) for part in parts)
    return known[id(value)]


def dump_yaml(values: dict[str, Any]) -> str:
    """What :func:`load_yaml` reads back to the same values; a setting stands on a line."""
    return "".join(yaml.dump({k: v}, Dumper=_Dumper, sort_keys=False, width=math.inf) for k, v in values.items())


def _plain(value: Any) -> Any:
    return os.fspath(value) if isinstance(value, os.PathLike) else value


class _Loader(yaml.SafeLoader):
    pass


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        return True

    def represent_list(self, data: Any) -> yaml.SequenceNode:
        return self.represent_sequence("tag:yaml.org,2002:seq", data, flow_style=True)


_Dumper.add_representer(list, _Dumper.represent_list)


def _numbers_of_yaml_1_2(kind: type[_Loader] | type[_Dumper]) -> None:
    replaced = {f"tag:yaml.org,2002:{name}" for name in ("int", "float", "timestamp")}
    kind.yaml_implicit_resolvers = {
        first: [(tag, regexp) for tag, regexp in resolvers if tag not in replaced]
        for first, resolvers in kind.yaml_implicit_resolvers.items()
    }
    integer = re.compile(r"^(?:[-+]?(?:0|[1-9][0-9]*)|0x[0-9a-fA-F]+)$")
    number = re.compile(
        r"^(?:[-+]?(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?|[-+]?[0-9]+[eE][-+]?[0-9]+"
        r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$"
    )
    kind.add_implicit_resolver("tag:yaml.org,2002:int", integer, list("-+0123456789"))
    kind.add_implicit_resolver("tag:yaml.org,2002:float", number, list("-+0123456789."))


_numbers_of_yaml_1_2(_Loader)
_numbers_of_yaml_1_2(_Dumper)
