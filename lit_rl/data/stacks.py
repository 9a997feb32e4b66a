"""Single frames that were collected, as the stacks that a policy saw."""

from __future__ import annotations

import numpy as np

from lit_rl.data.transitions import Steps
from lit_rl.envs.frames import Stacking
from lit_rl.functional.tree import Tree, tree_map


def stacked(steps: Steps, stacking: Stacking) -> Steps:
    """The same steps with stacks (..., K, *frame) in place of frames, final observations included."""
    if stacking.depth == 1:
        return steps
    length, envs = steps.age.shape
    row = (
        stacking.depth - 1 + np.arange(length)[:, None, None] - stacking.back(steps.age)
    )  # (T + 1, N, K), past included
    env = np.arange(envs)[:, None]
    t, n = steps.final_index.T

    def stack(is_stacked: bool, past: np.ndarray, frame: np.ndarray) -> np.ndarray:
        return np.concatenate([past, frame])[row, env] if is_stacked else frame

    def stack_final(is_stacked: bool, stack: np.ndarray, final: np.ndarray) -> np.ndarray:
        return np.concatenate([stack[t, n, 1:], final[:, None]], 1) if is_stacked else final

    obs = tree_map(stack, stacking.parts, steps.past, steps.obs)
    return steps._replace(obs=obs, final_obs=tree_map(stack_final, stacking.parts, obs, steps.final_obs))


def stacked_episode(obs: Tree, stacking: Stacking) -> Tree:
    """The single frames (n, ...) of an episode as the stacks (n, K, ...) that a policy saw."""
    if stacking.depth == 1:
        return obs

    def stack(is_stacked: bool, frame: np.ndarray) -> np.ndarray:
        at = np.arange(len(frame))
        return frame[at[:, None] - stacking.back(at)] if is_stacked else frame

    return tree_map(stack, stacking.parts, obs)
