"""What a line of flags comes to."""

from __future__ import annotations

from dataclasses import dataclass, field

from lit_rl.algorithms.base import Algorithm, AlgorithmConfig
from lit_rl.cli.arguments import from_argv
from lit_rl.cli.resolve import Resolved, resolve
from lit_rl.functional.schedules import Schedule
from lit_rl.pipeline.settings import Settings, StageSettings


def resolved(*argv: str) -> Resolved:
    return resolve(from_argv(list(argv)))


def settings(*argv: str) -> Settings:
    return resolved(*argv).settings


def second(*argv: str) -> StageSettings:
    stage = settings("--two_steps", *argv).stage2
    assert stage is not None
    return stage


@dataclass
class TwoRatesConfig(AlgorithmConfig):
    """two rates"""

    actor_lr: Schedule = 1e-3
    """Learning rate of the actor."""
    critic_lr: Schedule = field(default_factory=lambda: [[0, 1.0], [100, 0.5]])
    """Learning rate of the critic."""
    entropy: Schedule = field(default_factory=lambda: [[0, 0.2], [100, 0.1]])
    """Weight of the entropy bonus."""


class TwoRates(Algorithm):
    """An algorithm with several learning rates, by its settings only."""

    Config = TwoRatesConfig


@dataclass
class ClashingConfig(AlgorithmConfig):
    seed: int = 3


class Clashing(Algorithm):
    """An algorithm whose setting has the name of a flag of every run."""

    Config = ClashingConfig
