"""Recording what a collector collects, as whole episodes."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from lit_rl.data.offline.writers import EpisodeWriter
from lit_rl.data.stacks import stacked
from lit_rl.data.transitions import Steps, Trajectory
from lit_rl.envs.frames import Stacking
from lit_rl.envs.spaces import Spaces
from lit_rl.functional.tree import Tree, tree_map
from lit_rl.policies.base import Policy
from lit_rl.policies.units import from_env


class BlockRecorder:
    """Cuts blocks of vector steps into episodes and hands each to a writer when it has ended.

    An episode that is broken off (a run that ends, fresh episodes that begin) is written as truncated. Actions have their
    log-probabilities where the policy gives them one, which random and deterministic ones do not. Where the policy sees
    stacks of frames, single ones are written.
    """

    def __init__(self, writer: EpisodeWriter, spaces: Spaces, num_envs: int) -> None:
        self.writer = writer
        self._units, self._stacking = from_env(spaces.action), Stacking.of(spaces)
        self._written = 0
        self._open: list[list[Trajectory]] = [
            [] for _ in range(num_envs)
        ]  # pieces of the episode under way in each env

    @torch.no_grad()
    def add(self, steps: Steps, policy: Policy, env_steps: int, vector_step: int, random: bool) -> None:
        """Take a block that ``policy`` made.

        Args:
            steps: the block.
            policy: as it was then.
            env_steps: where the run stood on the x-axis when it began.
            vector_step: env steps of one vector step, over all ranks.
            random: whether actions were drawn at random instead.
        """
        length, envs = steps.reward.shape
        if length == 0:
            return
        taken = policy.env_action(steps.action.reshape(length * envs, *steps.action.shape[2:]))
        taken = taken.reshape(length, envs, *taken.shape[1:])
        log_prob = None if random else self._log_prob(steps, taken, policy, env_steps, vector_step)
        final = {(int(t), int(n)): k for k, (t, n) in enumerate(steps.final_index)}
        ended = (steps.terminated | steps.truncated) & steps.valid
        for n in range(envs):
            first = 0
            for end in [*np.flatnonzero(ended[:, n]).tolist(), length - 1]:
                kept = np.arange(first, end + 1)[steps.valid[first : end + 1, n]]
                first = end + 1
                if not len(kept):
                    continue
                at = final.get((end, n))
                last = tree_map(lambda x, e=end, n=n: x[e + 1, n], steps.obs)
                if at is not None:
                    last = tree_map(lambda x, k=at: x[k], steps.final_obs)
                piece = Trajectory(
                    number=self._written,
                    seed=None,
                    obs=tree_map(lambda x, y, k=kept, n=n: np.concatenate([x[k, n], y[None]]), steps.obs, last),
                    action=taken[kept, n].copy(),
                    reward=steps.reward[kept, n].astype(np.float64),
                    terminated=bool(steps.terminated[end, n]),
                    truncated=bool(steps.truncated[end, n]),
                    success=None,
                    log_prob=None if log_prob is None else log_prob[kept, n],
                )
                self._open[n].append(piece)
                if ended[end, n]:
                    self._write(n)

    def _log_prob(
        self, steps: Steps, taken: np.ndarray, policy: Policy, env_steps: int, vector_step: int
    ) -> np.ndarray | None:
        """The log-probability (T, N) of what was executed: the units are those after clipping."""
        device = next(policy.parameters()).device
        found, seen = [], stacked(steps, self._stacking).obs
        for t in range(len(taken)):  # schedules move from step to step
            obs = tree_map(lambda x, t=t: torch.from_numpy(x[t]).to(device), seen)
            action = torch.from_numpy(self._units(taken[t])).to(device)
            of_step = policy.behaviour_log_prob(obs, action, env_steps + vector_step * t)
            if of_step is None:
                return None
            found.append(of_step.double().cpu().numpy())
        return np.stack(found)

    def cut(self) -> None:
        """Write the episodes under way as truncated."""
        for n in range(len(self._open)):
            self._write(n)

    def _write(self, n: int) -> None:
        pieces, self._open[n] = self._open[n], []
        if not pieces:
            return
        log_probs = [piece.log_prob for piece in pieces]
        self.writer.write(
            pieces[-1]._replace(
                number=self._written,
                obs=tree_map(_joined, *(piece.obs for piece in pieces)),
                action=np.concatenate([piece.action for piece in pieces]),
                reward=np.concatenate([piece.reward for piece in pieces]),
                truncated=pieces[-1].truncated or not pieces[-1].terminated,
                log_prob=None if any(x is None for x in log_probs) else _concatenated(log_probs),
            )
        )
        self._written += 1

    def close(self) -> None:
        """Write what is left and close the file."""
        self.cut()
        self.writer.close()


def _joined(*pieces: np.ndarray) -> Tree:
    """The observations of pieces that follow each other: a piece's last is the next one's first."""
    return np.concatenate([*(piece[:-1] for piece in pieces[:-1]), pieces[-1]])


def _concatenated(parts: list[Any]) -> np.ndarray:
    found: np.ndarray = np.concatenate(parts)
    return found
