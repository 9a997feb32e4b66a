"""What Tianshou's trainers are given beside a policy: buffers, vector envs and collectors, which only say what is wanted."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium as gym
import numpy as np

from lit_rl.data.config import MOST
from lit_rl.errors import UsageError
from lit_rl.lit_policy import LitPolicy

Makers = Sequence[Callable[..., gym.Env[Any, Any]]]


def counted(name: str, value: Any, low: int = 1) -> int:
    """A count that was given.

    Raises:
        UsageError: it is none, or less than ``low``.
    """
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not low <= value <= MOST:
        raise UsageError(f"{name} {value!r} is not allowed: give a whole number of at least {low}, at most {MOST}")
    return int(value)


@dataclasses.dataclass
class ReplayBuffer:
    """How many transitions are kept, over all envs."""

    size: int
    buffer_num: int = 1

    def __post_init__(self) -> None:
        counted("ReplayBuffer: size", self.size)


VectorReplayBuffer = ReplayBuffer


class VectorEnv:
    """Environments side by side, made when a trainer needs them: as many as there are functions, all by the first one.

    They differ by their seeds alone.
    """

    kind = "sync"

    def __init__(self, env_fns: Makers) -> None:
        if not isinstance(env_fns, Sequence) or not env_fns or not all(map(callable, env_fns)):
            raise UsageError(f"{type(self).__name__} needs a function for each env")
        self.env_fns = list(env_fns)

    def __len__(self) -> int:
        return len(self.env_fns)


DummyVectorEnv = VectorEnv


class SubprocVectorEnv(VectorEnv):
    """The same, with a process for each."""

    kind = "async"


class Collector:
    """Says which envs a policy acts in, and what is kept of it.

    Args:
        policy: a LitPolicy.
        env: an environment id, a function that makes one, a Gymnasium env that ``gymnasium.make`` made, or a VectorEnv.
        buffer: a ReplayBuffer; without one, as large as the policy's ``buffer_size``.
        exploration_noise: True: training always explores; tests only by what ``test_fn`` sets.
    """

    def __init__(
        self, policy: LitPolicy, env: Any, buffer: ReplayBuffer | None = None, exploration_noise: bool = True
    ) -> None:
        self.policy, self.buffer, self.exploration_noise = policy, buffer, exploration_noise
        self.first_steps = 0
        self.num_envs, self.vector_env = 1, "sync"
        self.env: Any = env
        if isinstance(env, VectorEnv):
            self.num_envs, self.vector_env = len(env), env.kind
            self.env = env.env_fns[0]  # one maker for all: they differ by their seed
        elif isinstance(env, gym.Env):
            if env.spec is None:
                raise UsageError("Collector: this env has no id; give a function that makes it")
            self.env = _maker(env.spec)
            env.close()
        elif not (callable(env) or isinstance(env, str)):
            raise UsageError(
                f"Collector: {env!r} is no environment; give an id, a function, or a VectorEnv of functions"
            )

    def collect(self, n_step: int) -> dict[str, int]:
        """Collect before the first update: the trainer does it, ``n_step`` env steps by the policy itself."""
        self.first_steps += counted("collect: n_step", n_step)
        return {"n/st": n_step, "n/ep": 0}


def _maker(spec: gym.envs.registration.EnvSpec) -> Any:
    """An id, where ``gymnasium.make`` was given nothing else; else what makes the same once more."""
    plain = gym.spec(spec.id)
    if (spec.kwargs, spec.max_episode_steps, spec.additional_wrappers) == (
        plain.kwargs,
        plain.max_episode_steps,
        plain.additional_wrappers,
    ):
        return spec.id

    def make(**config: Any) -> gym.Env[Any, Any]:
        return gym.make(spec, **config)

    make.__qualname__ = spec.id
    return make
