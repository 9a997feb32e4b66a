"""Tuned settings by algorithm and environment, one YAML file per algorithm."""

from __future__ import annotations

from importlib.resources import files
from typing import Any


def tuned(algo: str, env: str) -> dict[str, Any]:
    """The tuned settings (by flag name) of an algorithm on an environment; empty where there are none.

    ``reference`` and ``source``, the score to expect and where it comes from, are left out: see :func:`entries`.
    """
    entry = entries(algo).get(env, {})
    return {name: value for name, value in entry.items() if name not in ("reference", "source")}


def entries(algo: str) -> dict[str, dict[str, Any]]:
    """All entries of an algorithm by environment id, with their reference scores."""
    import yaml

    file = files("lit_rl.zoo") / f"{algo.lower()}.yaml"
    if not file.is_file():
        return {}
    found: dict[str, dict[str, Any]] = yaml.safe_load(file.read_text()) or {}
    return found
