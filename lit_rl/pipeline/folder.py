"""The run's folder."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from lit_rl.envs.make import name_of
from lit_rl.errors import UsageError
from lit_rl.pipeline.settings import Settings


def make_folder(settings: Settings) -> Path:
    """Make ``<output_dir>/<experiment>``, atomically; a run that goes on has it already.

    Raises:
        UsageError: it exists already, or cannot be made.
    """
    run, base = settings.run, Path(settings.run.output_dir)
    if settings.resume:
        return base / str(run.experiment_name)
    try:
        base.mkdir(parents=True, exist_ok=True)
        return _make(base, run.experiment_name) if run.experiment_name else _make_new(base, settings)
    except OSError as error:
        raise UsageError(f"--output_dir {base} cannot be written: {error.strerror or error}") from None


def _make(base: Path, name: str) -> Path:
    try:
        (base / name).mkdir()
    except FileExistsError:
        raise UsageError(
            f"{base / name} exists already: choose another --experiment_name, or go on with it: --resume"
        ) from None
    return base / name


def _make_new(base: Path, settings: Settings) -> Path:
    """A folder of the default name, numbered where another run began in the same second."""
    algo = settings.run.algo.rpartition(":")[2]
    env = _name_of_data(settings) if settings.env.env is None else name_of(settings.env.env)
    safe = "".join(c if c.isalnum() or c in "-_.+" else "-" for c in env)
    name = f"{algo}_{safe}_{datetime.now():%Y-%m-%d_%H-%M-%S}"
    number = 0
    while True:
        folder = base / (f"{name}_{number}" if number else name)
        try:
            folder.mkdir()
        except FileExistsError:
            number += 1
        else:
            return folder


def _name_of_data(settings: Settings) -> str:
    given = settings.stage1.data.input
    source = given if isinstance(given, str) else "-".join(given or ["data"])
    return source.removeprefix("minari:").rstrip("/").rpartition("/")[2][:60] or "data"
