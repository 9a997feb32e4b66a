"""Runs whose scores are known beforehand: an env that pays for the action, and a callback that sets the best one."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytorch_lightning as pl
import torch
from tiny_runs import DQN

from lit_rl.lit_policy import LitPolicy

LEVELS = 5


class Ladder(gym.Env[np.ndarray, Any]):
    """Pays the action at both of its two steps, and first a bonus in [0, 1) that tells one seed from another."""

    observation_space = gym.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gym.spaces.Discrete(LEVELS)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.t, self.bonus = 0, float(self.np_random.random())
        return np.array([1, -1], np.float32), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.t += 1
        reward = float(action) + (self.bonus if self.t == 1 else 0)
        return np.array([1, self.t - 1], np.float32), reward, False, self.t == 2, {}


TINY: dict[str, Any] = DQN | {
    "env": Ladder,
    "num_envs": 2,
    "step_per_epoch": 40,
    "max_epochs": 3,
    "episode_per_test": 5,
    "num_test_envs": 2,
    "test_episodes": 7,
    "accelerator": "cpu",
    "enable_progress_bar": False,
    "logger": "false",
}
"""Three epochs of 20 updates."""


def prefer(policy: torch.nn.Module, level: int) -> None:
    """Make a Q-network value this action most, whatever it sees."""
    *_, last = (module for module in policy.modules() if isinstance(module, torch.nn.Linear))
    with torch.no_grad():
        last.weight.zero_()
        last.bias.zero_()
        last.bias[level] = 1.0


class Seen:
    """What a stage was seen to do."""

    def __init__(self, trainer: pl.Trainer, policy: LitPolicy) -> None:
        self.trainer, self.policy, self.data = trainer, policy, policy._data
        self.start = copied(policy)
        self.counters = trainer.global_step, policy.updates, policy.env_steps
        self.buffer = self.data.source.buffer if hasattr(self.data.source, "buffer") else None
        self.rows = 0 if self.buffer is None else len(self.buffer)
        self.lrs: set[float] = set()
        self.moved: set[str] = set()
        self.evaluations: list[float] = []


class Script(pl.Callback):
    """Notes what happens, and before an evaluation sets the action that the policy prefers, and so the score.

    Args:
        levels: by stage, the action for each evaluation; what is left out is as it was learned.
        in_sanity_check: the action for the evaluation that must not count.
        of_raw_weights: the action of the weights that learn, where another one is that of their average.
    """

    def __init__(
        self,
        levels: dict[int, list[int]] | None = None,
        in_sanity_check: int | None = None,
        of_raw_weights: int | None = None,
    ) -> None:
        self.levels = {stage: list(found) for stage, found in (levels or {}).items()}
        self.in_sanity_check, self.of_raw_weights = in_sanity_check, of_raw_weights
        self.stages: dict[int, Seen] = {}
        self.tested: list[dict[str, torch.Tensor]] = []

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        assert isinstance(pl_module, LitPolicy)
        self.stages[pl_module.stage] = Seen(trainer, pl_module)

    def on_train_batch_end(self, trainer: pl.Trainer, pl_module: Any, *_: Any) -> None:
        seen = self.stages[pl_module.stage]
        seen.lrs |= {group["lr"] for group in pl_module.optimize.optimizer.param_groups}
        seen.moved |= {n for n, x in copied(pl_module).items() if not torch.equal(x, seen.start[n])}

    def on_sanity_check_start(self, trainer: pl.Trainer, pl_module: Any) -> None:
        self.before = copied(pl_module)

    def on_sanity_check_end(self, trainer: pl.Trainer, pl_module: Any) -> None:
        pl_module.load_state_dict(self.before)

    def on_validation_start(self, trainer: pl.Trainer, pl_module: Any) -> None:
        fitting, levels = trainer.state.fn == "fit", self.levels.get(pl_module.stage, [])
        level = self.in_sanity_check if trainer.sanity_checking else levels.pop(0) if fitting and levels else None
        if level is not None:
            prefer(pl_module.policy, level if self.of_raw_weights is None else self.of_raw_weights)
            prefer(pl_module.best_policy, level)

    def on_validation_end(self, trainer: pl.Trainer, pl_module: Any) -> None:
        if trainer.state.fn == "fit" and not trainer.sanity_checking:
            score = float(trainer.callback_metrics[f"{pl_module.prefix}/return"])
            self.stages[pl_module.stage].evaluations.append(score)

    def on_test_start(self, trainer: pl.Trainer, pl_module: Any) -> None:
        self.tested.append(copied(pl_module))


def copied(policy: LitPolicy) -> dict[str, torch.Tensor]:
    """All weights as they are now."""
    return {name: x.detach().clone() for name, x in policy.state_dict().items()}


class MyLitPolicy(LitPolicy):
    """A user's own subclass, for stage 2."""
