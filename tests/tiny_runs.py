"""Runs of a second: an env that can be learned, settings that learn it, and a quiet Trainer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np
import pytorch_lightning as pl
from pytorch_lightning.callbacks import Checkpoint

from lit_rl.checkpoint import AtomicCheckpointIO
from lit_rl.datamodule import ExperienceDataModule
from lit_rl.lit_policy import LitPolicy


class Signs(gym.Env[np.ndarray, Any]):
    """Shows a sign and pays 1 for the action that says which: chance gets half an episode's length.

    Args:
        length: steps of an episode.
        start: the smallest action; None for one number in [-1, 1], which pays the less the further it is from the sign.
        truncates: whether episodes are truncated, or terminate.
    """

    observation_space = gym.spaces.Box(-1, 1, (2,), np.float32)

    def __init__(self, length: int = 4, start: int | None = 0, truncates: bool = True) -> None:
        self.length, self.start, self.truncates = length, start, truncates
        continuous = gym.spaces.Box(-1, 1, (1,), np.float32)
        self.action_space: gym.Space[Any] = continuous if start is None else gym.spaces.Discrete(2, start=start)

    def look(self) -> np.ndarray:
        self.sign = 1.0 if self.np_random.random() < 0.5 else -1.0
        return np.array([self.sign, self.t / self.length], np.float32)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.t = 0
        return self.look(), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action), action
        said = float(action[0]) if self.start is None else 2.0 * (action - self.start) - 1
        reward = 1 - abs(said - self.sign) / 2
        self.t += 1
        over = self.t == self.length
        return self.look(), reward, over and not self.truncates, over and self.truncates, {}


DQN: dict[str, Any] = {
    "hidden_sizes": [8],
    "learning_starts": 0,
    "steps_per_iteration": 20,
    "collect_per_step": 4,
    "update_per_step": 0.5,
    "batch_size": 8,
    "buffer_size": 400,
    "target_update_every": 7,
    "lr": 3e-3,
    "gamma": 0.5,
    "epsilon": [[0, 1.0], [400, 0.1]],
}
"""10 updates an iteration of 20 env steps."""


def make_data(env: Any = Signs, **settings: Any) -> ExperienceDataModule:
    """Two iterations an epoch, three episodes an evaluation."""
    small = {"num_envs": 2, "step_per_epoch": 40, "episode_per_test": 3, "num_test_envs": 2, "test_episodes": 5}
    return ExperienceDataModule(env, **(small | settings))


def make_policy(data: ExperienceDataModule, algo: Any = "DQN", seed: int = 0, **settings: Any) -> LitPolicy:
    """A LitPolicy whose weights depend on ``seed`` only."""
    pl.seed_everything(seed, verbose=False)
    return LitPolicy(algo, data.spaces, **(DQN | settings))


def make_trainer(max_epochs: int, callbacks: Sequence[pl.Callback] = (), **settings: Any) -> pl.Trainer:
    """A quiet trainer on the CPU, without a sanity check."""
    quiet: dict[str, Any] = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    quiet |= {"accelerator": "cpu", "devices": 1, "plugins": [AtomicCheckpointIO()], "num_sanity_val_steps": 0}
    quiet["enable_checkpointing"] = any(isinstance(callback, Checkpoint) for callback in callbacks)
    return pl.Trainer(max_epochs=max_epochs, callbacks=list(callbacks), **(quiet | settings))


def fit(
    policy: LitPolicy,
    data: ExperienceDataModule,
    max_epochs: int = 2,
    callbacks: Sequence[pl.Callback] = (),
    ckpt_path: Any = None,
    **settings: Any,
) -> pl.Trainer:
    """Fit on a new trainer, which is handed back."""
    trainer = make_trainer(max_epochs, callbacks, **settings)
    trainer.fit(policy, datamodule=data, ckpt_path=ckpt_path)
    return trainer
