"""Episodes of a Minari data set (https://minari.farama.org), read one by one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from lit_rl.data.offline.episodes import BadEpisode, checked
from lit_rl.data.transitions import Trajectory
from lit_rl.envs.spaces import Spaces
from lit_rl.errors import UsageError, in_one_line

LOG_PROB = "action_logp"  # the key in infos under which log-probabilities stand


def import_minari() -> Any:
    """The package; raises UsageError where it is not installed."""
    try:
        import minari
    except ImportError as error:
        raise UsageError(
            f"Minari data sets need the extra offline: pip install -e '.[offline]' ({in_one_line(error)})"
        ) from None
    return minari


class MinariEpisodes:
    """The episodes of a data set by its id, or, with ``folder``, of the folder that holds it.

    Raises:
        UsageError: there is none, or it cannot be read.
    """

    def __init__(self, source: str, folder: bool) -> None:
        minari = import_minari()
        self.name = f"minari-path:{source}" if folder else f"minari:{source}"
        try:
            if folder:
                self._set = minari.MinariDataset(_data_folder(Path(source)))
            else:
                self._set = minari.load_dataset(source)
        except FileNotFoundError:
            raise UsageError(self._missing(minari, source, folder)) from None
        except UsageError:
            raise
        except Exception as error:  # whatever a damaged file makes of it
            raise UsageError(f"--input: {self.name} cannot be read: {in_one_line(error)}") from None
        self.spaces: Spaces | None = Spaces(self._set.observation_space, self._set.action_space)
        spec = self._set.env_spec
        self.env_id: str | None = None if spec is None else spec.id
        if not len(self._set.episode_indices):
            raise UsageError(f"--input: {self.name} is empty: it holds no episode")

    def _missing(self, minari: Any, source: str, folder: bool) -> str:
        if folder:
            return f"--input: {source} holds no Minari data set (data/metadata.json and data/main_data.hdf5)"
        try:
            known = sorted(minari.list_local_datasets())
        except Exception:  # a damaged neighbour
            known = []
        there = f"; here are {', '.join(known[:5])}" if known else ""
        return f"--input: there is no Minari data set {source} on this machine{there}; minari download {source} fetches one"

    def __len__(self) -> int:
        return len(self._set.episode_indices)

    def read(self, index: int, spaces: Spaces) -> Trajectory:
        try:
            found = self._set[index]
        except Exception as error:  # h5py's own, where the file is cut off or an episode has no step
            raise self._bad(index, f"it cannot be read ({in_one_line(error)}): it has no step or is damaged") from None
        try:
            log_prob = (found.infos or {}).get(LOG_PROB)
            if log_prob is not None and len(log_prob) == len(found.rewards) + 1:
                log_prob = log_prob[1:]  # infos begin with that of the reset
            if len(found.terminations) != len(found.rewards):
                raise BadEpisode(f"it has {len(found.terminations)} terminations and {len(found.rewards)} rewards")
            terminated = bool(len(found.terminations) and np.asarray(found.terminations)[-1])
            return checked(spaces, index, found.observations, found.actions, found.rewards, terminated, log_prob)
        except BadEpisode as error:
            raise self._bad(index, str(error)) from None

    def _bad(self, index: int, reason: str) -> BadEpisode:
        return BadEpisode(f"{self.name}, episode {index}: {reason}")


def _data_folder(folder: Path) -> Path:
    """Where the files lie: a data set's own folder has them in ``data``. Raises FileNotFoundError where there are none."""
    if not folder.is_dir():
        raise UsageError(f"--input: there is no folder {folder}")
    data = folder / "data" if (folder / "data").is_dir() else folder
    if not (data / "metadata.json").exists():
        raise FileNotFoundError
    return data
