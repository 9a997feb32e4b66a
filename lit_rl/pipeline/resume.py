"""Going on with a run: where it stands, and what must not have changed since."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lit_rl.checkpoint import find_last, load, missing_part, write_atomic
from lit_rl.envs.spaces import Spaces, describe
from lit_rl.errors import UsageError, printable
from lit_rl.lit_policy import LitPolicy

SUMMARY = "summary.json"  # of stage 1, in its folder, for the run that goes on in stage 2
CONFIG = "config.json"  # every setting by flag name
# A checkpoint's path, what it holds, and why newer ones were passed over.
Found = tuple[Path, dict[str, Any], list[str]]


@dataclass(frozen=True)
class Resume:
    """The checkpoint that a run goes on from."""

    path: Path
    stage: int
    epochs: int  # begun, of the stage
    epochs_ended: int
    env_steps: int
    updates: int  # of the stage
    problems: list[str]  # why newer checkpoints were passed over
    about: dict[str, Any]  # the algorithm, its config and its spaces
    recorded: int  # data sets that the stage learned from; 0 where it acted
    ring: tuple[int, int] | None  # rows of each env in its replay buffer, and envs

    def __str__(self) -> str:
        passed_over = "".join(f"{problem}; passing it over\n" for problem in self.problems)
        counts = f"{self.env_steps:,} env steps, {self.updates:,} updates"
        return f"{printable(passed_over)}going on from {self.path}: stage {self.stage}, {counts}"


def find_resume(folder: Path) -> Resume | None:
    """Where the run in ``folder`` stands; None where it has no checkpoint yet.

    Raises:
        UsageError: none of its checkpoints can be read.
    """
    found = _find_newest(folder)
    return None if found is None else _standing(*found)


def _find_newest(folder: Path) -> Found | None:
    """The newest full checkpoint of a run."""
    problems: list[str] = []
    for stage in (2, 1):
        try:
            found = find_last(folder / f"stage{stage}")
        except UsageError as error:
            problems.append(str(error))
            continue
        if found is not None:
            path, checkpoint, passed_over = found
            return path, checkpoint, problems + passed_over
    if problems:
        raise UsageError("; ".join(problems))
    return None


def find_restored(path: str | Path) -> Resume:
    """Where the full checkpoint stands that a new run goes on from, as ``--restore`` names it.

    Raises:
        UsageError: there is none, or it holds weights alone or a second stage.
    """
    path, checkpoint, problems = newest_in(path)
    if missing_part(checkpoint):
        raise UsageError(
            f"--restore {path} holds weights alone: start from them with --ckpt_path {path}, or restore a full checkpoint "
            "(a run's stage1/last.ckpt, or one of its checkpoints/)"
        )
    return restored_from(path, checkpoint, problems)


def newest_in(path: str | Path) -> Found:
    """The file itself; of a run's folder, the newest full checkpoint, or its best weights where there is none.

    Raises:
        UsageError: there is none that can be read.
    """
    path = Path(path)
    found = _find_newest(path) if os.path.isdir(path) else None
    return (path, load(path), []) if found is None else found


def restored_from(path: Path, checkpoint: dict[str, Any], problems: list[str]) -> Resume:
    """Where a full checkpoint stands that another run goes on from.

    Raises:
        UsageError: it holds a second stage.
    """
    found = _standing(path, checkpoint, problems)
    if found.stage == 2:
        raise UsageError(
            f"{path} is of a second stage, which goes on in its own run alone (--experiment_name NAME --resume); "
            f"a new run starts from its weights with --ckpt_path {path}"
        )
    return found


def _standing(path: Path, checkpoint: dict[str, Any], problems: list[str]) -> Resume:
    progress, about = checkpoint["progress"], checkpoint["hyper_parameters"]["lit_rl"]
    # "epoch" is one less in a checkpoint of an epoch's end than in one of afterwards
    epochs = checkpoint["loops"]["fit_loop"]["epoch_progress"]["current"]
    counts = epochs["ready"], epochs["processed"], progress["env_steps"], progress["updates"]
    kept = checkpoint.get("experience") or {}
    ring = (kept["buffer"]["rows"], kept["buffer"]["num_envs"]) if "buffer" in kept else None
    return Resume(path, about["stage"], *counts, problems, about, len(kept.get("windows", [])), ring)


def check_same(policy: LitPolicy, resume: Resume) -> None:
    """Refuse by name what would change what was learned.

    Raises:
        UsageError: algorithm, a setting of it or the spaces are others than the checkpoint's.
    """
    now, then = policy.hparams["lit_rl"], resume.about
    if now["algo"] != then["algo"]:
        raise changed("algo", now["algo"], then["algo"], resume.path)
    for name in [n for n in now["config"] if n in then["config"]]:
        if now["config"][name] != then["config"][name]:
            raise changed(name, now["config"][name], then["config"][name], resume.path)
    if now["average_weights"] != then["average_weights"]:
        raise changed("average_weights", now["average_weights"], then["average_weights"], resume.path)
    saved = Spaces.from_plain(then["spaces"])
    for kind in ("observation", "action"):
        one, other = getattr(policy.algorithm.spaces, kind), getattr(saved, kind)
        if one != other:
            raise changed("env", f"with the {kind} space {describe(one)}", describe(other), resume.path)


def changed(name: str, now: Any, then: Any, where: Path) -> UsageError:
    """The error for a setting that cannot change in the middle of a run."""
    return UsageError(
        f"--{name} {_shown(now)} would change what was learned so far ({where} has {_shown(then)}): leave it out, or start "
        "a new run from these weights with --ckpt_path FILE and another --experiment_name"
    )


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, default=str)


def write_config(folder: Path, flat: dict[str, Any]) -> None:
    """Keep every setting by flag name, for the run that goes on; values from Python that JSON cannot hold are left out."""
    write_atomic(folder / CONFIG, json.dumps(plain_settings(flat), indent=2) + "\n")


def read_config(folder: Path) -> dict[str, Any]:
    """What :func:`write_config` wrote; empty where a run was stopped before that.

    Raises:
        UsageError: the file is damaged.
    """
    path = folder / CONFIG
    try:
        found = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(f"{path} cannot be read: {error}") from None
    if not isinstance(found, dict):
        raise UsageError(f"{path} cannot be read: it holds no settings")
    return found


def plain_settings(flat: dict[str, Any]) -> dict[str, Any]:
    """The settings that JSON can hold, as it reads them back."""
    kept = {}
    for name, value in flat.items():
        try:
            kept[name] = json.loads(json.dumps(value))
        except (TypeError, ValueError):
            continue
    return kept
