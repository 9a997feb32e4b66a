"""Masks of allowed actions: part of the observation, wherever the environment tells them."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Dict, Discrete, MultiBinary, MultiDiscrete

from lit_rl.envs.spaces import describe
from lit_rl.errors import EnvError, UsageError

MASK = "action_mask"


def tells_mask(env: gym.Env[Any, Any], reset_info: dict[str, Any]) -> bool:
    """Whether ``env`` masks actions, in its observation or in the info of the reset that just was."""
    space = env.observation_space
    return MASK in reset_info or (isinstance(space, Dict) and MASK in space.spaces)


class ActionMask(gym.Wrapper[Any, Any, Any, Any]):
    """Shows ``info["action_mask"]`` as ``obs["action_mask"]``, so that bootstrap targets see the next one too.

    Any other observation space becomes ``Dict{"obs": it, "action_mask": MultiBinary(n)}``, a Dict gets the key, a Dict
    that has the key already stays as it is. n is the number of actions, summed over the parts of a MultiDiscrete (a
    tuple of arrays, one for each part, is joined). Where an episode terminated and the env forbids everything or says
    nothing, all is allowed: no value is bootstrapped there, and a maximum over nothing would be minus infinity.

    Raises:
        UsageError: the actions are neither Discrete nor a flat MultiDiscrete.
        EnvError: a mask forbids everything, is missing or has the wrong length (the guard names env and step).
    """

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        super().__init__(env)
        actions = env.action_space
        if isinstance(actions, Discrete):
            sizes = [int(actions.n)]
        elif isinstance(actions, MultiDiscrete) and actions.nvec.ndim == 1:
            sizes = actions.nvec.tolist()
        else:
            raise UsageError(
                f"the env masks actions, which needs Discrete or MultiDiscrete ones, not {describe(actions)}"
            )
        self._n = sum(sizes)
        self._starts = np.cumsum([0, *sizes[:-1]])  # where the part of each action begins
        shown = env.observation_space
        self._joins = isinstance(shown, Dict)
        self._shown = isinstance(shown, Dict) and MASK in shown.spaces
        if not self._shown:
            parts = dict(shown.spaces) if isinstance(shown, Dict) else {"obs": shown}
            self.observation_space = Dict({**parts, MASK: MultiBinary(self._n)})

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """As Gymnasium's."""
        obs, info = self.env.reset(seed=seed, options=options)
        return self._masked(obs, info, False)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """As Gymnasium's."""
        obs, reward, terminated, truncated, info = self.env.step(action)
        obs, info = self._masked(obs, info, terminated)
        return obs, reward, terminated, truncated, info

    def _masked(self, obs: Any, info: dict[str, Any], terminated: bool) -> tuple[Any, dict[str, Any]]:
        if self._shown:
            mask = self._checked(obs[MASK], terminated)
            return {**obs, MASK: mask.astype(np.asarray(obs[MASK]).dtype)}, info
        shown = dict(obs) if self._joins else {"obs": obs}
        shown[MASK] = self._checked(info.get(MASK), terminated)
        return shown, {key: value for key, value in info.items() if key != MASK}

    def _checked(self, mask: Any, terminated: bool) -> np.ndarray:
        if mask is None and terminated:
            return np.ones(self._n, np.int8)
        if mask is None:
            raise EnvError("its info has no action_mask here, though its reset had one")
        told = np.concatenate(mask) if isinstance(mask, tuple) else np.asarray(mask)
        if told.shape != (self._n,):
            raise EnvError(f"its action_mask has the shape {told.shape}, its actions need ({self._n},)")
        allowed: np.ndarray = told != 0
        if not np.logical_or.reduceat(allowed, self._starts).all():
            if not terminated:
                raise EnvError("its action_mask forbids every action")
            return np.ones(self._n, np.int8)
        return allowed.astype(np.int8)
