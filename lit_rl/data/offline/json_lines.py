"""Episodes as JSON lines, one episode a line (docs/offline.md has the schema); ``.gz`` is read and written as well."""

from __future__ import annotations

import base64
import binascii
import gzip
import json
import math
import tempfile
import zlib
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch

from lit_rl.data.offline.episodes import BadEpisode, checked
from lit_rl.data.transitions import Trajectory
from lit_rl.envs.spaces import Spaces
from lit_rl.errors import UsageError
from lit_rl.functional.tree import Tree

FORMAT, VERSION = "lit_rl.episodes", 1
SUFFIXES = (".jsonl", ".ndjson", ".json")
DTYPES = ("bool", "uint8", "int8", "int16", "int32", "int64", "float32", "float64")


class JsonLines:
    """The episodes of a file, found by where their lines begin; a line is parsed when it is read.

    A ``.gz`` cannot be read from the middle: it is unpacked into a temporary file, which goes with the process.

    Raises:
        UsageError: the file cannot be read, holds no episode, or has a header that is not understood.
    """

    def __init__(self, path: str | Path) -> None:
        self.name = str(path)
        self.spaces: Spaces | None = None
        self.env_id: str | None = None
        self._cut = False  # where a .gz ends too early
        self._file = self._open(Path(path))
        self._starts: list[int] = []
        start = 0
        for line in self._file:
            if line.strip():
                self._starts.append(start)
            start += len(line)
        if self._starts and (header := self._header(self._line(0))):
            del self._starts[0]
            self._read_header(header)
        if self._cut:
            self._starts.append(start)
        if not self._starts:
            raise UsageError(f"--input: {self.name} is empty: it holds no episode")

    def __len__(self) -> int:
        return len(self._starts)

    def read(self, index: int, spaces: Spaces) -> Trajectory:
        line = self._line(index)
        try:
            found = json.loads(line)
        except (ValueError, RecursionError):
            whole = "is no whole JSON object" if line else "is missing"
            raise self._bad(index, f"its line {whole}: the file is cut off or damaged") from None
        if not isinstance(found, dict):
            raise self._bad(index, "its line is no JSON object")
        missing = [n for n in ("observations", "actions", "rewards") if n not in found]
        if missing:
            raise self._bad(index, f"it has no {', '.join(missing)}; it has {', '.join(map(str, found)) or 'nothing'}")
        try:
            obs, action, reward = (_unpacked(found[name]) for name in ("observations", "actions", "rewards"))
            terminated = bool(found.get("terminated", False))
            return checked(spaces, index, obs, action, reward, terminated, found.get("action_logp"))
        except BadEpisode as error:
            raise self._bad(index, str(error)) from None

    def _bad(self, index: int, reason: str) -> BadEpisode:
        return BadEpisode(f"{self.name}, episode {index}: {reason}")

    def _line(self, index: int) -> bytes:
        self._file.seek(self._starts[index])
        return self._file.readline()

    def _open(self, path: Path) -> IO[bytes]:
        try:
            if path.suffix != ".gz":
                return open(path, "rb")
            unpacked = tempfile.TemporaryFile()
            try:
                with gzip.open(path) as packed:
                    while part := packed.read1(1 << 16):  # read() would lose what stands before the cut
                        unpacked.write(part)
            except (EOFError, zlib.error, gzip.BadGzipFile) as error:
                if isinstance(error, gzip.BadGzipFile) and unpacked.tell() == 0:
                    raise UsageError(f"--input: {path} is no gzip file") from None
                self._cut = True
            unpacked.seek(0)
            return unpacked
        except OSError as error:
            raise UsageError(f"--input: {path} cannot be read: {error.strerror or error}") from None

    def _header(self, line: bytes) -> dict[str, Any] | None:
        if b'"format"' not in line[:200]:
            return None
        try:
            found = json.loads(line)
        except ValueError:
            return None
        return found if isinstance(found, dict) and "format" in found else None

    def _read_header(self, header: dict[str, Any]) -> None:
        if header["format"] != FORMAT or header.get("version") != VERSION:
            given = f"format {header['format']!r}, version {header.get('version')!r}"
            raise UsageError(f"--input: {self.name} has {given}; this release reads {FORMAT!r}, version {VERSION}")
        self.env_id = header.get("env_id")
        if "spaces" in header:
            try:
                self.spaces = spaces_from_json(header["spaces"])
            except UsageError as error:
                raise UsageError(f"--input: {self.name}: its header: {error}") from None


def _unpacked(value: Any) -> Any:
    """Arrays of base64 among a value's parts as arrays; lists at the top of a Tuple's parts stay lists."""
    if isinstance(value, dict) and "base64" in value:
        dtype, shape = value.get("dtype"), value.get("shape")
        if dtype not in DTYPES or not isinstance(shape, list):
            raise BadEpisode(f"a base64 array needs a shape and one of the dtypes {', '.join(DTYPES)}")
        try:
            return np.frombuffer(base64.b64decode(value["base64"], validate=True), dtype).reshape(shape)
        except (binascii.Error, ValueError, TypeError):
            raise BadEpisode("a base64 array does not hold what its dtype and shape say") from None
    if isinstance(value, dict) and "tuple" in value:
        return tuple(_unpacked(part) for part in value["tuple"])
    if isinstance(value, dict):
        return {key: _unpacked(part) for key, part in value.items()}
    return value


def to_json(value: Tree) -> Any:
    """A tree of arrays as :func:`_unpacked` reads it: bytes as base64, other numbers as lists."""
    if isinstance(value, dict):
        return {key: to_json(part) for key, part in value.items()}
    if isinstance(value, tuple):
        return {"tuple": [to_json(part) for part in value]}
    if value.dtype == np.uint8:
        text = base64.b64encode(np.ascontiguousarray(value).tobytes()).decode()
        return {"dtype": "uint8", "shape": list(value.shape), "base64": text}
    if value.dtype == np.float32:  # the shortest decimals that are read back to the same number
        return json.loads(_short(value))
    return value.tolist()


def _short(value: np.ndarray) -> str:
    shown: np.ndarray = value.astype(str).astype(object)
    return json.dumps(shown.tolist()).replace('"', "")


def spaces_to_json(spaces: Spaces) -> Any:
    """Spaces in JSON's types; infinite bounds as "inf" and "-inf". Frames are recorded one by one."""
    return {name: _to_json(space) for name, space in spaces.to_plain().items() if name != "frame_stack"}


def spaces_from_json(plain: Any) -> Spaces:
    """The spaces that :func:`spaces_to_json` described; raises UsageError."""
    try:
        return Spaces.from_plain({**_from_json(plain), "frame_stack": 1})
    except (TypeError, ValueError, KeyError) as error:
        if isinstance(error, UsageError):
            raise
        raise UsageError(f"this is no description of spaces ({error})") from None


def _to_json(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _to_json(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_to_json(part) for part in value]
    if isinstance(value, torch.Tensor):
        return _to_json(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def _from_json(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    found = {key: _from_json(part) for key, part in value.items()}
    if "spaces" in found:
        parts = found["spaces"]
        pairs = [[part[0], _from_json(part[1])] if isinstance(part, list) else _from_json(part) for part in parts]
        return found | {"spaces": pairs}
    for side in ("low", "high"):
        if side in found:
            bound = found[side]
            exact = torch.tensor(_finite(bound), dtype=torch.float64) if isinstance(bound, list) else _finite(bound)
            found[side] = exact
    return found


def _finite(bound: Any) -> Any:
    return [_finite(part) for part in bound] if isinstance(bound, list) else float(bound)
