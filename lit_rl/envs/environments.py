"""The environments of a run: those that are learned in, and those of evaluations."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gymnasium as gym
from gymnasium.vector import VectorEnv

from lit_rl.envs.config import EnvConfig
from lit_rl.envs.frames import stack_spaces
from lit_rl.envs.make import EnvName, make_env, name_of
from lit_rl.envs.spaces import describe, storage
from lit_rl.envs.vector import make_vector_env, probe
from lit_rl.envs.video import check_rendering, filmed
from lit_rl.errors import UsageError


class Environments:
    """Makes them, all of which show and take the same.

    Args:
        config: which they are, and how many are learned in.
        evaluated: the environment of evaluations, where that is another.

    Attributes:
        frames: the spaces of an environment.
        spaces: what a policy sees of it, stacked frames included, and takes.

    Raises:
        UsageError: there is no such environment, it cannot be used, or others show or take something else.
    """

    def __init__(self, config: EnvConfig, evaluated: EnvName | None = None) -> None:
        assert config.env is not None
        self.config = config
        self.env: EnvName = config.env
        self.evaluated = self.env if evaluated is None else evaluated
        self._eval_config = config.env_config | config.eval_env_config
        self.frames = probe(self.env, config.env_config, config.wrappers(False))
        self.spaces = stack_spaces(self.frames, config.stacked_frames)
        if config.vector_env in ("native", "envpool"):  # refused here rather than in the middle of a fit
            self._check_native()
        elif callable(self.env) or ":" in self.env or "." in self.env:  # the user's own code: do two have the same?
            if (again := probe(self.env, config.env_config, config.wrappers(False))) != self.frames:
                found = self.frames
                both = f"{found.action} and {again.action}, {found.observation} and {again.observation}"
                raise UsageError(f"{name_of(self.env)} makes envs with different spaces: {both}")
        if config.eval_env_config or evaluated is not None:
            self._check_evaluated()

    def _check_native(self) -> None:
        """Refuse a vector version that does not exist, or that is of another kind than the environment itself."""
        made = self.training()
        found = made.single_observation_space, made.single_action_space
        wanted = self.frames.observation, self.frames.action
        made.close()
        if not all(map(_alike, found, wanted)):
            shown = [" and ".join(map(describe, both)) for both in (found, wanted)]
            raise UsageError(
                f"vector_env {self.config.vector_env} of {name_of(self.env)} has {shown[0]}, not {shown[1]}: "
                "choose sync or async"
            )

    def _check_evaluated(self) -> None:
        """Refuse evaluations in an environment of another kind."""
        if probe(self.evaluated, self._eval_config, self.config.wrappers(False)) == self.frames:
            return
        shown = name_of(self.evaluated)
        if self.evaluated is self.env:
            raise UsageError(f"--eval_env_config makes {shown} show or take something else than in training")
        raise UsageError(f"evaluations in {shown} show or take something else than {name_of(self.env)}")

    def training(self, first_index: int = 0) -> VectorEnv[Any, Any, Any]:
        """Those that are learned in, on one rank; ``first_index`` is the number of the first, for messages."""
        config = self.config
        return make_vector_env(
            self.env,
            config.env_config,
            config.num_envs,
            config.vector_env,
            autoreset="same_step",
            first_index=first_index,
            wrappers=config.wrappers(True),
        )

    def evaluation(self, count: int) -> VectorEnv[Any, Any, Any]:
        """Those of evaluations: they pay what the environment pays, and leave resets to the caller."""
        config = self.config
        waits = config.vector_env in ("sync", "async") or (config.vector_env == "native" and config.atari)
        return make_vector_env(
            self.evaluated,
            self._eval_config,
            count,
            config.vector_env if waits else "sync",
            autoreset="disabled",
            wrappers=config.wrappers(False),
        )

    def check_film(self) -> None:
        """Refuse in one line an environment that :meth:`filmed` could not show.

        Raises:
            UsageError: it cannot be rendered here, or the package that writes films is missing.
        """
        check_rendering(self.evaluated, self._eval_config, "rgb_array", "--videos")

    def filmed(self, folder: Path, prefix: str, episodes: int) -> VectorEnv[Any, Any, Any]:
        """One of evaluations before a camera: see :class:`lit_rl.envs.video.Film`."""
        config = self._eval_config | {"render_mode": "rgb_array"}
        made = make_env(self.evaluated, config, wrappers=self.config.wrappers(False))
        return filmed(made, folder, prefix, episodes)

    def saved(self) -> dict[str, Any]:
        """The environment as a checkpoint names it."""
        return saved_env(self.env, self.config.env_config, self.config.atari, self.config.max_episode_steps)


def saved_env(env: EnvName, env_config: dict[str, Any], atari: bool, max_episode_steps: int | None) -> dict[str, Any]:
    """An environment as a checkpoint names it: by its id or import path, with a config of plain values; else without."""
    name = env if isinstance(env, str) else f"{getattr(env, '__module__', '')}:{getattr(env, '__qualname__', '')}"
    saved = {"env": name, "atari": atari, "max_episode_steps": max_episode_steps}
    try:
        return saved | {"env_config": json.loads(json.dumps(env_config))}
    except (TypeError, ValueError):
        return saved | {"env_config": None}


def _alike(one: gym.Space[Any], other: gym.Space[Any]) -> bool:
    """Whether observations are kept, or actions taken, in the same way; bounds and precision may differ."""
    return (
        isinstance(one, type(other))
        and storage(one) == storage(other)
        and (isinstance(one, gym.spaces.Box) or describe(one) == describe(other))
    )
