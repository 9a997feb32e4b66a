"""Files of a run: written whole or not at all, and read without unpickling anything.

A file is written beside its target as ``<name>.lit_rl-<pid>.tmp``, synced and renamed over it, so the target is always the old
file or the new one: after a kill, on a full disk, after a power cut. What a killed process leaves half-written is never
read, and goes with the next write.
"""

from __future__ import annotations

import contextlib
import os
import random
import re
import shutil
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, BinaryIO, cast

import numpy as np
import torch
from pytorch_lightning.plugins.io import TorchCheckpointIO
from torch import Tensor

from lit_rl.errors import UsageError

BEST = "best.ckpt"
LAST = "last.ckpt"
PREVIOUS = "previous.ckpt"  # the last one but one


class AtomicCheckpointIO(TorchCheckpointIO):
    """How Lightning keeps checkpoints, with ``pl.Trainer(plugins=[AtomicCheckpointIO()])``: whole, free of objects."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any = None) -> None:
        """Write ``checkpoint`` to ``path``.

        Raises UsageError, and leaves the old file as it was, when that fails or when the file could not be read back.
        """
        if storage_options is not None:
            raise TypeError(f"{type(self).__name__} takes no storage_options: it writes local files")
        with _replacing(Path(path)) as file:
            sink = _Sink(file)
            torch.save(checkpoint, cast(IO[bytes], sink))
            if sink.error is not None:
                raise sink.error
            file.flush()
            if unreadable := _needs(file.name):
                raise UsageError(
                    f"cannot write {path}: {', '.join(unreadable)} in it could not be read back (only tensors and "
                    "plain Python can); change the state_dict() or the hyperparameters that hold it"
                )

    def load_checkpoint(
        self,
        path: str | Path,
        map_location: Callable[..., Any] | None = lambda storage, location: storage,
        weights_only: bool | None = None,
    ) -> dict[str, Any]:
        """Read any Lightning checkpoint, always as if ``weights_only``; raises UsageError when that is impossible."""
        return _read(Path(path), map_location)


def load(path: str | Path) -> dict[str, Any]:
    """Read one of lit_rl's checkpoints onto the CPU; a folder stands for its ``best.ckpt``, or while the run goes on for
    the best of its newest stage.

    Raises UsageError with path and reason: missing, cut, no checkpoint, needs unpickling, or not written by lit_rl.
    """
    path = Path(path)
    if os.path.isdir(path):
        path = _best_of(path)
    checkpoint = _read(path, "cpu")
    hyper_parameters = checkpoint.get("hyper_parameters")
    if not isinstance(hyper_parameters, dict) or not isinstance(hyper_parameters.get("lit_rl"), dict):
        raise UsageError(f"{path} is a checkpoint, but not one of lit_rl's: it does not say which algorithm it holds")
    weights = checkpoint.get("state_dict")
    if not isinstance(weights, dict) or not all(
        isinstance(name, str) and isinstance(weight, Tensor) for name, weight in weights.items()
    ):
        raise UsageError(f"{path} is damaged: its state_dict holds something else than weights by name")
    return checkpoint


def find_last(folder: str | Path) -> tuple[Path, dict[str, Any], list[str]] | None:
    """The newest full checkpoint in a folder that can be read: its path, what it holds, and why newer ones were passed over.

    None where there never was one; raises UsageError where there are some and none can be read.
    """
    problems: list[str] = []
    for path in (Path(folder) / LAST, Path(folder) / PREVIOUS):
        if path.exists():
            try:
                checkpoint = load(path)
            except UsageError as error:
                problems.append(str(error))
                continue
            if missing := missing_part(checkpoint):
                problems.append(f"{path} is no full checkpoint: it has no {missing}")
                continue
            return path, checkpoint, problems
    if problems:
        raise UsageError("; ".join(problems))
    return None


def missing_part(checkpoint: dict[str, Any]) -> str | None:
    """What a checkpoint lacks to be a full one, that a run can go on from; None where it is one."""
    return next((part for part in ("progress", "loops", "optimizer_states") if part not in checkpoint), None)


@contextlib.contextmanager
def describing(path: str | Path) -> Iterator[None]:
    """Around the making of what the checkpoint at ``path`` describes: whatever its settings make fail is a UsageError."""
    try:
        yield
    except UsageError as error:
        raise UsageError(f"{path} cannot be loaded: {error}") from error
    except Exception as error:
        reason = f"{type(error).__name__}: {error}".splitlines()[0][:200]
        raise UsageError(f"{path} holds settings that cannot be used: {reason}") from error


@contextlib.contextmanager
def rotating(path: Path) -> Iterator[None]:
    """Around the writing of a new ``last.ckpt``: the old one waits as ``previous.ckpt``, and is back where that fails.

    So there are two at most on the disk, the one that is being written included. Raises UsageError.
    """
    previous = path.with_name(PREVIOUS)
    there = path.exists()
    try:
        if there:
            os.replace(path, previous)
    except OSError as error:
        kept = "the file that was there is untouched"
        raise UsageError(f"cannot write {path}: {error.strerror or error}; {kept}") from error
    try:
        yield
    except BaseException as error:
        if there and not path.exists():
            os.replace(previous, path)
        if isinstance(error, UsageError) and there:
            raise UsageError(f"{error}; the file that was there is untouched") from error
        raise


def rng_state() -> dict[str, Any]:
    """The state of the global generators of Python, numpy and torch, as a checkpoint can hold it."""
    kind, keys, *rest = np.random.get_state()
    state: dict[str, Any] = {"python": random.getstate(), "torch": torch.get_rng_state()}
    state["numpy"] = [kind, torch.from_numpy(np.asarray(keys).astype(np.int64)), *rest]
    if torch.cuda.is_available():
        state["cuda"] = torch.cuda.get_rng_state_all()
    return state


def set_rng_state(state: dict[str, Any]) -> None:
    """Put the global generators where :func:`rng_state` found them."""
    version, internal, gauss = state["python"]
    random.setstate((version, tuple(internal), gauss))
    kind, keys, *rest = state["numpy"]
    np.random.set_state((kind, keys.numpy().astype(np.uint32), *rest))
    torch.set_rng_state(state["torch"])
    if "cuda" in state and torch.cuda.is_available() and len(state["cuda"]) == torch.cuda.device_count():
        torch.cuda.set_rng_state_all(state["cuda"])


def write_atomic(path: str | Path, content: str | bytes) -> None:
    """Write a file (text as UTF-8); when that fails, raises UsageError and the old file is as it was."""
    with _replacing(Path(path)) as file:
        file.write(content.encode() if isinstance(content, str) else content)


def copy_atomic(source: str | Path, target: str | Path) -> None:
    """Copy a file; when that fails, raises UsageError and an old target is as it was."""
    try:
        original = open(source, "rb")
    except OSError as error:
        raise UsageError(f"cannot read {source}: {error.strerror or error}") from error
    with original, _replacing(Path(target)) as file:
        shutil.copyfileobj(original, file, 1 << 20)


@contextlib.contextmanager
def _replacing(path: Path) -> Iterator[BinaryIO]:
    """A new file that takes the place of ``path`` when the block ends well and is gone when it does not."""
    if not path.name or "\0" in str(path):
        raise UsageError(f"cannot write {path}: that names no file")
    temporary = path.with_name(f"{path.name}.lit_rl-{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _remove_leftovers(path.parent)
        with open(temporary, "wb", buffering=1 << 20) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        if isinstance(error, OSError):
            kept = "; the file that was there is untouched" if os.path.exists(path) else ""
            reason = f"{path.parent} is a file" if isinstance(error, FileExistsError) else error.strerror or error
            raise UsageError(f"cannot write {path}: {reason}{kept}") from error
        raise
    # The rename itself must outlive a power cut. Some network file systems refuse to sync a folder; the file is whole
    # there all the same.
    with contextlib.suppress(OSError):
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _remove_leftovers(folder: Path) -> None:
    """Delete what writers of ours that were killed left half-written in ``folder``."""
    for file in folder.glob("*.lit_rl-*.tmp"):
        if (match := re.search(r"\.lit_rl-(\d+)\.tmp$", file.name)) and not _is_alive(int(match[1])):
            with contextlib.suppress(OSError):
                file.unlink()


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True
    return True


class _Sink:
    """Where ``torch.save`` writes to. Keeps the first error for its owner (a full disk, Ctrl-C): torch hides it."""

    def __init__(self, file: BinaryIO) -> None:
        self.file = file
        self.error: BaseException | None = None

    def write(self, data: bytes | memoryview) -> int:
        if self.error is None:
            try:
                self.file.write(data)
            except BaseException as error:
                self.error = error
        return len(data)

    def flush(self) -> None:
        """Nothing: the owner flushes and sees the error."""


def _best_of(folder: Path) -> Path:
    best = folder / BEST
    if best.is_file():
        return best
    for stage in (folder / "stage2", folder / "stage1", folder):  # of a run that has not ended
        with contextlib.suppress(UsageError):
            if (last := find_last(stage)) is not None:
                kept = stage / str(last[1].get("callbacks", {}).get("lit_rl.BestCheckpoint", {}).get("best_model_path"))
                if kept.is_file() and kept.parent == stage:
                    return kept
    others = sorted(str(file.relative_to(folder)) for file in folder.glob("**/*.ckpt"))
    found = f"it holds {', '.join(others[:5])}: name one of them" if others else "it holds no checkpoint at all"
    raise UsageError(f"{folder} has no {BEST}; {found}")


def _read(path: Path, map_location: Any) -> dict[str, Any]:
    """The one call of torch.load."""
    if os.path.exists(path) and not (os.path.isfile(path) or os.path.isdir(path)):
        raise UsageError(f"cannot read {path}: it is no file")  # a device or a pipe, which may have no end
    try:
        with open(path, "rb") as file:
            start = file.read(4)
    except FileNotFoundError:
        raise UsageError(f"there is no checkpoint {path}") from None
    except (OSError, ValueError) as error:  # a path may hold what none can
        raise UsageError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from error
    # Only torch's zip format: the older ones are one long pickle.
    if not _is_zip(path):
        size = path.stat().st_size
        cut = b"PK\x03\x04".startswith(start)
        raise UsageError(f"{path} is cut off after {size} bytes" if cut else f"{path} is not a checkpoint")
    if damaged := _damaged_part(path):  # torch compares no checksums
        raise UsageError(f"{path} is damaged: {damaged}")
    try:
        checkpoint = torch.load(path, map_location=map_location, weights_only=True)
    except Exception as error:
        if classes := _needs(path):
            raise UsageError(
                f"{path} needs {', '.join(classes)} to be unpickled, which can run any code: "
                "only tensors and plain Python are read"
            ) from error
        # Damaged and foreign archives fail in many ways; to the reader they are all the same.
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise UsageError(f"{path} is damaged or not a checkpoint: {reason[:200]}") from error
    if not isinstance(checkpoint, dict):
        raise UsageError(f"{path} is not a checkpoint: it holds a {type(checkpoint).__name__}")
    return checkpoint


def _is_zip(path: Path) -> bool:
    try:
        return zipfile.is_zipfile(path)
    except zipfile.BadZipFile:
        return False


def _damaged_part(path: Path) -> str | None:
    """What of a zip file is not what was written, by its checksums."""
    try:
        with zipfile.ZipFile(path) as archive:
            part = archive.testzip()
    except Exception as error:  # whatever damaged bytes make of a header
        return (str(error).strip() or type(error).__name__).splitlines()[0][:200]
    return None if part is None else f"{part!r} is not what was written"


def _needs(path: Path | str) -> list[str]:
    """Names of what unpickling ``path`` would import beyond tensors and plain Python; imports nothing."""
    try:
        return sorted(torch.serialization.get_unsafe_globals_in_checkpoint(path))
    except Exception:
        return []
