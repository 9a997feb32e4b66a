"""RLlib's Python API: ``DQNTrainer(env="CartPole-v1", config={...}).train()``, on the LitPolicy and the data of every run."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from lit_rl.cli.arguments import from_python
from lit_rl.cli.experiments import expand
from lit_rl.cli.resume import resolve_any
from lit_rl.cli.trainer_flags import try_out
from lit_rl.compat.rllib_results import evaluation_of, result_of
from lit_rl.errors import UsageError
from lit_rl.functional.tree import Tree
from lit_rl.pipeline.session import Session


class Trainer:
    """A policy that learns an epoch at a time.

    Args:
        env: an environment id, an import path, or a function that makes the environment; ``env`` in the config counts too.
        config: settings by name, RLlib's or ours.
        settings: more of ours, as ``lit_rl.train`` takes them.

    Raises:
        UsageError: settings that cannot be used; nothing has been created.
    """

    algo: ClassVar[str] = ""

    def __init__(self, env: Any = None, config: dict[str, Any] | None = None, **settings: Any) -> None:
        if isinstance(env, dict):
            raise UsageError("config is given by its name: DQNTrainer(env=..., config={...})")
        other = {"algo", "run"} & {*settings, *(config if isinstance(config, dict) else ())}
        if other:
            raise UsageError(f"{other.pop()} is not allowed: {type(self).__name__} learns by {self.algo}")
        given = {"enable_progress_bar": False} | settings | ({} if env is None else {"env": env})
        requests = expand(from_python(given | {"algo": self.algo, "config": config or {}}))
        if len(requests) > 1:
            raise UsageError("a Trainer is one run: leave num_samples out")
        settings_ = resolve_any(requests[0]).settings
        if settings_.resume:
            raise UsageError("a Trainer begins a run of its own: go on from a checkpoint with restore")
        if (ranks := try_out(settings_.stage1.trainer).world_size) > 1:
            raise UsageError(f"one process learns here, not {ranks}: give devices 1")
        self.session = Session(settings_)

    @property
    def logdir(self) -> str:
        """The run's folder."""
        return str(self.session.folder)

    @property
    def iteration(self) -> int:
        """How often :meth:`train` was called: epochs."""
        return self.session.epochs

    def train(self) -> dict[str, Any]:
        """Learn for one epoch (``timesteps_per_iteration`` env steps) and evaluate.

        Returns:
            What :func:`lit_rl.compat.rllib_results.result_of` says, under RLlib's keys.
        """
        before = self.session.env_steps
        return result_of(self.session.train(), before)

    def evaluate(self) -> dict[str, Any]:
        """Play the evaluation's episodes, which are always the same: RLlib's keys of an evaluation."""
        return evaluation_of(self.session.evaluate())

    def compute_action(self, obs: Tree, explore: bool = False, new_episode: bool = False) -> Any:
        """The action for one observation, or the actions for a batch, as the environment takes them; greedy by default.

        Say ``new_episode`` where one begins: a recurrent policy (``use_lstm``) remembers from call to call.
        """
        acting = self.session.acting()
        if new_episode:
            acting.reset()
        action = acting.act(obs, explore=explore)
        return action.item() if isinstance(action, np.generic | np.ndarray) and action.ndim == 0 else action

    def save(self, path: str | Path | None = None) -> str:
        """Keep everything that going on needs; where it is, by default below :attr:`logdir`."""
        return str(self.session.save(path))

    def restore(self, path: str | Path) -> None:
        """Go on from what :meth:`save` kept, this Trainer's or another's.

        Raises:
            UsageError: it cannot be read, or holds another algorithm, other networks or what was learned with other
                settings; the policy is as it was.
        """
        self.session.restore(path)

    def stop(self) -> None:
        """End the environments."""
        self.session.close()


class DQNTrainer(Trainer):
    """DQN and Rainbow."""

    algo = "DQN"


class PGTrainer(Trainer):
    """Policy gradient."""

    algo = "PG"


class A2CTrainer(Trainer):
    """Advantage actor-critic."""

    algo = "A2C"


class PPOTrainer(Trainer):
    """Proximal policy optimisation."""

    algo = "PPO"


class SACTrainer(Trainer):
    """Soft actor-critic."""

    algo = "SAC"


class TD3Trainer(Trainer):
    """TD3."""

    algo = "TD3"


class DDPGTrainer(Trainer):
    """DDPG."""

    algo = "DDPG"


class ESTrainer(Trainer):
    """Evolution strategies."""

    algo = "ES"


class BCTrainer(Trainer):
    """Behaviour cloning, from data."""

    algo = "BC"


class MARWILTrainer(Trainer):
    """Imitation weighted by advantages, from data."""

    algo = "MARWIL"


class IQLTrainer(Trainer):
    """Implicit Q-learning, from data or in the environment."""

    algo = "IQL"


class CQLTrainer(Trainer):
    """Conservative Q-learning, from data or in the environment."""

    algo = "CQL"


TRAINERS = {
    found.algo: found
    for found in list(globals().values())
    if inspect.isclass(found) and issubclass(found, Trainer) and found.algo
}
