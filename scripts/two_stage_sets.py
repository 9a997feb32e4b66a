"""What scripts/reproduce.py two_stage trains: the environments, the data's makers, and the commands."""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass, field
from typing import Any

DATA_SEED = 100  # of the policy that makes the data: no run has it
LEVELS = (0.2, 0.4, 0.6, 0.8)  # of the expert's return above random that the medium set's checkpoints should have
CANDIDATES = 3  # checkpoints played to find the one nearest to a level
WORK = "output/two_stage"  # data and runs, below the checkout
FILES = {"expert": "expert.jsonl", "medium": "medium-*.jsonl"}
SHARED: dict[str, Any] = {"enable_progress_bar": False, "logger": False, "test_episodes": 100, "episode_per_test": 30}
NO_REMEDY: dict[str, Any] = {"anchor": 0.0, "critic_warmup": 0, "offline_fraction": 0.0}


@dataclass(frozen=True)
class Set:
    """An environment, the algorithm that makes its data and the online one that refines, and what is measured there."""

    name: str
    env: str
    teacher: str  # makes the data
    imitators: tuple[str, ...]  # learn from it; the last one is refined
    online: str
    solved: float
    random: float  # mean return of random actions
    episodes: int  # of the medium set; the expert's has half as many
    teacher_settings: dict[str, Any] = field(default_factory=dict)
    shared: dict[str, Any] = field(default_factory=dict)  # of all runs
    offline: dict[str, Any] = field(default_factory=dict)  # of stage 1
    refined: dict[str, Any] = field(default_factory=dict)  # of stage 2
    control: dict[str, Any] = field(default_factory=dict)  # of stage 2, besides NO_REMEDY
    scratch: dict[str, Any] = field(default_factory=dict)

    @property
    def kinds(self) -> list[str]:
        """What is run with each seed."""
        imitation = [f"{algo}-{data}" for data in FILES for algo in self.imitators]
        return [*imitation, "two-stage", "control", "scratch"]

    def settings(self, kind: str) -> dict[str, Any]:
        """The flags of a kind of run, without its seed and its folder."""
        given = {"env": self.env} | self.shared
        if kind == "scratch":
            return {"algo": self.online} | given | self.scratch | SHARED
        algo, _, data = kind.partition("-") if kind in self.kinds[:-3] else (self.imitators[-1], "", "medium")
        given |= {"algo": algo, "input": f"{WORK}/{self.name}/data/{FILES[data]}"} | self.offline
        if kind in ("two-stage", "control"):
            bare = kind == "control"
            step2 = {"algo": self.online} | self.refined | (NO_REMEDY | self.control if bare else {})
            given |= {"two_steps": True, "patience_2": 10_000, "step2": step2}
        return given | SHARED

    def command(self, kind: str, seed: int | str) -> str:
        """What a user types."""
        flags = []
        for name, value in (self.settings(kind) | {"seed": seed}).items():
            text = value if isinstance(value, str) else json.dumps(value)
            flags.append(f"--{name}" if value is True else f"--{name} {text if text == '$SEED' else shlex.quote(text)}")
        return " ".join(["python train.py", *flags])


SETS = (
    Set(
        "cartpole",
        "CartPole-v1",
        "PPO",
        ("BC", "MARWIL"),
        "PPO",
        solved=475.0,
        random=22.0,
        episodes=200,
        teacher_settings={"step_per_epoch": 1536, "max_epochs": 64},
        shared={"tuned": False},
        offline={"step_per_epoch": 500, "max_epochs": 12},
        refined={"step_per_epoch": 1024, "rollout_length": 1024, "max_epochs": 16},
        control={"lr": 1e-3, "entropy_coeff": 0.01},
        scratch={"step_per_epoch": 1024, "rollout_length": 1024, "max_epochs": 40},
    ),
    Set(
        "pendulum",
        "Pendulum-v1",
        "SAC",
        ("BC", "MARWIL", "IQL"),
        "SAC",
        solved=-200.0,
        random=-1230.0,
        episodes=200,
        teacher_settings={"step_per_epoch": 250, "steps_per_iteration": 250, "max_epochs": 60},
        offline={"step_per_epoch": 500, "max_epochs": 10},
        refined={"step_per_epoch": 250, "steps_per_iteration": 250, "max_epochs": 16, "lr": 1e-3},
        control={"alpha": 1.0, "learning_starts": 0, "random_steps": 0},
        scratch={"step_per_epoch": 250, "steps_per_iteration": 250, "max_epochs": 40},
    ),
    Set(
        "lunarlander",
        "LunarLander-v3",
        "PPO",
        ("BC", "MARWIL"),
        "PPO",
        solved=200.0,
        random=-180.0,
        episodes=400,
        teacher_settings={"step_per_epoch": 16_384, "max_epochs": 60},
        offline={"step_per_epoch": 2000, "max_epochs": 10},
        refined={"step_per_epoch": 16_384, "max_epochs": 16, "lr": 1e-4, "clip": 0.1, "entropy_coeff": 0.0},
        control={"lr": 3e-4, "clip": 0.2, "entropy_coeff": 0.01},
        scratch={"step_per_epoch": 16_384, "max_epochs": 80},
    ),
)
