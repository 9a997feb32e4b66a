"""Reinforcement learning that works the way PyTorch Lightning users already work."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from lit_rl.algorithms.base import Algorithm
    from lit_rl.cli import train
    from lit_rl.cli.trainers import (
        A2CTrainer,
        BCTrainer,
        CQLTrainer,
        DDPGTrainer,
        DQNTrainer,
        ESTrainer,
        IQLTrainer,
        MARWILTrainer,
        PGTrainer,
        PPOTrainer,
        SACTrainer,
        TD3Trainer,
    )
    from lit_rl.compat.tianshou import offline_trainer, offpolicy_trainer, onpolicy_trainer
    from lit_rl.data.hooks import Hooks
    from lit_rl.datamodule import ExperienceDataModule
    from lit_rl.envs.make import register_env
    from lit_rl.envs.spaces import Spaces
    from lit_rl.lit_policy import LitPolicy
    from lit_rl.policies.base import Policy
    from lit_rl.serving import load_policy, make_env

_HOMES = {
    "A2CTrainer": "cli.trainers",
    "BCTrainer": "cli.trainers",
    "CQLTrainer": "cli.trainers",
    "DDPGTrainer": "cli.trainers",
    "DQNTrainer": "cli.trainers",
    "ESTrainer": "cli.trainers",
    "IQLTrainer": "cli.trainers",
    "MARWILTrainer": "cli.trainers",
    "PGTrainer": "cli.trainers",
    "PPOTrainer": "cli.trainers",
    "SACTrainer": "cli.trainers",
    "TD3Trainer": "cli.trainers",
    "Algorithm": "algorithms.base",
    "ExperienceDataModule": "datamodule",
    "Hooks": "data.hooks",
    "LitPolicy": "lit_policy",
    "Policy": "policies.base",
    "Spaces": "envs.spaces",
    "load_policy": "serving",
    "make_env": "serving",
    "offline_trainer": "compat.tianshou",
    "offpolicy_trainer": "compat.tianshou",
    "onpolicy_trainer": "compat.tianshou",
    "register_env": "envs.make",
    "train": "cli",
}

__all__ = [
    "A2CTrainer",
    "BCTrainer",
    "CQLTrainer",
    "DDPGTrainer",
    "DQNTrainer",
    "ESTrainer",
    "IQLTrainer",
    "MARWILTrainer",
    "PGTrainer",
    "PPOTrainer",
    "SACTrainer",
    "TD3Trainer",
    "Algorithm",
    "ExperienceDataModule",
    "Hooks",
    "LitPolicy",
    "Policy",
    "Spaces",
    "__version__",
    "load_policy",
    "make_env",
    "offline_trainer",
    "offpolicy_trainer",
    "onpolicy_trainer",
    "register_env",
    "train",
]


def __getattr__(name: str) -> Any:
    """Load a public name on first use, so that importing the package is free."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
