"""The memory that minibatches are gathered into."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from lit_rl.data.transitions import Transitions
from lit_rl.envs.frames import Stacking
from lit_rl.functional.tree import Tree, tree_map


class Room:
    """Room for B transitions, and the minibatch that it is: the same tensors, whatever is written into them.

    Args:
        size: B.
        obs: rows of single frames (R, ...), for their shapes and kinds.
        action: rows of actions (R, ...).
        stacking: how many frames a policy sees at once.
    """

    def __init__(self, size: int, obs: Tree, action: np.ndarray, stacking: Stacking) -> None:
        self.obs, self.next_obs = (room_for(size, obs, stacking) for _ in range(2))
        self.action = np.empty((size, *action.shape[1:]), action.dtype)
        self.reward, self.discount = (np.empty(size, np.float32) for _ in range(2))
        parts: Any = tree_map(torch.from_numpy, (self.obs, self.action, self.reward, self.discount, self.next_obs))
        obs_B, action_B, reward_B, discount_B, next_obs_B = parts
        self.minibatch = Transitions(obs_B, action_B, reward_B, discount_B, next_obs_B, weight=torch.ones(size))


def room_for(size: int, obs: Tree, stacking: Stacking) -> Tree:
    """Room for B observations as a policy sees them."""
    depth = stacking.depth
    if depth == 1:
        return tree_map(lambda x: np.empty((size, *x.shape[1:]), x.dtype), obs)

    def room(is_stacked: bool, x: np.ndarray) -> np.ndarray:
        return np.empty((size, *((depth,) if is_stacked else ()), *x.shape[1:]), x.dtype)

    return tree_map(room, stacking.parts, obs)
