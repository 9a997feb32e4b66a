"""``params.json``: what a run was made of."""

from __future__ import annotations

import dataclasses
import enum
import importlib.metadata
import json
import math
import platform
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lit_rl import __version__
from lit_rl.checkpoint import write_atomic

PARAMS = "params.json"
UPDATES = "updates"  # in it: what computed the gradients of each stage
PACKAGES = ("torch", "pytorch-lightning", "gymnasium", "numpy")


def write_params(folder: str | Path, settings: Mapping[str, Any], seed: int | None = None) -> None:
    """Write every setting by its name, and beside them ``seed``, ``versions``, ``platform`` and ``git_commit``.

    What :class:`lit_rl.loggers.paths.Paths` has noted there stays.

    What JSON has no form for is written as text: paths as they are, classes and functions as their import path. Raises
    UsageError when the file cannot be written.
    """
    versions: dict[str, str | None] = {"lit_rl": __version__, "python": platform.python_version()}
    versions |= {name: _version(name) for name in PACKAGES}
    about: dict[str, Any] = {"seed": seed} if "seed" not in settings else {}
    about |= {
        "versions": versions,
        "platform": platform.platform(),
        "git_commit": _git_commit(Path(__file__)),
    }
    noted = {UPDATES: found} if (found := read_params(folder).get(UPDATES)) else {}
    _write(folder, _plain(settings) | _plain(about) | noted)


def note_updates(folder: str | Path, stage: str, history: Mapping[str, Any]) -> None:
    """Write what computed the updates of a stage."""
    params = read_params(folder)
    params[UPDATES] = params.get(UPDATES, {}) | {stage: history}
    _write(folder, params)


def read_params(folder: str | Path) -> dict[str, Any]:
    """What stands in the file; nothing where there is none or it is damaged."""
    try:
        found = json.loads((Path(folder) / PARAMS).read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _write(folder: str | Path, params: Mapping[str, Any]) -> None:
    write_atomic(Path(folder) / PARAMS, json.dumps(params, indent=2, allow_nan=False) + "\n")


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _git_commit(file: Path) -> str | None:
    """The commit of the checkout that ``file`` is part of; None where git does not know the file."""
    git = ["git", "-C", str(file.parent)]
    try:
        # A virtual environment may lie inside another project's checkout: its commit says nothing about this file.
        subprocess.run([*git, "ls-files", "--error-unmatch", file.name], check=True, capture_output=True, timeout=10)
        head = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, timeout=10, text=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return head.stdout.strip()


def _plain(value: Any) -> Any:
    """The same in JSON's types."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, enum.Enum):
        return _plain(value.value)
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_plain(item) for item in value]
    if hasattr(value, "tolist"):  # tensors, arrays, numpy's numbers
        return _plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if hasattr(value, "__qualname__"):
        return f"{value.__module__}.{value.__qualname__}"
    return str(value)
