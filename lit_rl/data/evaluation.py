"""Evaluation without bias: a fixed set of whole episodes, chosen by their seeds before the first step."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor
from torchmetrics import Metric

from lit_rl.data.collector import reported_success, reset_state
from lit_rl.data.record import Recorder
from lit_rl.data.transitions import Episode
from lit_rl.envs.frames import Frames, frame_space
from lit_rl.envs.spaces import Spaces, Stored, storage
from lit_rl.errors import NumericsError
from lit_rl.functional.tree import Tree, tree_leaves, tree_map
from lit_rl.policies.acting import Actor, make_actor
from lit_rl.policies.base import Policy

AFTER_TRAINING = 1 << 62  # an env step after the last point of any schedule
WIDTH = 32  # observations per forward pass: a fixed one, since the last bits of a product depend on its shape


STATISTICS = ("return", "return_std", "return_min", "return_max", "length", "episodes", "success")


class EpisodeStatistics(Metric):
    """Mean, spread and range of returns, mean length, and the rate of success where every episode reports it.

    Episodes are put in order before anything is summed, so that ranks change no digit.
    """

    full_state_update = False
    rows: list[Tensor]

    def __init__(self) -> None:
        super().__init__()
        self.add_state("rows", [], dist_reduce_fx="cat")

    def update(self, episode: Episode) -> None:
        """Count an episode.

        Raises:
            NumericsError: its return is NaN or infinite.
        """
        if not np.isfinite(episode.return_):
            raise NumericsError(f"evaluation episode {episode.number} has the return {episode.return_}")
        success = torch.nan if episode.success is None else episode.success
        row = [episode.number, episode.return_, episode.length, success]
        self.rows.append(torch.tensor([row], dtype=torch.float64, device=self.device))

    def compute(self) -> dict[str, float]:
        """The statistics by name; ``return_std`` is that of the population, ``success`` is left out unless all report it."""
        rows = torch.cat(self.rows) if isinstance(self.rows, list) else self.rows
        rows = rows.cpu()[rows[:, 0].cpu().argsort()]
        returns, length, success = rows[:, 1], rows[:, 2], rows[:, 3]
        statistics = {
            "return": float(returns.mean()),
            "return_std": float(returns.std(correction=0)),
            "return_min": float(returns.min()),
            "return_max": float(returns.max()),
            "length": float(length.mean()),
            "episodes": float(len(rows)),
        }
        if not success.isnan().any():
            statistics["success"] = float(success.mean())
        return statistics


def act_greedily(actor: Actor, obs: Tree, state: Tree) -> tuple[np.ndarray, Tree]:
    """Greedy actions for N observations, in forward passes of a fixed width; and the policy's next state."""
    count = len(tree_leaves(obs)[0])
    actions, states = [], []
    for start in range(0, count, WIDTH):
        used = min(WIDTH, count - start)
        part = tree_map(lambda x, s=start: _padded(x[s : s + WIDTH]), obs)
        before = None if state is None else tree_map(lambda x, s=start: _padded_tensor(x[s : s + WIDTH]), state)
        action, after = actor.act(part, None, before)
        actions.append(action[:used])
        states.append(None if after is None else tree_map(lambda x, u=used: x[:u], after))
    return np.concatenate(actions), None if state is None else tree_map(lambda *parts: torch.cat(parts), *states)


def _padded(x: np.ndarray) -> np.ndarray:
    missing = WIDTH - len(x)
    return np.concatenate([x, np.repeat(x[-1:], missing, 0)]) if missing else x


def _padded_tensor(x: Tensor) -> Tensor:
    missing = WIDTH - len(x)
    return torch.cat([x, x[-1:].expand(missing, *x.shape[1:])]) if missing else x


def _cast(kind: Stored, x: Any) -> np.ndarray:
    return np.asarray(x).astype(kind.dtype, copy=False)


def _check_finite(obs: Tree, number: list[int], lengths: np.ndarray) -> None:
    """Refuse NaN and infinity in the observations of episodes that count."""
    for leaf in tree_leaves(obs):
        if leaf.dtype.kind == "f" and not np.isfinite(leaf.sum()):
            for n in np.flatnonzero(~np.isfinite(leaf).all(tuple(range(1, leaf.ndim)))):
                if number[n] >= 0:
                    raise NumericsError(
                        f"evaluation episode {number[n]} showed an observation with NaN or infinity at step {lengths[n]}"
                    )


@torch.inference_mode()
def play_episodes(
    policy: Policy,
    envs: gym.vector.VectorEnv,
    spaces: Spaces,
    seeds: Iterable[tuple[int, int]],
    explore: torch.Generator | None = None,
    recorder: Recorder | None = None,
    steps: int | None = None,
) -> Iterator[Episode]:
    """Play one episode for each (number, reset seed), in envs that do not reset themselves; yielded in that order.

    Which episodes are played is fixed before the first step, and whoever stops early has the first ones, so short
    episodes are never over-represented; the envs' number changes the speed only.

    Args:
        policy: acts greedily; with ``explore`` as at the end of training, by noise from that generator.
        envs: do not reset themselves.
        spaces: of one env.
        seeds: number and reset seed of each episode, numbers rising; there may be no end of them.
        recorder: is shown every step.
        steps: env steps after which no more are made; the episodes under way are not yielded then.

    Raises:
        NumericsError: an observation is NaN or infinite.
        EnvError: an environment raised.
    """
    policy.eval()
    actor, n = make_actor(policy), envs.num_envs
    waiting = iter(seeds)
    order: list[int] = []  # of the episodes that were begun and have not been yielded
    finished: dict[int, Episode] = {}
    number = [-1] * n
    kinds = storage(frame_space(spaces))
    frames, fresh = (Frames(spaces, n) if spaces.frame_stack > 1 else None), np.ones(n, bool)
    reset_seeds: list[int] = [0] * n

    def begin(i: int) -> None:
        number[i], reset_seeds[i] = next(waiting, (-1, reset_seeds[i]))
        if number[i] >= 0:
            order.append(number[i])

    for i in range(n):
        begin(i)
    obs, _ = envs.reset(seed=list(reset_seeds), options={"reset_mask": np.ones(n, bool)})  # type: ignore[arg-type]
    returns, lengths = np.zeros(n), np.zeros(n, np.int64)
    initial = policy.initial_state(n)
    state = initial
    made = 0
    while True:
        seen = tree_map(_cast, kinds, obs)
        _check_finite(seen, number, lengths)
        if recorder is not None:
            recorder.saw(number, reset_seeds, seen)
        if frames is not None:
            frames.push(seen, fresh)
            seen, fresh = frames.see(), np.zeros(n, bool)
        if explore is None:
            action, state = act_greedily(actor, seen, state)
        else:
            action, state = actor.act(seen, policy.noise(1, n, explore, AFTER_TRAINING, 1)[0].numpy(), state)
        taken = policy.env_action(action)
        obs, reward, terminated, truncated, info = envs.step(taken)
        returns += reward
        lengths += 1
        made += sum(i >= 0 for i in number)
        over = steps is not None and made >= steps
        ended = terminated | truncated
        if recorder is not None:
            recorder.made(taken, reward, terminated, truncated, tree_map(_cast, kinds, obs), info)
        if not ended.any():
            if over:
                return
            continue
        for i in map(int, np.flatnonzero(ended)):
            if number[i] >= 0:
                success = reported_success(info, i)
                finished[number[i]] = Episode(number[i], float(returns[i]), int(lengths[i]), success)
            begin(i)
        while order and order[0] in finished:
            yield finished.pop(order.pop(0))
        if over or max(number) < 0:
            return
        returns[ended], lengths[ended], fresh = 0.0, 0, ended
        obs, _ = envs.reset(seed=list(reset_seeds), options={"reset_mask": ended.copy()})  # type: ignore[arg-type]
        if state is not None:
            state = reset_state(state, initial, ended)
