"""Deep Q-learning: Mnih et al. 2015, "Human-level control through deep reinforcement learning".

Double Q-learning (van Hasselt et al. 2016), dueling heads (Wang et al. 2016) and n-step targets are options.
Differences from the paper: Adam instead of RMSprop, the Huber loss in place of error clipping (the same gradient), soft
target updates where ``tau`` is below 1, and gradients clipped by norm.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from lit_rl.algorithms.base import Algorithm, AlgorithmConfig, Loss, Optimize, Progress, Updated
from lit_rl.data.config import at_least
from lit_rl.data.plans import ReplayPlan
from lit_rl.data.transitions import Transitions
from lit_rl.envs.spaces import Spaces
from lit_rl.errors import UsageError
from lit_rl.functional.losses import huber
from lit_rl.functional.schedules import Schedule
from lit_rl.functional.tree import Tree
from lit_rl.networks.target import Follower
from lit_rl.policies.epsilon_greedy import EpsilonGreedy, QNetwork


@dataclass
class DQNConfig(AlgorithmConfig):
    """DQN"""

    hidden_sizes: list[int] = field(default_factory=lambda: [256, 256])
    """Widths of the Q-network's hidden layers."""
    activation: str = "relu"
    """Activation of the hidden layers: relu, tanh, elu, gelu or silu."""
    double: bool = True
    """Double Q-learning: the online network chooses the next action, the target network values it."""
    dueling: bool = False
    """Dueling heads: Q = V + A - mean(A)."""
    n_step: int = 1
    """Env steps of reward before the bootstrap."""
    epsilon: Schedule = field(default_factory=lambda: [[0, 1.0], [10_000, 0.02]])
    """Probability of a random action: a number, or [[env_step, value], ...]."""
    batch_size: int = 64
    """Transitions of one update, on each rank."""
    buffer_size: int = 50_000
    """Rows of the replay buffer, over all envs and ranks."""
    learning_starts: int = 1_000
    """Env steps before the first update."""
    collect_per_step: int = 4
    """Env steps between two rounds of updates; it must divide steps_per_iteration."""
    update_per_step: float = 0.25
    """Updates per env step; a fraction is carried over."""
    target_update_every: int = 500
    """Updates between two updates of the target network."""
    tau: float = 1.0
    """Share of the online network in a target update: 1 copies it, less moves towards it."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_schedules(epsilon=(0.0, 1.0))
        for name in ("n_step", "batch_size", "collect_per_step", "target_update_every"):
            at_least(name, getattr(self, name), 1)
        at_least("buffer_size", self.buffer_size, 1)
        at_least("learning_starts", self.learning_starts, 0)
        at_least("update_per_step", self.update_per_step, 0)
        if not 0 < self.tau <= 1:
            raise UsageError(f"--tau {self.tau} is out of range: it must be above 0 and at most 1")
        if any(size < 1 for size in self.hidden_sizes):
            raise UsageError(f"--hidden_sizes {self.hidden_sizes} must be positive widths")


class DQN(Algorithm):
    """Q-learning with a target network and experience replay."""

    Config = DQNConfig
    config: DQNConfig
    policy: EpsilonGreedy

    def __init__(self, spaces: Spaces, config: DQNConfig) -> None:
        q = QNetwork(spaces, config.hidden_sizes, config.activation, config.dueling)
        super().__init__(spaces, config, EpsilonGreedy(spaces, q, config.epsilon))
        self._target = Follower(q)
        self.target = self._target.follower

    @property
    def plan(self) -> ReplayPlan:
        c = self.config
        return ReplayPlan(
            steps_per_iteration=c.steps_per_iteration,
            collect_per_step=c.collect_per_step,
            update_per_step=c.update_per_step,
            batch_size=c.batch_size,
            buffer_size=c.buffer_size,
            learning_starts=c.learning_starts,
            gamma=c.gamma,
            n_step=c.n_step,
        )

    def groups(self) -> dict[str, list[nn.Parameter]]:
        return {"q": list(self.policy.actor.parameters())}

    def start_from_policy(self) -> None:
        self._target.move(1.0)

    def update(self, batch: Transitions, optimize: Optimize, progress: Progress) -> Updated:
        metrics, td_error = optimize("q", self.q_loss, batch)
        if (progress.updates + 1) % self.config.target_update_every == 0:
            self._target.move(self.config.tau)
        return Updated(metrics, td_error)

    def q_loss(self, batch: Transitions) -> Loss:
        """Huber loss of the TD error (Mnih et al. 2015, algorithm 1)."""
        q_B = self.policy.q_values(batch.obs).gather(1, batch.action[:, None]).squeeze(1)
        with torch.no_grad():
            target_B = batch.reward + batch.discount * self.bootstrap(batch.next_obs)
        td_error_B = target_B - q_B
        loss = (batch.weight * huber(td_error_B)).mean()
        return Loss(loss, {"loss": loss, "q": q_B.mean()}, td_error_B)

    def bootstrap(self, next_obs: Tree) -> Tensor:
        """The target network's value of the next observation (van Hasselt et al. 2016, eq. 4, if double)."""
        target_q_BA: Tensor = self.target(next_obs)
        if not self.config.double:
            return target_q_BA.max(1).values
        action_B = self.policy.q_values(next_obs).argmax(1, keepdim=True)
        return target_q_BA.gather(1, action_B).squeeze(1)
