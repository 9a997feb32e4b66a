"""Settings that all algorithms with a replay buffer share, and the plan that follows from them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from lit_rl.algorithms.base import AlgorithmConfig
from lit_rl.data.config import at_least
from lit_rl.data.plans import Prioritized, ReplayPlan
from lit_rl.errors import UsageError
from lit_rl.functional.schedules import Schedule


@dataclass
class ReplayConfig(AlgorithmConfig):
    """Off-policy learning"""

    hidden_sizes: list[int] = field(default_factory=lambda: [256, 256])
    """Widths of the hidden layers of every network."""
    activation: str = "relu"
    """Activation of the hidden layers: relu, tanh, elu, gelu or silu."""
    n_step: int = 1
    """Env steps of reward before the bootstrap."""
    batch_size: int = 256
    """Transitions of one update, on each rank."""
    buffer_size: int = 1_000_000
    """Rows of the replay buffer, over all envs and ranks."""
    learning_starts: int = 1_000
    """Env steps before the first update."""
    collect_per_step: int = 1
    """Env steps between two rounds of updates; it must divide steps_per_iteration."""
    update_per_step: float = 1.0
    """Updates per env step; a fraction is carried over."""
    tau: float = 0.005
    """Share of the online networks in an update of the targets: 1 copies them, less moves towards them."""
    prioritized: bool = False
    """Replay in proportion to the TD error instead of uniformly."""
    prioritized_alpha: float = 0.6
    """Exponent of the priorities, in [0, 1]; 0 is uniform."""
    prioritized_beta: Schedule = field(default_factory=lambda: [[0, 0.4], [100_000, 1.0]])
    """Exponent of the importance weights, in [0, 1]: a number, or [[env_step, value], ...]."""
    prioritized_eps: float = 1e-6
    """What is added to every absolute TD error, so that nothing is forgotten."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_schedules(prioritized_beta=(0.0, 1.0))
        for name in ("n_step", "batch_size", "collect_per_step", "buffer_size"):
            at_least(name, getattr(self, name), 1)
        for name in ("learning_starts", "update_per_step"):
            at_least(name, getattr(self, name), 0)
        if not 0 < self.tau <= 1:
            raise UsageError(f"--tau {self.tau} is out of range: it must be above 0 and at most 1")
        if not 0 <= self.prioritized_alpha <= 1:
            raise UsageError(
                f"--prioritized_alpha {self.prioritized_alpha} is out of range: it must lie between 0 and 1"
            )
        if not self.prioritized_eps > 0:
            raise UsageError(f"--prioritized_eps {self.prioritized_eps} is out of range: it must be above 0")

    def plan(self, **more: Any) -> ReplayPlan:
        """The plan that these settings describe, with ``more`` of its fields."""
        prioritized = Prioritized(self.prioritized_alpha, self.prioritized_beta, self.prioritized_eps)
        return ReplayPlan(
            steps_per_iteration=self.steps_per_iteration,
            collect_per_step=self.collect_per_step,
            update_per_step=self.update_per_step,
            batch_size=self.batch_size,
            buffer_size=self.buffer_size,
            learning_starts=self.learning_starts,
            gamma=self.gamma,
            n_step=self.n_step,
            prioritized=prioritized if self.prioritized else None,
            **more,
        )
