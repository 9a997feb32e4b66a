"""``--resume`` and ``--restore``: the settings of a run that goes on, with the new limits that were typed."""

from __future__ import annotations

import difflib
import json
import os
from collections.abc import Collection
from pathlib import Path
from typing import Any

from lit_rl.algorithms import algorithm_name
from lit_rl.cli.arguments import Request
from lit_rl.cli.resolve import Resolved, resolve
from lit_rl.cli.stages import Values, given_algorithm
from lit_rl.errors import UsageError
from lit_rl.pipeline.resume import CONFIG, changed, plain_settings, read_config
from lit_rl.pipeline.settings import RunConfig

LIMITS = (
    "max_epochs",
    "min_epochs",
    "max_steps",
    "min_steps",
    "max_time",
    "total_timesteps",
    "patience",
    "stop_return",
)
# What may be another when a run goes on; everything else changes what is learned.
CHANGEABLE = (
    *LIMITS,
    *("max_epochs_2", "patience_2", "experiment_name", "output_dir", "ckpt_path", "logger", "tuned"),
    *("num_threads", "compile", "matmul_precision"),
    *(
        "checkpoint_every",
        "videos",
        "log_level",
        "num_test_envs",
        "test_episodes",
        "accelerator",
        "callbacks",
        "profiler",
        "log_every_n_steps",
    ),
    *("enable_progress_bar", "enable_model_summary", "detect_anomaly", "benchmark", "num_sanity_val_steps"),
)
KEEPERS = ("stage1", "stage2", "checkpoints")  # the folders of a run that hold full checkpoints
OF_ONE_RUN = ("experiment_name", "output_dir", "output", "ckpt_path", "restore")  # what --restore leaves behind


def resolve_any(request: Request) -> Resolved:
    """Put the run together: a new one, one that goes on (--resume), or a new one that goes on from a checkpoint (--restore).

    Raises:
        UsageError: settings that cannot be used, no such run, or a typed setting that would change what was learned.
    """
    values = dict(request.values)
    if values.get("ckpt_path") == "last":
        typed = {name: value for name, value in values.items() if name != "ckpt_path"}
        resolved = _resolve_over(_folder(typed), typed, request)
        resolved.settings.resume = True
        return resolved
    path = None if values.get("restore") is None else str(values["restore"])
    folder = None if path is None else _run_of(path)
    if folder is not None:
        return _resolve_over(folder, values, request, OF_ONE_RUN)
    resolved = resolve(request)
    if path is not None and os.path.isfile(path):
        resolved.notes.append(f"{path} is not in its run's folder: no setting of that run comes with it")
    return resolved


def _run_of(given: str) -> Path | None:
    """The folder of the run that a checkpoint stands in, or that was given itself."""
    if not os.path.exists(given):
        return None
    path = Path(given).resolve()
    if path.is_dir():
        folder = path if (path / "stage1").is_dir() else None
    else:
        folder = path.parent.parent if path.parent.name in KEEPERS else path.parent
        folder = folder if (folder / "stage1").is_dir() else None
    return folder if folder is not None and os.path.isfile(folder / CONFIG) else None


def _resolve_over(folder: Path, typed: Values, request: Request, own: Collection[str] = ()) -> Resolved:
    """What was typed over the settings of the run in ``folder``, but for those that are each run's ``own``."""
    saved = {name: value for name, value in read_config(folder).items() if name not in own}
    if "algo" in typed and "algo" in saved:
        typed["algo"] = algorithm_name(given_algorithm(typed["algo"], "--algo"))
        if typed["algo"] != saved["algo"]:
            raise changed("algo", typed["algo"], saved["algo"], folder)
    if isinstance(typed.get("step2"), dict) and isinstance(saved.get("step2"), dict):
        typed["step2"] = saved["step2"] | typed["step2"]
    merged = Request(actions=request.actions)
    merged.add(saved, f" (in {folder})")
    merged.values |= typed
    merged.origin |= {name: request.origin.get(name, "") for name in typed}
    resolved = resolve(merged)
    _refuse_changes(saved, plain_settings(resolved.flat), folder)
    resolved.notes = []  # they were said when the run began
    return resolved


def _folder(typed: Values) -> Path:
    name = typed.get("experiment_name")
    output_dir = str(typed.get("output_dir", typed.get("default_root_dir", RunConfig.output_dir)))
    RunConfig(output_dir=output_dir)  # which refuses what is no path
    base = Path(output_dir)
    runs = sorted(path.name for path in base.iterdir() if path.is_dir()) if base.is_dir() else []
    if name is None:
        there = f"; there are {', '.join(runs[-5:])}" if runs else ""
        raise UsageError(f"--resume needs the name of the run: --experiment_name NAME{there}")
    RunConfig(experiment_name=str(name))  # which refuses names that lead elsewhere
    folder = base / str(name)
    if not folder.is_dir():
        near = difflib.get_close_matches(str(name), runs, 3, 0.4)
        hint = f"; nearest: {', '.join(near)}" if near else ""
        raise UsageError(f"--resume: there is no run {folder}{hint}")
    return folder


def _refuse_changes(saved: Values, now: Values, folder: Path) -> None:
    """Refuse by name what differs and may not, in step2 too."""
    for name, then in saved.items():
        if name == "step2":
            for inner, value in now.get("step2", {}).items():
                before = then.get(inner, saved.get(inner, value))  # what it took over from stage 1 is not listed
                if value != before and not _may_change(inner, before, value):
                    raise changed(f"step2 {inner}", value, before, folder)
        elif name in now and now[name] != then and not _may_change(name, then, now[name]):
            if name == "enable_checkpointing":
                raise UsageError(
                    f"--{name} {json.dumps(now[name])} would leave a run that goes on without its best weights and its last "
                    f"checkpoint ({folder} keeps them): leave it out"
                )
            raise changed(name, now[name], then, folder)


def _may_change(name: str, then: Any, now: Any) -> bool:
    if name == "two_steps":
        return bool(now)
    if name == "enable_checkpointing":
        return now is not False  # it may begin to keep them
    if name == "vector_env":
        return {then, now} == {"sync", "async"}  # the same envs, elsewhere
    return name in CHANGEABLE
