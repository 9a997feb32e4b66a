"""Conservative Q-learning: Kumar et al. 2020, "Conservative Q-Learning for Offline Reinforcement Learning" (arXiv:2006.04779).

The action values of DQN (Discrete) or SAC (Box), learned by their own losses with a term that lowers what the policy might
choose and raises what was recorded: CQL(H), eq. 4. ``calibrated`` never lowers a value below the return that followed in the
data (Cal-QL: Nakamoto et al. 2023, arXiv:2303.05479), so that going on online does not begin by unlearning.
Differences from the paper: targets move a little at every update in DQN too, its Huber loss and double Q-learning stay, and
no Lagrange multiplier tunes the term's weight.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields, replace
from typing import Any

import torch
from gymnasium import spaces as gs
from torch import Tensor, nn

from lit_rl.algorithms.base import IN_STAGE_2, Algorithm, Loss, Optimize, Progress, Updated
from lit_rl.algorithms.borrowed import borrowed_algorithm
from lit_rl.algorithms.dqn import DQN
from lit_rl.algorithms.replay import ReplayConfig
from lit_rl.algorithms.sac import SAC
from lit_rl.algorithms.scheduled import Scheduled
from lit_rl.data.config import at_least
from lit_rl.data.plans import ReplayPlan
from lit_rl.data.transitions import Transitions
from lit_rl.envs.spaces import Spaces
from lit_rl.errors import UsageError
from lit_rl.functional.distributions import mask_logits
from lit_rl.functional.losses import conservative
from lit_rl.functional.schedules import Schedule, check_schedule_range
from lit_rl.functional.tree import tree_map
from lit_rl.policies.base import action_mask
from lit_rl.policies.bounds import uniform
from lit_rl.policies.epsilon_greedy import EpsilonGreedy
from lit_rl.policies.squashed_gaussian import SquashedGaussian

NETWORK = ("hidden_sizes", "activation", "custom_model", "custom_model_config")  # policy_of has the last word on these


@dataclass
class CQLConfig(ReplayConfig):
    """CQL"""

    lr: Schedule = 3e-4
    """Learning rate: a number, or [[env_step, value], ...]; over updates with --input."""
    gradient_clip_val: float | None = None
    """Largest norm (or value) of a gradient; null for none."""
    random_steps: int = field(default=0, metadata={IN_STAGE_2: 0})
    """Env steps at the start that act at random (Box); 0 in stage 2."""
    epsilon: Schedule = field(default_factory=lambda: [[0, 1.0], [10_000, 0.02]])
    """Probability of a random action (Discrete): a number, or [[env_step, value], ...]."""
    cql_alpha: Schedule | None = None
    """Weight of the conservative term: a number, or [[env_step, value], ...]; null for 1 (Discrete) or 5 (Box)."""
    cql_actions: int = 10
    """Actions (Box) that are drawn at random, from the policy and from the next state's policy, to estimate the term."""
    calibrated: bool = False
    """Lower no value below the return that followed in the data (Cal-QL)."""
    policy_of: dict[str, Any] = field(default_factory=dict)
    """Learn another algorithm's policy, '{"algo": "DQN", "dueling": true}' or SAC's; with --two_steps that of stage 2."""

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least("random_steps", self.random_steps, 0)
        at_least("cql_actions", self.cql_actions, 1)
        self.check_schedules(epsilon=(0.0, 1.0))
        if self.cql_alpha is not None:
            check_schedule_range("cql_alpha", self.cql_alpha, 0.0)

    def learner(self, spaces: Spaces) -> DQN | SAC:
        """DQN or SAC with these settings, or with those of ``policy_of``."""
        discrete = isinstance(spaces.action, gs.Discrete)
        given = self.policy_of or {"algo": "DQN" if discrete else "SAC"}
        config = DQN.Config if str(given.get("algo")).upper() == "DQN" else SAC.Config
        own = {f.name: getattr(self, f.name) for f in fields(config) if hasattr(self, f.name)}
        own = {name: value for name, value in own.items() if not (name in NETWORK and name in given)}
        if config is DQN.Config:
            given = {"target_update_every": 1} | given
        learner = borrowed_algorithm(spaces, given, **own)
        if not isinstance(learner.policy, EpsilonGreedy | SquashedGaussian):
            raise UsageError(
                f"CQL lowers the action values of DQN (Discrete) or SAC (Box): --policy_of {given['algo']} has none of these"
            )
        assert isinstance(learner, DQN | SAC)
        return learner


class CQL(Algorithm):
    """Q-learning that lowers the values of actions that were not recorded."""

    Config = CQLConfig
    config: CQLConfig

    def __init__(self, spaces: Spaces, config: CQLConfig) -> None:
        learner = config.learner(spaces)
        super().__init__(spaces, config, learner.policy)
        self.target = learner.target
        self._learner = (learner,)  # a tuple: what it owns is registered here
        discrete = isinstance(learner, DQN)
        self._values = ("q", learner.q_loss) if isinstance(learner, DQN) else ("critic", learner.critic_loss)
        self._alpha = Scheduled((1.0 if discrete else 5.0) if config.cql_alpha is None else config.cql_alpha)

    @property
    def learner(self) -> DQN | SAC:
        """Whose losses these are."""
        return self._learner[0]

    @property
    def plan(self) -> ReplayPlan:
        plan = self.learner.plan
        if isinstance(self.policy, EpsilonGreedy):
            return plan
        passes, *sizes = plan.noise
        return replace(plan, noise=(passes + 3 * self.config.cql_actions, *sizes))  # for the actions of the term

    def groups(self) -> dict[str, list[nn.Parameter]]:
        return self.learner.groups()

    def start_from_policy(self) -> None:
        self.learner.start_from_policy()

    def update(self, batch: Transitions, optimize: Optimize, progress: Progress) -> Updated:
        """The learner's own update, with the conservative term in the loss of its values."""
        alpha = self._alpha.at(progress.env_steps, batch.reward)

        def conservatively(group: str, loss_fn: Any, *tensors: Any) -> tuple[dict[str, Tensor], Any]:
            if group != self._values[0]:
                return optimize(group, loss_fn, *tensors)
            return optimize(group, self.value_loss, alpha, *tensors)

        return self.learner.update(batch, conservatively, progress)

    def value_loss(self, alpha: Tensor, batch: Transitions, *tensors: Tensor) -> Loss:
        """The learner's Bellman error and the conservative term (eq. 4)."""
        loss = self._values[1](batch, *tensors)
        gap = self.gap_discrete(batch) if isinstance(self.policy, EpsilonGreedy) else self.gap_box(batch)
        total = loss.value + alpha * gap
        return Loss(total, loss.metrics | {"loss": total, "conservative": gap}, loss.aux)

    def gap_discrete(self, batch: Transitions) -> Tensor:
        """The mean conservative term over all discrete actions."""
        assert isinstance(self.policy, EpsilonGreedy)
        q_BA = self.policy.actor(batch.obs, batch.noise[:1])
        taken_B = q_BA.gather(1, batch.action[:, None]).squeeze(1)
        lifted_BA = mask_logits(self.calibrate(q_BA, batch.return_[:, None]), action_mask(batch.obs))
        return conservative(lifted_BA, torch.zeros_like(q_BA), taken_B, 1).mean()

    def gap_box(self, batch: Transitions) -> Tensor:
        """The mean conservative term of every critic, estimated from S random actions, S of pi(s) and S of pi(s')."""
        assert isinstance(self.policy, SquashedGaussian)
        samples, rows = self.config.cql_actions, len(batch.reward)
        noise_3SBA = batch.noise[-3 * samples :].view(3, samples * rows, -1)
        obs, next_obs = (
            tree_map(lambda x: x.repeat(samples, *[1] * (x.ndim - 1)), o) for o in (batch.obs, batch.next_obs)
        )
        with torch.no_grad():
            random = uniform(noise_3SBA[0])
            here, log_here = self.policy.sample(obs, noise_3SBA[1])
            there, log_there = self.policy.sample(next_obs, noise_3SBA[2])
            density = torch.full_like(log_here, random.shape[1] * math.log(0.5))  # of one action in (-1, 1)^A
            log_weight = -torch.stack([density, log_here, log_there]).view(3 * samples, rows) - math.log(3 * samples)
        thrice = tree_map(lambda x: x.repeat(3, *[1] * (x.ndim - 1)), obs)
        q_KSB = self.policy.critic(thrice, torch.cat([random, here, there])).view(-1, 3 * samples, rows)
        q_KSB = torch.cat([q_KSB[:, :samples], self.calibrate(q_KSB[:, samples:], batch.return_)], dim=1)
        taken_KB = self.policy.critic(batch.obs, batch.action)
        return conservative(q_KSB, log_weight, taken_KB, 1).mean(1).sum()

    def calibrate(self, q: Tensor, return_: Tensor) -> Tensor:
        """Values no lower than the recorded return, where that is wanted and known (Nakamoto et al. 2023, eq. 5)."""
        return torch.maximum(q, return_) if self.config.calibrated and return_.numel() else q
