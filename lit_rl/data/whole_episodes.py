"""Learning from whole episodes alone: what a rollout cuts off waits for the next one."""

from __future__ import annotations

import numpy as np

from lit_rl.data.transitions import Steps
from lit_rl.errors import UsageError
from lit_rl.functional.tree import tree_map


class WholeEpisodes:
    """Holds back the steps of episodes that have not ended yet."""

    def __init__(self) -> None:
        self._held: Steps | None = None

    def release(self, steps: Steps) -> Steps:
        """The steps of all episodes that have ended, those that were held back included; the others' are not valid.

        Raises:
            UsageError: no episode has ended.
        """
        steps = steps if self._held is None else _joined(self._held, steps)
        length = len(steps.reward)
        ended = (steps.terminated | steps.truncated) & steps.valid  # of what has not been released yet
        last = np.where(ended.any(0), length - 1 - ended[::-1].argmax(0), -1)  # (N,), where the last one ended
        if last.max() < 0:
            raise UsageError(
                f"--complete_episodes: no episode has ended in {length} env steps of each env: give a longer --rollout_length"
            )
        t = np.arange(length)[:, None]
        begin = int(last.min()) + 1
        self._held = None
        if begin < length:  # a copy: the next collect overwrites the block
            self._held = Steps._make(tree_map(np.array, tuple(_part(steps, begin, length, steps.valid & (t > last)))))
        return _part(steps, 0, int(last.max()) + 1, steps.valid & (t <= last))

    def cut(self) -> None:
        """What was held back belongs to episodes that will not go on."""
        self._held = None


def _part(steps: Steps, begin: int, end: int, valid: np.ndarray) -> Steps:
    """Vector steps ``begin`` to ``end``."""
    inside = (steps.final_index[:, 0] >= begin) & (steps.final_index[:, 0] < end)
    return steps._replace(
        obs=tree_map(lambda x: x[begin : end + 1], steps.obs),
        action=steps.action[begin:end],
        reward=steps.reward[begin:end],
        terminated=steps.terminated[begin:end],
        truncated=steps.truncated[begin:end],
        valid=valid[begin:end],
        final_index=steps.final_index[inside] - np.array([begin, 0]),
        final_obs=tree_map(lambda x: x[inside], steps.final_obs),
    )


def _joined(first: Steps, second: Steps) -> Steps:
    """Two blocks one after the other."""
    offset = np.array([len(first.reward), 0])
    both = [(getattr(first, name), getattr(second, name)) for name in ("reward", "terminated", "truncated", "valid")]
    reward, terminated, truncated, valid = (np.concatenate(pair) for pair in both)
    return second._replace(
        obs=tree_map(lambda x, y: np.concatenate([x[:-1], y]), first.obs, second.obs),
        action=np.concatenate([first.action, second.action]),
        reward=reward,
        terminated=terminated,
        truncated=truncated,
        valid=valid,
        final_index=np.concatenate([first.final_index, second.final_index + offset]),
        final_obs=tree_map(lambda x, y: np.concatenate([x, y]), first.final_obs, second.final_obs),
    )
