"""Writing episodes where ``--input`` can read them."""

from __future__ import annotations

import gzip
import json
import os
import re
import warnings
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Protocol

import numpy as np

from lit_rl.data.offline.json_lines import FORMAT, SUFFIXES, VERSION, JsonLines, spaces_to_json, to_json
from lit_rl.data.offline.minari_sets import LOG_PROB, MinariEpisodes, import_minari
from lit_rl.data.transitions import Trajectory
from lit_rl.envs.spaces import Spaces
from lit_rl.errors import UsageError, in_one_line
from lit_rl.functional.tree import Tree

FORMS = "a .jsonl or .jsonl.gz file, minari:<id> or minari-path:<folder>"
AT_ONCE = 10_000  # steps that Minari writes together


class EpisodeWriter(Protocol):
    """Takes episodes one by one; each is on disk when ``close`` returns, or earlier."""

    def write(self, episode: Trajectory) -> None:
        """Add an episode; raises UsageError where that fails."""

    def close(self) -> None:
        """Write what is left and close the file."""

    def discard(self) -> None:
        """Leave nothing of a new data set behind."""


def check_target(path: str, append: bool = False) -> None:
    """Refuse what :func:`open_writer` would refuse of a path, and create nothing.

    Raises:
        UsageError: a path of no known kind, or one that exists where nothing may be added.
    """
    kind, colon, rest = path.partition(":")
    if colon and kind in ("minari", "minari-path"):
        MinariWriter(rest, kind == "minari-path", None, None, append)
    elif (there := _json_lines(path)).exists() and there.stat().st_size > 0 and not append:
        raise UsageError(f"{path} exists already: give another name")


def _json_lines(path: str) -> Path:
    """The file that a path names, by its suffix."""
    file = Path(path).expanduser()
    if (file.with_suffix("") if file.suffix == ".gz" else file).suffix not in SUFFIXES:
        raise UsageError(f"{path} is no place for episodes: give {FORMS}")
    return file


def open_writer(
    path: str,
    spaces: Spaces,
    env_id: str | None = None,
    append: bool = False,
    about: Mapping[str, Any] | None = None,
) -> EpisodeWriter:
    """A writer of episodes with these spaces.

    Args:
        path: a ``.jsonl`` or ``.jsonl.gz`` file, ``minari:<id>`` or ``minari-path:<folder>``.
        spaces: of the environment.
        env_id: of the environment, where it has one.
        append: add to a data set that is there; without it that is refused.
        about: what else the header of JSON lines says: algorithm, checkpoint, gamma.

    Raises:
        UsageError: a path of no known kind, one that exists, or one that cannot be written.
    """
    kind, colon, rest = path.partition(":")
    if colon and kind in ("minari", "minari-path"):
        return MinariWriter(rest, kind == "minari-path", spaces, env_id, append)
    return JsonLinesWriter(_json_lines(path), spaces, env_id, append, about or {})


@contextmanager
def writing(path: str, spaces: Spaces, env_id: str | None, about: Mapping[str, Any]) -> Iterator[EpisodeWriter]:
    """A writer of a new data set, which is there, whole, when the block ends well, and not at all when it does not.

    Raises:
        UsageError: as :func:`open_writer`.
    """
    writer = open_writer(path, spaces, env_id, about=about)
    try:
        yield writer
        writer.close()
    except BaseException:
        writer.discard()
        raise


def of_rank(path: str, rank: int) -> str:
    """Where a rank writes: the first to ``path`` itself, the others beside it.

    Raises:
        UsageError: other ranks' episodes have no place in a Minari data set.
    """
    if rank == 0:
        return path
    if path.startswith(("minari:", "minari-path:")):
        raise UsageError(f"--output {path} takes the episodes of one device: give a .jsonl file, or --devices 1")
    name = Path(path)
    stem, dot, suffixes = name.name.partition(".")
    return str(name.with_name(f"{stem}-rank{rank}{dot}{suffixes}"))


class JsonLinesWriter:
    """One episode a line, after a header line (docs/offline.md)."""

    def __init__(self, path: Path, spaces: Spaces, env_id: str | None, append: bool, about: Mapping[str, Any]) -> None:
        self.path = path
        there = path.exists() and path.stat().st_size > 0
        if there and not append:
            raise UsageError(f"{path} exists already: give another name")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            if there:
                (_cut_half_a_member if path.suffix == ".gz" else _cut_half_a_line)(path)
            self._file: IO[bytes] | gzip.GzipFile = gzip.open(path, "ab") if path.suffix == ".gz" else open(path, "ab")
        except (OSError, ValueError) as error:  # a path may hold what none can
            raise UsageError(f"cannot write {path}: {getattr(error, 'strerror', None) or error}") from None
        self._count = len(JsonLines(path)) if there else 0
        if not there:
            header = {"format": FORMAT, "version": VERSION, "env_id": env_id, "spaces": spaces_to_json(spaces)}
            self._line(header | dict(about))

    def write(self, episode: Trajectory) -> None:
        line = {
            "id": self._count,
            "seed": episode.seed,
            "observations": to_json(episode.obs),
            "actions": to_json(episode.action),
            "rewards": to_json(episode.reward),
            "terminated": episode.terminated,
            "truncated": episode.truncated,
            "action_logp": None if episode.log_prob is None else episode.log_prob.tolist(),
        }
        self._line(line)
        self._count += 1

    def _line(self, content: dict[str, Any]) -> None:
        try:
            self._file.write(json.dumps(content, allow_nan=False, separators=(",", ":")).encode() + b"\n")
            self._file.flush()
        except OSError as error:
            raise UsageError(f"cannot write {self.path}: {error.strerror or error}") from None

    def close(self) -> None:
        self._file.close()

    def discard(self) -> None:
        self._file.close()
        self.path.unlink(missing_ok=True)


class MinariWriter:
    """A Minari data set in HDF5, by its id or in a folder of one's own."""

    def __init__(self, target: str, folder: bool, spaces: Spaces | None, env_id: str | None, append: bool) -> None:
        self._minari = import_minari()
        if not re.search(r"\w-v\d+$", target):
            raise UsageError(f"{target} is no name of a Minari data set, which ends in a version: {target}-v0")
        import gymnasium as gym

        self.spaces = spaces
        self._env_id = env_id if env_id in gym.registry else None
        self._root = Path(target).expanduser().absolute().parent if folder else None
        self._id = Path(target).name if folder else target
        self._waiting: list[Any] = []
        self._steps = 0
        self._set: Any = None
        with self._in_root():
            there = self._id in self._minari.list_local_datasets()
            if there and not append:
                raise UsageError(f"the Minari data set {target} exists already: give another name")
            if there:
                self._set = self._minari.load_dataset(self._id)
                MinariEpisodes(target, folder)  # which refuses what it cannot read

    @contextmanager
    def _in_root(self) -> Iterator[None]:
        """Where Minari keeps data sets by id."""
        before = os.environ.get("MINARI_DATASETS_PATH")
        if self._root is not None:
            os.environ["MINARI_DATASETS_PATH"] = str(self._root)
        try:
            with warnings.catch_warnings():  # of authors and permalinks that nobody asked about
                warnings.simplefilter("ignore")
                yield
        except UsageError:
            raise
        except Exception as error:  # of Minari, h5py or the file system
            raise UsageError(f"cannot write the Minari data set {self._id}: {in_one_line(error)}") from None
        finally:
            if before is not None:
                os.environ["MINARI_DATASETS_PATH"] = before
            elif self._root is not None:
                del os.environ["MINARI_DATASETS_PATH"]

    def write(self, episode: Trajectory) -> None:
        from minari.data_collector import EpisodeBuffer

        assert self.spaces is not None
        count = len(episode.reward)
        ended = np.zeros(count, bool)
        ended[-1] = True
        infos = {}
        if episode.log_prob is not None:  # Minari's infos begin with that of the reset
            infos = {LOG_PROB: np.concatenate([[0.0], episode.log_prob])}
        self._waiting.append(
            EpisodeBuffer(
                seed=episode.seed,
                observations=_in_space(self.spaces.observation, episode.obs),
                actions=episode.action,
                rewards=episode.reward.tolist(),
                terminations=(ended & episode.terminated).tolist(),
                truncations=(ended & episode.truncated).tolist(),
                infos=infos,
            )
        )
        self._steps += count
        if self._steps >= AT_ONCE:
            self._flush()

    def _flush(self) -> None:
        waiting, self._waiting, self._steps = self._waiting, [], 0
        if not waiting:
            return
        assert self.spaces is not None
        with self._in_root():
            if self._set is None:
                self._set = self._minari.create_dataset_from_buffers(
                    self._id,
                    waiting,
                    env=self._env_id,
                    observation_space=self.spaces.observation,
                    action_space=self.spaces.action,
                    algorithm_name="lit_rl",
                    jpeg_encoding=False,
                    data_format="hdf5",
                )
            else:
                self._set.update_dataset_from_buffer(waiting)

    def close(self) -> None:
        self._flush()

    def discard(self) -> None:
        if self._set is not None:
            with self._in_root():
                self._minari.delete_dataset(self._id)


def _in_space(space: Any, obs: Tree) -> Tree:
    """Observations in the dtypes that their space declares, which Minari keeps."""
    import gymnasium as gym

    if isinstance(space, gym.spaces.Dict):
        return {key: _in_space(part, obs[key]) for key, part in space.spaces.items()}
    if isinstance(space, gym.spaces.Tuple):
        return tuple(_in_space(part, x) for part, x in zip(space.spaces, obs, strict=True))
    return obs.astype(space.dtype, copy=False)


def _cut_half_a_member(path: Path) -> None:
    """Pack the whole lines of a ``.gz`` anew where a killed process has left it unfinished: nothing behind the cut is read."""
    anew = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        with open(anew, "wb") as file:
            with gzip.open(path) as packed, gzip.open(file, "wb") as whole:
                line = b""
                try:
                    while part := packed.read1(1 << 16):  # read() would lose what stands before the cut
                        *lines, line = (line + part).split(b"\n")
                        whole.writelines(each + b"\n" for each in lines)
                    return
                except (EOFError, zlib.error, gzip.BadGzipFile):
                    pass
            file.flush()
            os.fsync(file.fileno())
        os.replace(anew, path)
    finally:
        anew.unlink(missing_ok=True)


def _cut_half_a_line(path: Path) -> None:
    """Take back what a killed process has left of a line."""
    with open(path, "rb+") as file:
        size = file.seek(0, os.SEEK_END)
        end = size
        while end > 0:
            start = max(0, end - (1 << 16))
            file.seek(start)
            at = file.read(end - start).rfind(b"\n")
            if at >= 0:
                file.truncate(start + at + 1)
                return
            end = start
        file.truncate(0)
