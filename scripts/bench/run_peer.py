"""Run one workload on one peer, in the peer's own virtual environment: ``python -m bench.run_peer sb3 W1 OUT.json``."""

from __future__ import annotations

import json
import resource
import sys
import time
from typing import Any

from bench.workloads import WORKLOADS, Workload


def make(lib: str, workload: Workload, scale: float) -> tuple[Any, int]:
    """The peer's model, and the env steps that it learns for."""
    if lib == "sbx":
        import sbx as rl
    else:
        import stable_baselines3 as rl
    kind, settings = workload.peer
    policy = "CnnPolicy" if "NoFrameskip" in workload.env else "MlpPolicy"
    model = getattr(rl, kind)(policy, envs(workload), **settings)
    return model, workload.length(scale)


def envs(workload: Workload) -> Any:
    """The environments as the peer's own examples make them."""
    from stable_baselines3.common.env_util import make_atari_env, make_vec_env
    from stable_baselines3.common.vec_env import VecFrameStack

    if "NoFrameskip" not in workload.env:
        return make_vec_env(workload.env, workload.num_envs)
    import ale_py
    import gymnasium as gym

    gym.register_envs(ale_py)
    return VecFrameStack(make_atari_env(workload.env, workload.num_envs), 4)


def updates(model: Any) -> int:
    """Gradient steps made, one minibatch each."""
    made = int(model._n_updates)
    if not hasattr(model, "n_epochs"):
        return made
    rows = model.n_steps * model.n_envs
    return made * -(-rows // model.batch_size)


def batch(model: Any) -> int:
    """Transitions of an update."""
    return int(model.batch_size if hasattr(model, "batch_size") else model.n_steps * model.n_envs)


def main() -> None:
    lib, name, out, scale = sys.argv[1], sys.argv[2], sys.argv[3], float(sys.argv[4])
    workload = WORKLOADS[name]
    import torch

    torch.set_num_threads(workload.threads)
    model, steps = make(lib, workload, scale)
    from stable_baselines3.common.callbacks import BaseCallback

    class Clock(BaseCallback):
        """Notes when the run is warm; looked at once a rollout, so that it costs nothing."""

        warm: tuple[float, int] | None = None

        def _on_rollout_start(self) -> None:
            if self.warm is None and self.num_timesteps >= workload.warm:
                self.warm = time.perf_counter(), self.num_timesteps

        def _on_step(self) -> bool:
            return True

    clock = Clock()
    began = time.perf_counter()
    model.learn(steps, callback=clock)
    ended = time.perf_counter()
    assert clock.warm is not None
    result = {
        "rate": (model.num_timesteps - clock.warm[1]) / (ended - clock.warm[0]),
        "rate_whole": model.num_timesteps / (ended - began),
        "seconds": ended - began,
        "steps": model.num_timesteps,
        "updates": updates(model),
        "batch": batch(model),
        "memory_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }
    with open(out, "w") as file:
        json.dump(result, file)


if __name__ == "__main__":
    main()
