"""The outermost wrapper of every environment: plain rewards, observations that last, errors that say where."""

from __future__ import annotations

import signal
import traceback
from copy import deepcopy
from typing import Any

import gymnasium as gym
import numpy as np

from lit_rl.envs.spaces import describe
from lit_rl.errors import EnvError

# A first Ctrl-C makes the run's own handler (callbacks/interrupt.py) raise nothing, a second one raises its Quit, so that
# this KeyboardInterrupt is the env's own where that handler is in place.
_RAISED = (Exception, SystemExit, GeneratorExit)
_NUMBERS = (float, int, np.floating, np.integer)


class Guard(gym.Wrapper[Any, Any, Any, Any]):
    """Holds an environment to what the collector relies on.

    Rewards become floats (ints, 0-d and one-element arrays are taken). The observations that begin and end an episode
    are copies, so that they survive an env that writes all of them into one array. Whatever the env raises,
    StopIteration and SystemExit included, becomes an EnvError that names the env and its step and holds the env's
    own traceback.

    Args:
        env: the environment.
        index: its number among the vectorised ones, for messages.
    """

    def __init__(self, env: gym.Env[Any, Any], index: int = 0) -> None:
        super().__init__(env)
        self.index = index
        self.steps = 0  # made in all episodes
        self._episode_began = 0
        space = env.observation_space
        # The vector env would write a wrongly sized observation without a word where its size happens to fit.
        self._shape = space.shape if isinstance(space, gym.spaces.Box) else None
        self._discrete = space if isinstance(space, gym.spaces.Discrete | gym.spaces.MultiDiscrete) else None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """As Gymnasium's; raises EnvError."""
        self._episode_began = self.steps
        try:
            obs, info = self.env.reset(seed=seed, options=options)
        except _RAISED as error:
            raise self._raised(" in reset", error) from None
        except KeyboardInterrupt as error:
            raise self._interrupted(" in reset", error) from None
        if type(info) is not dict:
            self._check_info(info)
        return deepcopy(obs), info

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """As Gymnasium's, the reward a float; raises EnvError."""
        self.steps += 1
        try:
            obs, reward, terminated, truncated, info = self.env.step(action)
        except _RAISED as error:
            raise self._raised("", error) from None
        except KeyboardInterrupt as error:
            raise self._interrupted("", error) from None
        if type(info) is not dict:
            self._check_info(info)
        if type(reward) is not float:
            reward = float(reward) if isinstance(reward, _NUMBERS) else self._plain(reward)
        if self._shape is not None and getattr(obs, "shape", None) != self._shape:
            self._check_shape(obs)
        if self._discrete is not None and not self._discrete.contains(obs):
            raise EnvError(f"{self._where()}: its observation {obs!r} lies outside {describe(self._discrete)}")
        if terminated or truncated:
            obs = deepcopy(obs)
        return obs, reward, terminated, truncated, info

    def render(self) -> Any:
        """As Gymnasium's; raises EnvError."""
        try:
            return self.env.render()
        except _RAISED as error:
            raise self._raised(" in render", error) from None

    def _plain(self, reward: Any) -> float:
        number = np.asarray(reward)
        if number.size != 1 or number.dtype.kind not in "fiub":
            raise EnvError(f"{self._where()}: its reward is {reward!r}; give one number")
        return float(number.item())

    def _check_info(self, info: Any) -> None:
        if not isinstance(info, dict):
            raise EnvError(f"{self._where()}: its info is {info!r}; give a dict, {{}} for nothing")

    def _interrupted(self, doing: str, error: KeyboardInterrupt) -> BaseException:
        """The env's own KeyboardInterrupt as an EnvError; that of Python's handler, a real Ctrl-C, as it is."""
        real = signal.getsignal(signal.SIGINT) is signal.default_int_handler
        return error if real else self._raised(doing, error)

    def _check_shape(self, obs: Any) -> None:
        if np.shape(obs) != self._shape:
            declared = f"its observation_space declares {self._shape}"
            raise EnvError(f"{self._where()}: its observation has the shape {np.shape(obs)}, {declared}")

    def _where(self) -> str:
        return f"env {self.index}, step {self.steps} (step {self.steps - self._episode_began} of its episode)"

    def _raised(self, doing: str, error: BaseException) -> EnvError:
        # One string is all that an async worker hands on of an error: the traceback has to be in it.
        if isinstance(error, EnvError):
            return EnvError(f"{self._where()}: {error}")
        frames = error.__traceback__
        own = frames.tb_next or frames if frames else None
        text = "".join(traceback.format_exception(type(error), error, own)).rstrip()
        return EnvError(f"{self._where()} raised {type(error).__name__}{doing}: {error}\n{text}")
