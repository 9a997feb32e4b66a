"""What ``--input`` names: files, folders and data sets, alone or mixed by probability."""

from __future__ import annotations

import glob
import math
from collections.abc import Mapping
from pathlib import Path

from lit_rl.data.offline.episodes import EpisodeSet
from lit_rl.data.offline.json_lines import SUFFIXES, JsonLines
from lit_rl.data.offline.minari_sets import MinariEpisodes
from lit_rl.errors import UsageError

Input = str | Mapping[str, float]
FORMS = "minari:<id>, minari-path:<folder>, a .jsonl or .jsonl.gz file, a glob of them, or {source: probability}"


def open_input(given: Input) -> list[tuple[float, list[EpisodeSet]]]:
    """The sources of an ``--input``, each with its probability and the sets of episodes that it stands for.

    Raises:
        UsageError: what is named is not there, cannot be read or is empty, or the probabilities are none.
    """
    sources = {given: 1.0} if isinstance(given, str) else dict(given)
    if not sources:
        raise UsageError(f"--input {{}} names nothing; give {FORMS}")
    for source, probability in sources.items():
        if isinstance(probability, bool) or not isinstance(probability, int | float) or not 0 < probability < math.inf:
            raise UsageError(f"--input: {source} has the probability {probability}; give numbers above 0, such as 0.5")
    total = sum(sources.values())
    return [(probability / total, _open(source)) for source, probability in sources.items()]


def _open(source: str) -> list[EpisodeSet]:
    if not isinstance(source, str) or not source.strip():
        raise UsageError(f"--input {source!r} names nothing; give {FORMS}")
    kind, colon, rest = source.partition(":")
    if colon and kind in ("minari", "minari-path"):
        return [MinariEpisodes(rest, folder=kind == "minari-path")]
    path = Path(source).expanduser()
    if path.is_dir():
        paths = sorted(file for file in path.iterdir() if _is_json_lines(file))
        if not paths:
            raise UsageError(
                f"--input: the folder {source} holds no .jsonl file; for a Minari one, minari-path:{source}"
            )
    else:
        paths = [path] if path.exists() else [Path(p) for p in sorted(glob.glob(str(path), recursive=True))]
    if not paths:
        raise UsageError(f"--input: there is no {source}; give {FORMS}")
    return [JsonLines(path) for path in paths]


def _is_json_lines(path: Path) -> bool:
    return path.is_file() and (path.with_suffix("") if path.suffix == ".gz" else path).suffix in SUFFIXES
