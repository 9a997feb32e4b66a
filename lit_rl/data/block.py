"""The memory that a collector writes vector steps into."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np

from lit_rl.data.transitions import Steps
from lit_rl.envs.spaces import storage
from lit_rl.functional.tree import Tree, tree_map

NOTHING = np.zeros((0, 2), np.int64)


class Block:
    """Preallocated room for up to T vector steps of N envs.

    Args:
        capacity: T.
        envs: N.
        observation: of one env, a single frame.
    """

    def __init__(self, capacity: int, envs: int, observation: gym.Space[Any]) -> None:
        self.capacity = capacity
        self.obs: Tree = tree_map(lambda x: np.zeros((capacity + 1, envs, *x.shape), x.dtype), storage(observation))
        self.reward = np.zeros((capacity, envs), np.float32)
        self.terminated = np.zeros((capacity, envs), bool)
        self.truncated = np.zeros((capacity, envs), bool)
        self.valid = np.zeros((capacity, envs), bool)
        self.age = np.zeros((capacity + 1, envs), np.uint8)
        self.action = np.zeros(0)  # made when the first action shows its shape
        self._views: dict[int, Steps] = {}

    def set_obs(self, t: int, obs: Tree) -> None:
        if isinstance(self.obs, np.ndarray):
            self.obs[t] = obs
        else:
            tree_map(lambda room, x: room.__setitem__(t, x), self.obs, obs)

    def get_obs(self, t: int) -> Tree:
        return self.obs[t] if isinstance(self.obs, np.ndarray) else tree_map(lambda x: x[t], self.obs)

    def set_action(self, t: int, action: np.ndarray) -> None:
        if not self.action.size:
            self.action = np.zeros((self.capacity, *action.shape), action.dtype)
        self.action[t] = action

    def steps(self, t: int, final_index: list[tuple[int, int]], final_obs: list[Tree]) -> Steps:
        """The first ``t`` vector steps, in this memory, with the final observations (K of them) at their (t, n)."""
        if t not in self._views:
            self._views[t] = Steps(
                obs=tree_map(lambda x: x[: t + 1], self.obs),
                action=self.action[:t],
                reward=self.reward[:t],
                terminated=self.terminated[:t],
                truncated=self.truncated[:t],
                valid=self.valid[:t],
                final_index=NOTHING,
                final_obs=tree_map(lambda x: x[0, :0], self.obs),
                age=self.age[: t + 1],
            )
        steps = self._views[t]
        if not final_index:
            return steps
        stacked = tree_map(_stacked, self.obs, *final_obs)
        return steps._replace(final_index=np.array(final_index, np.int64), final_obs=stacked)


def _stacked(room: np.ndarray, *leaves: Any) -> np.ndarray:
    """Final observations, one after the other, as a block keeps them."""
    return np.stack(leaves).astype(room.dtype, copy=False)
