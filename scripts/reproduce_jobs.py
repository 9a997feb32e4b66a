"""What scripts/reproduce.py trains: the rows of docs/results.md."""

from __future__ import annotations

import fcntl
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SEEDS = (0, 1, 2, 3, 4)
OURS, SB3 = "lit_rl", "stable-baselines3"


@dataclass(frozen=True)
class Job:
    """An algorithm on an environment: the env steps it may make, and what its mean test return must reach.

    Without a ``goal`` it is compared with stable-baselines3, which then trains beside it.
    """

    set: str
    algo: str
    env: str
    budget: int
    goal: float | None = None
    flags: tuple[str, ...] = ()
    seeds: tuple[int, ...] = SEEDS

    @property
    def name(self) -> str:
        return f"{self.set}/{self.algo.lower()}"

    @property
    def libraries(self) -> tuple[str, ...]:
        """Whose runs it takes, in their order for each seed."""
        return (OURS,) if self.goal is not None else (OURS, SB3)

    def command(self, seed: int | str) -> str:
        """What a user types."""
        flags = "".join(f" {shlex.quote(flag)}" for flag in self.flags)
        return f"python train.py --algo {self.algo} --env {self.env}{flags} --seed {seed}"

    def run_name(self, seed: int, library: str = OURS) -> str:
        """The name of a run below its set."""
        return f"{self.algo.lower()}{'' if library == OURS else '-sb3'}-seed{seed}"

    def result(self, results: Path, seed: int, library: str = OURS) -> Path:
        """Where a finished run is kept."""
        return results / self.set / f"{self.run_name(seed, library)}.json"


JOBS = (
    Job("cartpole", "DQN", "CartPole-v1", 50_000, 490),
    Job("cartpole", "PPO", "CartPole-v1", 100_000, 490),
    Job("cartpole", "A2C", "CartPole-v1", 500_000, 490),
    Job("cartpole", "PG", "CartPole-v1", 200_000, 450),
    Job("cartpole", "ES", "CartPole-v1", 500_000, 450),
    Job("pendulum", "SAC", "Pendulum-v1", 20_000, -170),
    Job("pendulum", "TD3", "Pendulum-v1", 20_000, -170),
    Job("pendulum", "DDPG", "Pendulum-v1", 20_000, -170),
    Job("pendulum", "PPO", "Pendulum-v1", 100_000, -200),
    Job("mountaincar", "DQN", "MountainCar-v0", 120_000, -115),
    Job("acrobot", "DQN", "Acrobot-v1", 100_000, -85),
    Job("acrobot", "PPO", "Acrobot-v1", 500_000, -85),
    Job("lunarlander", "PPO", "LunarLander-v3", 1_000_000, 240),
    Job("lunarlander", "DQN", "LunarLander-v3", 100_000, 150),
    Job("lunarlander-continuous", "SAC", "LunarLanderContinuous-v3", 150_000, 230, seeds=(0, 1, 2)),
    Job("halfcheetah", "SAC", "HalfCheetah-v5", 100_000, flags=("--max_epochs", "10")),
    Job("halfcheetah", "TD3", "HalfCheetah-v5", 100_000, flags=("--max_epochs", "10")),
    Job("halfcheetah", "PPO", "HalfCheetah-v5", 1_000_000),
)


def chosen(names: list[str]) -> list[Job]:
    """The jobs of these sets, or of a set's one algorithm, in the order of the names; without names all.

    Raises:
        ValueError: a name that is none.
    """
    for name in names:
        if not any(name in (job.set, job.name) for job in JOBS):
            known = ", ".join(dict.fromkeys(job.set for job in JOBS))
            raise ValueError(f"no set {name}; there are {known} and two_stage, and {JOBS[0].name} is a part of a set")
    found = [job for name in names for job in JOBS if name in (job.set, job.name)]
    return list(dict.fromkeys(found)) if names else list(JOBS)


@contextmanager
def claimed(path: Path, wait: bool = False) -> Iterator[bool]:
    """Whether no other process works on what ``path`` stands for, or, after a ``wait``, does so any more; the claim ends with
    this process at the latest."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            yield False
            return
        yield True


def seeds_of_commits(runs: list[dict[str, Any]]) -> dict[str, list[int]]:
    """The seeds that were run at each commit, by its short name."""
    found: dict[str, list[int]] = {}
    for run in runs:
        found.setdefault(run["commit"][:7], []).append(run["seed"])
    return found


def provenance(runs: list[dict[str, Any]]) -> str:
    """The commit of a row's runs; where there are several, which seed was run at which."""
    found = seeds_of_commits(runs)
    if len(found) == 1:
        return f"commit {next(iter(found))}"
    parts = [f"{commit} (seed {', '.join(map(str, seeds))})" for commit, seeds in found.items()]
    return f"a mix of {len(found)} commits: {', '.join(parts)}"
