"""Environments whose observation says which step of which episode it is: every stored number has a known truth."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import gymnasium as gym
import numpy as np
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from torch import nn

from lit_rl.data.collector import Collector
from lit_rl.data.transitions import Steps
from lit_rl.envs.config import VectorEnvKind
from lit_rl.envs.frames import stack_spaces
from lit_rl.envs.spaces import Spaces
from lit_rl.envs.vector import make_vector_env, probe
from lit_rl.functional.tree import tree_map
from lit_rl.policies.base import Acted, Policy

ACTIONS = 3
MIXED = (3, 1, 4, 1, 1, 2, 5)


def reward_of(lane: int, episode: int, t: int, action: int) -> float:
    """What step ``t`` pays; exact in float32."""
    return lane * 64 + episode * 8 + t + action / 4


def action_at(episode: int, t: int) -> int:
    """What :class:`Scripted` does."""
    return (episode + t) % ACTIONS


class Recorded(gym.Env[Any, Any]):
    """Observes [lane, episode, step of it]; its lane is its first reset seed.

    Episode k lasts ``lengths[(k + lane) % len(lengths)]`` steps; every other episode is truncated.
    """

    observation_space: Any = gym.spaces.Box(0, 10_000, (3,), np.float32)
    action_space = gym.spaces.Discrete(ACTIONS)

    def __init__(self, lengths: Sequence[int] = MIXED, reuses: bool = False) -> None:
        self.lengths, self.reuses = lengths, reuses
        self.lane, self.episode, self.t = -1, -1, 0
        self.array = np.zeros(3, np.float32)

    def obs(self) -> np.ndarray:
        if not self.reuses:
            return np.array([self.lane, self.episode, self.t], np.float32)
        self.array[:] = self.lane, self.episode, self.t
        return self.array

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        if seed is not None:
            self.lane, self.episode = seed, -1
        self.episode, self.t = self.episode + 1, 0
        return self.obs(), {}

    def step(self, action: np.int64) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        reward = reward_of(self.lane, self.episode, self.t, int(action))
        self.t += 1
        over = self.t == length_of(self.lane, self.episode, self.lengths)
        truncates = is_truncated(self.lane, self.episode)
        return self.obs(), reward, over and not truncates, over and truncates, {"success": self.episode % 3 == 0}


class RecordedDict(Recorded):
    """The same in a dict with a nested tuple."""

    observation_space: Any = gym.spaces.Dict(
        {
            "where": gym.spaces.Tuple(
                (gym.spaces.Box(0, 10_000, (1,), np.float64), gym.spaces.Discrete(10_000, start=0))
            ),
            "t": gym.spaces.Box(0, 10_000, (), np.int64),
        }
    )

    def obs(self) -> Any:
        lane, episode, t = super().obs()
        return {"where": (np.array([lane], np.float64), int(episode)), "t": np.array(int(t))}


def length_of(lane: int, episode: int, lengths: Sequence[int] = MIXED) -> int:
    return lengths[(episode + lane) % len(lengths)]


def is_truncated(lane: int, episode: int) -> bool:
    return (episode + lane) % 2 == 1


def native(num_envs: int, **kwargs: Any) -> gym.vector.VectorEnv[Any, Any, Any]:
    """A vector env of its own kind: it resets in the step after an episode's end."""
    makers = [lambda: Recorded(**kwargs)] * num_envs
    return SyncVectorEnv(makers, copy=False, autoreset_mode=AutoresetMode.NEXT_STEP)


gym.register("RecordedNative-v0", entry_point=cast(Any, Recorded), vector_entry_point=cast(Any, native))


class Scripted(Policy):
    """Does :func:`action_at` whatever the noise; ``seen`` counts the observations it was asked about."""

    def __init__(self, spaces: Spaces) -> None:
        super().__init__(spaces)
        self.actor = nn.Linear(1, 1)
        self.seen = 0

    def act(self, obs: Any, noise: Any = None, state: Any = None) -> Acted:
        flat = as_rows(obs)
        self.seen += len(flat)
        return Acted(((flat[:, 1] + flat[:, 2]) % ACTIONS).long(), None)

    def draw(self, steps: int, envs: int, generator: Any) -> torch.Tensor:
        return torch.rand(steps, envs, 1, generator=generator)

    def random(self, obs: Any, noise: torch.Tensor) -> torch.Tensor:
        return (noise[:, 0] * ACTIONS).long()


def as_rows(obs: Any) -> torch.Tensor:
    """[lane, episode, t] in rows, from either kind of observation."""
    if isinstance(obs, dict):
        lane, episode = obs["where"]
        return torch.stack([lane[..., 0].double(), episode.double(), obs["t"].double()], -1)
    return cast(torch.Tensor, obs)


def make_collector(
    num_envs: int = 2,
    vector_env: VectorEnvKind = "sync",
    env: str | Callable[..., gym.Env] = Recorded,
    seeds: Callable[[int], list[int]] | None = None,
    frame_stack: int = 1,
    **env_config: Any,
) -> tuple[Collector, Scripted]:
    """A collector of recorded envs (lane i in env i after every restart) and the policy for it."""
    spaces = stack_spaces(probe(env, env_config), frame_stack)
    envs = make_vector_env(env, env_config, num_envs, vector_env, autoreset="same_step")
    generator = torch.Generator().manual_seed(0)
    collector = Collector(envs, spaces, seeds or (lambda _: list(range(num_envs))), generator, num_envs)
    return collector, Scripted(spaces)


def collect(collector: Collector, policy: Policy, n: int, env_steps: int = 0, random: bool = False) -> Steps:
    """``collector.collect`` as tensors that the next collect does not overwrite."""
    steps = collector.collect(n, policy, env_steps, random)
    return Steps(*tree_map(lambda x: torch.tensor(x), tuple(steps[:-2])))
