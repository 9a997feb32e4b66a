"""The settings of the small commands.

They stand apart from what the commands import: reading their types, jsonargparse imports what ``TYPE_CHECKING`` does.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from lit_rl.data.config import at_least
from lit_rl.errors import UsageError

EPISODES = 20


@dataclass
class RolloutSettings:
    """Play episodes with a trained policy and print how it did. A run's folder stands for its best checkpoint."""

    checkpoint: str
    """A checkpoint, or a run's folder."""
    algo: str | None = None
    """Algorithm that the checkpoint must hold; your own, module:Class, is imported. Alias: --run."""
    custom_model: str | None = None
    """Your own network that the checkpoint names, module:Class: its module is imported."""
    env: str | None = None
    """Environment to play in, of the spaces that the policy was made for; by default the one it learned in."""
    env_config: dict[str, Any] = field(default_factory=dict)
    """Keyword arguments of the environment, over those it was trained with."""
    episodes: int | None = None
    """Episodes to play, by default 20; their seeds are those of the final test."""
    steps: int | None = None
    """Env steps to play, instead of a number of episodes; the last episode is cut there and does not count."""
    seed: int = 0
    """Seed of the episodes and of exploration."""
    explore: bool = False
    """Act as at the end of training instead of greedily."""
    num_envs: int = 1
    """Environments side by side: faster, and no other result where --episodes are played."""
    render: bool = False
    """Show the episodes in a window."""
    video_dir: str | None = None
    """Folder for films of the episodes, an mp4 each (extra: video)."""
    out: str | None = None
    """Make a data set of the episodes: a new .jsonl or .jsonl.gz file, minari:<id> or minari-path:<folder> (extra: offline)."""

    def __post_init__(self) -> None:
        for name in ("episodes", "steps", "num_envs"):
            if getattr(self, name) is not None:
                at_least(name, getattr(self, name), 1)
        at_least("seed", self.seed, 0)
        if not all(isinstance(key, str) for key in self.env_config):
            raise UsageError(f"--env_config is {self.env_config}; give keyword arguments such as {{'gravity': 9.8}}")
        if self.video_dir == "":
            raise UsageError("--video_dir '' must be the path of a folder")
        if self.episodes is not None and self.steps is not None:
            raise UsageError("--episodes and --steps contradict each other: give one of them")
        for flag, given in (("--render", self.render), ("--video_dir", self.video_dir is not None)):
            if given and self.num_envs > 1:
                raise UsageError(f"{flag} shows one environment: leave --num_envs out")
        if self.render and self.video_dir is not None:
            raise UsageError("--render and --video_dir contradict each other: give one of them")


@dataclass
class ListSettings:
    """The algorithms, the actions that they can take, and the tuned settings with their reference scores."""


@dataclass
class PlotSettings:
    """Draw the evaluations of runs over env steps; runs that differ by their seed alone are one line with a band."""

    runs: list[str]
    """Folders of runs, or folders that hold runs."""
    out: str = "curves.png"
    """The picture: a png, pdf or svg."""


@dataclass
class ExportSettings:
    """Write a trained policy, with its normalisation of observations and its masks, for use without Python."""

    checkpoint: str
    """A checkpoint, or a run's folder."""
    format: Literal["onnx"] = "onnx"
    """onnx: a graph for ONNX Runtime and others (extra: onnx)."""
    out: str | None = None
    """The file; by default beside the checkpoint, with the ending .onnx."""
    custom_model: str | None = None
    """Your own network that the checkpoint names, module:Class: its module is imported."""
