"""W8, collecting alone on a native vector environment: ``python -m bench.collecting OUT.json``.

32 vector steps of CartPole by a PPO policy of 64-64, for 8, 64 and 512 environments, in turn with the same number of
bare vector steps and bare forward passes, all in one process.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

import torch

from bench.floor import bare_acting

ENVS, STEPS = (8, 64, 512), 32


def collector(num_envs: int, vector_env: str = "native", env: str = "CartPole-v1") -> Callable[[int], Any]:
    """Collects n env steps with a PPO policy."""
    from lit_rl import ExperienceDataModule, LitPolicy
    from lit_rl.data.collector import Collector
    from lit_rl.envs.vector import make_vector_env

    data = ExperienceDataModule(env)
    policy = LitPolicy("PPO", data.spaces).policy
    envs = make_vector_env(env, {}, num_envs, vector_env, autoreset="same_step")  # type: ignore[arg-type]
    made = Collector(envs, data.spaces, lambda restart: list(range(num_envs)), torch.Generator(), num_envs)

    def collect(n: int) -> None:
        made.collect(n, policy, 0)
        made.take_episodes()

    return collect


def bare_vector(num_envs: int) -> Callable[[], None]:
    """One step of the native vector environment with random actions."""
    import gymnasium as gym

    envs = gym.make_vec("CartPole-v1", num_envs, vectorization_mode="vector_entry_point")
    envs.reset(seed=0)
    envs.action_space.seed(0)
    actions = envs.action_space.sample()
    return lambda: envs.step(actions) and None


def measure(num_envs: int, seconds: float = 3.0) -> dict[str, float]:
    """µs per vector step: of collecting, of the bare environment and of the bare forward pass; the fastest of each."""
    collect, env, act = collector(num_envs), bare_vector(num_envs), bare_acting([4, 64, 64, 2], num_envs)
    runs: dict[str, Callable[[], Any]] = {
        "collect": lambda: collect(STEPS * num_envs),
        "env": lambda: [env() for _ in range(STEPS)],
        "act": lambda: [act() for _ in range(STEPS)],
    }
    best = dict.fromkeys(runs, float("inf"))
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        for name, run in runs.items():
            began = time.perf_counter()
            run()
            best[name] = min(best[name], (time.perf_counter() - began) * 1e6 / STEPS)
    return best


def main() -> None:
    torch.set_num_threads(1)
    found = {str(n): measure(n) for n in ENVS}
    with open(sys.argv[1], "w") as file:
        json.dump(found, file)


if __name__ == "__main__":
    main()
