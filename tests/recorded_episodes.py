"""Trajectory episodes of envs that are played well, or half well."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from tiny_runs import Signs

from lit_rl.data.offline.writers import open_writer
from lit_rl.data.transitions import Trajectory
from lit_rl.envs.make import make_env
from lit_rl.envs.spaces import Spaces
from lit_rl.functional.tree import tree_map

Act = Callable[[Any, gym.Env[Any, Any], np.random.Generator], Any]


def answer(obs: Any, env: gym.Env[Any, Any], rng: np.random.Generator) -> Any:
    """What :class:`Signs` pays for, in nine of ten steps; anything in the others."""
    signs: Any = env.unwrapped
    if rng.random() < 0.1:
        return env.action_space.sample()
    if signs.start is None:
        return np.array([signs.sign], np.float32)
    return signs.start + int(signs.sign > 0)


def balance(obs: Any, env: gym.Env[Any, Any], rng: np.random.Generator) -> int:
    """Holds CartPole's pole up; one step of ten is taken at random."""
    return int(rng.integers(2)) if rng.random() < 0.1 else int(obs[2] + 0.3 * obs[3] + 0.05 * obs[1] > 0)


def play(env: gym.Env[Any, Any], act: Act, seed: int, limit: int = 10**6) -> Trajectory:
    """An episode, cut off after ``limit`` steps."""
    env.action_space.seed(seed)
    rng = np.random.default_rng(seed)
    obs = [env.reset(seed=seed)[0]]
    actions, rewards, terminated, truncated = [], [], False, False
    while not (terminated or truncated):
        actions.append(act(obs[-1], env, rng))
        seen, reward, terminated, truncated, _ = env.step(actions[-1])
        obs.append(seen)
        rewards.append(reward)
        truncated = truncated or (len(rewards) >= limit and not terminated)
    stacked = tree_map(lambda *x: np.stack([np.asarray(part) for part in x]), *obs)
    return Trajectory(0, seed, stacked, np.array(actions), np.array(rewards), terminated, truncated, None, None)


def episodes(
    count: int, env: Any = Signs, act: Act = answer, limit: int = 10**6, **env_config: Any
) -> Iterator[Trajectory]:
    """Episodes with the reset seeds 1000, 1001, ..."""
    made = make_env(env, env_config)
    for i in range(count):
        yield play(made, act, 1000 + i, limit)
    made.close()


def spaces_of(env: Any = Signs, **env_config: Any) -> Spaces:
    made = make_env(env, env_config)
    return Spaces(made.observation_space, made.action_space)


def record(path: str | Path, count: int, env: Any = Signs, **settings: Any) -> str:
    """Write ``count`` episodes to ``path``, which is handed back."""
    config = {name: value for name, value in settings.items() if name not in ("act", "limit")}
    writer = open_writer(str(path), spaces_of(env, **config), env if isinstance(env, str) else None)
    for episode in episodes(count, env, **settings):
        writer.write(episode)
    writer.close()
    return str(path)
