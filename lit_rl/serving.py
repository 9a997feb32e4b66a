"""A trained policy from a checkpoint alone, numpy in and out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch

from lit_rl.algorithms import check_saved_model, make_algorithm, saved_algorithm
from lit_rl.checkpoint import describing, load
from lit_rl.data.collector import reset_state
from lit_rl.data.evaluation import AFTER_TRAINING
from lit_rl.envs import make as envs
from lit_rl.envs.config import EnvConfig
from lit_rl.envs.frames import StackFrames
from lit_rl.envs.spaces import Spaces, cast_observation
from lit_rl.errors import UsageError
from lit_rl.functional.tree import Tree, tree_leaves, tree_map
from lit_rl.policies.base import Policy
from lit_rl.policies.units import from_env
from lit_rl.weights import best_policy, check_finite, misfit


class LoadedPolicy:
    """A policy that acts on observations as the environment shows them: one, or a batch with a leading axis.

    One that remembers (``--use_lstm``) keeps what it has seen from call to call: say :meth:`reset` when an episode begins.
    """

    def __init__(
        self, policy: Policy, spaces: Spaces, algo: str, seed: int = 0, env: dict[str, Any] | None = None
    ) -> None:
        self.policy, self.spaces, self.algo = policy.eval(), spaces, algo
        self.env = env  # the environment's settings by name, as far as the checkpoint has them
        self._generator = torch.Generator().manual_seed(seed)
        self._state: Tree = None
        self._rows = 0  # that the state belongs to

    def reset(self, begins: np.ndarray | None = None) -> None:
        """A new episode begins: forget what was seen.

        Args:
            begins: of a batch, in which rows (B,), bool; None for all of them.

        Raises:
            UsageError: ``begins`` has another length than the batch.
        """
        if begins is None:
            self._state = None
        elif self._state is not None:
            rows = np.asarray(begins, bool)
            if rows.shape != (self._rows,):
                raise UsageError(f"reset() of shape {rows.shape} does not fit the {self._rows} observations of act()")
            self._state = reset_state(self._state, self.policy.initial_state(self._rows), rows)

    @torch.no_grad()
    def act(self, obs: Tree, explore: bool = False) -> np.ndarray:
        """The action for one observation, or the actions for a batch, as the environment takes them.

        Args:
            obs: as ``spaces.observation`` says, with or without a leading batch axis; :func:`lit_rl.make_env` makes an
                environment that shows it, stacks of frames and masks included.
            explore: act as at the end of training, schedules at their final values, instead of greedily.

        Raises:
            UsageError: the observation does not have the shape of the space, or a policy that remembers gets another
                number of them than in the call before.
        """
        batch, single = self._batch(obs)
        count = len(tree_leaves(batch)[0])
        noise = self.policy.noise(1, count, self._generator, AFTER_TRAINING, 1)[0] if explore else None
        if self._state is not None and count != self._rows:
            raise UsageError(
                f"this policy remembers the episodes of {self._rows} observations and got {count}: call reset() where "
                "other episodes begin"
            )
        acted = self.policy.act(batch, noise, self._state)
        self._state, self._rows = acted.state, count
        action = self.policy.env_action(acted.action.numpy())
        return action[0] if single else action

    @torch.no_grad()
    def q_values(self, obs: Tree) -> np.ndarray:
        """Action values (A,) for one observation, or (B, A) for a batch.

        Raises:
            UsageError: the policy has no action values.
        """
        values = getattr(self.policy, "q_values", None)
        if values is None:
            raise UsageError(f"a policy of {self.algo} has no action values; use act(obs)")
        batch, single = self._batch(obs)
        found: np.ndarray = values(batch).numpy()
        return found[0] if single else found

    @torch.no_grad()
    def log_prob(self, obs: Tree, action: np.ndarray) -> np.ndarray | None:
        """The log-probability (B,) that exploring takes each of a batch of actions; None where the policy gives them none.

        Args:
            obs: a batch, as the observation space says, with a leading axis.
            action: as the environment takes them, (B, ...).

        Raises:
            UsageError: the observation does not have the shape of the space.
        """
        batch, _ = self._batch(obs)
        units = torch.from_numpy(from_env(self.spaces.action)(action))
        found = self.policy.behaviour_log_prob(batch, units, AFTER_TRAINING)
        return None if found is None else found.double().numpy()

    def _batch(self, obs: Tree) -> tuple[Tree, bool]:
        batch, single = cast_observation(self.spaces.observation, obs)
        return tree_map(torch.from_numpy, batch), single


def make_env(
    env: envs.EnvName, env_config: dict[str, Any] | None = None, *, atari: bool = False, frame_stack: int | None = None
) -> gym.Env[Any, Any]:
    """One environment as a policy sees it in evaluation: masks in its observations, Atari preprocessing, stacked frames.

    Args:
        env: an environment id, an import path, or a function that makes the environment.
        env_config: its keyword arguments.
        atari: the standard preprocessing of Atari games.
        frame_stack: newest frames that an observation shows (4 with ``atari``, else 1).

    Raises:
        UsageError: there is no such environment, or it cannot be shown so.
    """
    config = EnvConfig(env, env_config or {}, atari=atari, frame_stack=frame_stack)  # type: ignore[arg-type]
    made = envs.make_env(env, config.env_config, config.wrappers(training=False))
    return made if config.stacked_frames == 1 else StackFrames(made, config.stacked_frames)


def load_policy(path: str | Path) -> LoadedPolicy:
    """The policy of a checkpoint, or of a run's folder (its ``best.ckpt``), on the CPU; no other file is needed.

    It acts with the running average of the weights where the checkpoint has one.

    Raises:
        UsageError: the file is missing, cut, damaged, foreign, or needs more than ``weights_only=True``; or it holds a
            policy of a user's own algorithm or network, whose module must be imported first.
    """
    checkpoint = load(path)
    about: dict[str, Any] = checkpoint["hyper_parameters"]["lit_rl"]
    algorithm = saved_algorithm(about.get("algo"), path)
    check_saved_model(about.get("config"), path)
    with describing(path):
        spaces = Spaces.from_plain(about["spaces"])
        policy = make_algorithm(algorithm, spaces, about["config"]).policy
    own = best_policy(checkpoint["state_dict"])
    if problem := misfit(own, policy.state_dict(), "in the file", "in the network"):
        raise UsageError(f"{path} does not fit the network it describes: {problem}")
    check_finite(own, path)
    policy.load_state_dict(own)
    data = checkpoint.get("datamodule_hyper_parameters") or {}
    return LoadedPolicy(policy, spaces, about["algo"], env=data.get("lit_rl"))
