"""The user's folder of built libraries: who may have written there, what is whole, and how much of it is kept.

A library is native code that runs in the process which loads it. So nothing is loaded but files that this user owns, in a
folder that only this user can write; and only whole ones, of the very graph and machine they are asked for: a file's name
holds the digest of both. Files appear under their final name by one rename.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import platform
import shutil
import stat
import time
from pathlib import Path
from typing import Any

import torch

from lit_rl.optimize.native.builder import file_name

VERSION = 1  # of what is captured and how it is compiled
LIMIT = 512 * 2**20  # bytes; one library has about 2 MB
SECONDS_OF_A_BUILD = 3600  # what is older has been left behind by a build that was killed


class CacheError(Exception):
    """The folder cannot be used; the message says why."""


class Cache:
    """Libraries by key, the ones used last.

    Args:
        folder: where they lie; ``lit_rl/native`` in the user's cache folder by default.
        limit: bytes; the ones that were not used for longest go first.

    Raises:
        CacheError: the folder cannot be made, or others can write there.
    """

    def __init__(self, folder: Path | None = None, limit: int = LIMIT) -> None:
        self.folder, self.limit = folder or default_folder(), limit
        try:
            for part in (self.folder.parent, self.folder):
                part.mkdir(mode=0o700, parents=True, exist_ok=True)
                _check_owned(part)
        except OSError as error:
            raise CacheError(f"{self.folder} cannot be made: {error.strerror or error}") from None

    def find(self, key: str) -> Path | None:
        """The library of this key; files of that name that are not what they should be are removed."""
        for path in self.folder.glob(f"{key}-*.pt2"):
            try:
                with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW), "rb") as file:
                    about = os.fstat(file.fileno())
                    owned = about.st_uid == os.geteuid() and stat.S_ISREG(about.st_mode) and not about.st_mode & 0o022
                    whole = owned and file_name(key, file.read()) == path.name
                if whole:
                    os.utime(path)
                    return path
                path.unlink()
            except OSError:
                continue
        return None

    def holds(self, prefix: str) -> bool:
        """Whether any key begins like this."""
        return any(self.folder.glob(f"{prefix}*.pt2"))

    def tidy(self) -> None:
        """Remove what is too much, and what killed builds have left behind."""
        files = []
        for path in self.folder.iterdir():
            try:
                about = path.lstat()
                if path.suffix == ".pt2":
                    files.append((about.st_mtime, about.st_size, path))
                elif about.st_mtime < time.time() - SECONDS_OF_A_BUILD:
                    shutil.rmtree(path) if path.is_dir() else path.unlink()
            except OSError:
                continue
        size = sum(size for _, size, _ in files)
        for _, of_one, path in sorted(files):
            if size <= self.limit:
                break
            path.unlink(missing_ok=True)
            size -= of_one


def default_folder() -> Path:
    """``lit_rl/native`` in the user's cache folder."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(base):  # as the XDG specification has it
        base = os.path.expanduser("~/.cache")
    return Path(base) / "lit_rl" / "native"


def _check_owned(folder: Path) -> None:
    about = folder.lstat()
    if not stat.S_ISDIR(about.st_mode):
        raise CacheError(f"{folder} is not a folder")
    if about.st_uid != os.geteuid():
        raise CacheError(f"{folder} belongs to another user")
    if about.st_mode & 0o022:
        raise CacheError(f"other users can write to {folder} (chmod 700 makes it yours)")


def environment_key() -> str:
    """The digest of all that a library depends on beside its graph and inputs; keys begin with it."""
    variables = {k: v for k, v in os.environ.items() if k.startswith(("TORCHINDUCTOR_", "AOT_INDUCTOR_", "CXX"))}
    variables.pop("TORCHINDUCTOR_CACHE_DIR", None)
    return _digest(
        VERSION,
        torch.__version__,
        torch.version.git_version,
        _cpu(),
        torch.backends.cpu.get_cpu_capability(),
        torch.get_num_threads(),
        torch.get_float32_matmul_precision(),
        sorted(variables.items()),
    )[:16]


def graph_key(code: str, inputs: list[Any]) -> str:
    """The digest of a graph's code and of the shapes, strides and dtypes of its inputs."""
    return _digest(code, inputs)[:32]


def _digest(*parts: Any) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


@functools.cache
def _cpu() -> list[str]:
    """What compiled code may use of this machine."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        features = next(line.split(":")[1] for line in lines if line.startswith(("flags", "Features")))
    except (OSError, StopIteration, IndexError):
        features = platform.processor()
    return [platform.system(), platform.machine(), " ".join(sorted(features.split()))]
