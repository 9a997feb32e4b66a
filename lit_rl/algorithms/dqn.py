"""Deep Q-learning: Mnih et al. 2015, "Human-level control through deep reinforcement learning".

Rainbow (Hessel et al. 2018, arXiv:1710.02298) by its parts, each an option: double Q-learning (van Hasselt et al. 2016),
dueling heads (Wang et al. 2016), n-step targets, prioritized replay (Schaul et al. 2016), noisy networks (Fortunato et al.
2018) and distributions of returns (C51, Bellemare et al. 2017), which the value head knows and nothing here does.
Differences from the paper: Adam instead of RMSprop, the Huber loss in place of error clipping (the same gradient), soft
target updates where ``tau`` is below 1, and gradients clipped by norm. Noisy layers are all but an image's convolutions, and
evaluation uses their mean weights.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from lit_rl.algorithms.base import Algorithm, Loss, Optimize, Progress, Updated
from lit_rl.algorithms.replay import ReplayConfig
from lit_rl.data.config import at_least
from lit_rl.data.plans import ReplayPlan
from lit_rl.data.transitions import Transitions
from lit_rl.envs.spaces import Spaces
from lit_rl.errors import UsageError
from lit_rl.functional.schedules import Schedule
from lit_rl.functional.tree import Tree
from lit_rl.networks.target import Follower
from lit_rl.policies.epsilon_greedy import EpsilonGreedy, QNetwork


@dataclass
class DQNConfig(ReplayConfig):
    """DQN"""

    batch_size: int = 64
    """Transitions of one update, on each rank."""
    buffer_size: int = 50_000
    """Rows of the replay buffer, over all envs and ranks."""
    collect_per_step: int = 4
    """Env steps between two rounds of updates; it must divide steps_per_iteration."""
    update_per_step: float = 0.25
    """Updates per env step; a fraction is carried over."""
    epsilon: Schedule = field(default_factory=lambda: [[0, 1.0], [10_000, 0.02]])
    """Probability of a random action: a number, or [[env_step, value], ...]; 0 with --noisy, whatever stands here."""
    target_update_every: int = 500
    """Updates between two updates of the target network."""
    tau: float = 1.0
    """Share of the online network in a target update: 1 copies it, less moves towards it."""
    double: bool = True
    """Double Q-learning: the online network chooses the next action, the target network values it."""
    dueling: bool = False
    """Dueling heads: Q = V + A - mean(A)."""
    noisy: bool = False
    """Explore by learned noise in the weights instead of epsilon."""
    sigma0: float = 0.5
    """Noise of noisy weights at the start."""
    num_atoms: int = 1
    """Atoms of the distribution of returns (C51); 1 learns their mean only."""
    v_min: float = -10.0
    """The smallest return that the atoms cover."""
    v_max: float = 10.0
    """The largest return that the atoms cover."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_schedules(epsilon=(0.0, 1.0))
        for name in ("target_update_every", "num_atoms"):
            at_least(name, getattr(self, name), 1)
        at_least("sigma0", self.sigma0, 0)
        if not self.v_min < self.v_max:
            raise UsageError(f"--v_min {self.v_min} must be below --v_max {self.v_max}")


class DQN(Algorithm):
    """Q-learning with a target network and experience replay."""

    Config = DQNConfig
    config: DQNConfig
    policy: EpsilonGreedy

    def __init__(self, spaces: Spaces, config: DQNConfig) -> None:
        c = config
        sigma0, epsilon = (c.sigma0, 0.0) if c.noisy else (None, c.epsilon)
        atoms = (c.num_atoms, c.v_min, c.v_max) if c.num_atoms > 1 else None
        q = QNetwork(spaces, c.architecture, c.dueling, sigma0, atoms)
        super().__init__(spaces, config, EpsilonGreedy(spaces, q, epsilon))
        self._target = Follower(q)
        self.target = self._target.follower

    @property
    def plan(self) -> ReplayPlan:
        return self.config.plan(noise=(3, self.policy.actor.noise_size))  # one row for each pass through a network

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
        """The loss of the TD error (Mnih et al. 2015, algorithm 1)."""
        q, head = self.policy.actor, self.policy.actor.head
        out_B = head.of_action(q.outputs(batch.obs, batch.noise[:1]), batch.action)
        with torch.no_grad():
            next_out_B = self.bootstrap(batch.next_obs, batch.noise[1:])
            target_B = head.bellman(batch.reward, batch.discount, next_out_B)
        loss_B, td_error_B = head.loss(out_B, target_B)
        loss = (batch.weight * loss_B).mean()
        return Loss(loss, {"loss": loss, "q": head.values(out_B).mean()}, td_error_B)

    def bootstrap(self, next_obs: Tree, noise: Tensor) -> Tensor:
        """The target network's value of the next observation (van Hasselt et al. 2016, eq. 4, if double)."""
        q = self.policy.actor
        out = self.target.outputs(next_obs, noise[:1])
        choosing = q.outputs(next_obs, noise[1:]) if self.config.double else out
        return q.head.of_action(out, q.values(choosing, next_obs).argmax(1))
