"""An algorithm and an env for runs on several ranks: they write down what a rank does, or bring one rank down."""

from __future__ import annotations

import hashlib
import math
import os
import time
from pathlib import Path
from typing import Any

import torch
from tiny_runs import Signs

from lit_rl.algorithms.bc import BC
from lit_rl.algorithms.dqn import DQN
from lit_rl.data.hooks import HookedEpisode, Hooks

RANK = int(os.environ.get("RANK", 0))


def digest(*tensors: torch.Tensor) -> str:
    return hashlib.sha1(b"".join(x.detach().numpy().tobytes() for x in tensors)).hexdigest()[:12]


def note(line: str) -> None:
    """Add a line to this rank's file."""
    with open(Path(os.environ["WITNESS"]) / f"rank{RANK}.txt", "a") as file:
        file.write(f"{line}\n")


class Witness(DQN):
    """Notes weights and experience of each update."""

    def update(self, batch: Any, optimize: Any, progress: Any) -> Any:
        if progress.updates == 0:
            note(f"pid {os.getpid()}")
        updated = super().update(batch, optimize, progress)
        weights, targets = list(self.policy.parameters()), list(self.target.parameters())
        note(f"update {progress.env_steps} {digest(*weights, *targets)} {digest(batch.obs, batch.action)}")
        return updated


class Imitator(BC):
    """Notes weights and experience of each update."""

    def update(self, batch: Any, optimize: Any, progress: Any) -> Any:
        updated = super().update(batch, optimize, progress)
        note(f"update {digest(*self.policy.parameters())} {digest(batch.obs, batch.action)}")
        return updated


class Measures(Hooks):
    """Measures each episode, ten more on the second rank, and notes what."""

    def on_episode_end(self, episode: HookedEpisode) -> None:
        episode.custom_metrics["value"] = value = 10 * RANK + episode.return_
        note(f"value {value}")


class Fragile(Signs):
    """Notes its steps; on one rank, something happens at step ``at``."""

    def __init__(self, what: str = "nothing", rank: int = 1, at: int = 30) -> None:
        super().__init__(length=8)
        self.what, self.at, self.made = what if rank == RANK else "nothing", at, 0

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        obs, reward, *rest = super().step(action)
        self.made += 1
        note("step")
        if self.made == self.at:
            if self.what == "reward":
                reward = math.nan
            elif self.what == "raise":
                raise OSError("the simulator is gone")
            elif self.what == "sleep":
                note(f"asleep {os.getpid()}")
                time.sleep(600)
        return obs, reward, *rest
