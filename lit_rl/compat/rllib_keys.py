"""What a key of RLlib's can become here."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from lit_rl.errors import UsageError

Values = dict[str, Any]
Translate = Callable[[Any, Mapping[str, Any], Collection[str]], Values]  # a value, all that was given, our settings


@dataclass(frozen=True)
class Key:
    """One of RLlib's keys: what it becomes here, or why it is refused."""

    name: str  # nested ones with a dot: model.fcnet_hiddens
    ours: str  # our settings, for people; empty where there is none
    note: str = ""  # what differs, or why not
    translate: Translate | None = None
    theirs: Callable[[Any], bool] | None = None  # tells their value of a name that is ours too from ours


def same(name: str, note: str = "") -> Key:
    """A key of the same name and meaning."""
    return Key(name, name.rpartition(".")[2], note, lambda value, *_: {name.rpartition(".")[2]: value})


def renamed(name: str, ours: str, note: str = "") -> Key:
    """A key that only has another name here."""
    return Key(name, ours, note, lambda value, *_: {ours: value})


def refused(name: str, why: str, *harmless: Any) -> Key:
    """A key that has no meaning here; the values that ask for nothing pass."""

    def translate(value: Any, *_: Any) -> Values:
        if any(value == other and type(value) is type(other) for other in harmless):
            return {}
        raise UsageError(why)

    return Key(name, "", why, translate)


def fixed(name: str, value: Any, why: str) -> Key:
    """A key that has one value here."""
    return Key(name, "", why, refused(name, why, value).translate)
