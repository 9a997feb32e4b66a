"""Vector environments that step many environments in one call of their own: registered ones, ale-py's, EnvPool's."""

from __future__ import annotations

import importlib
import traceback
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv, VectorWrapper

from lit_rl.envs.atari import NOOPS, SIDE, SKIP, Atari, is_ale
from lit_rl.envs.make import EnvName, missing, name_of, nearest, register_package
from lit_rl.errors import EnvError, UsageError

if TYPE_CHECKING:  # they take parameters only from Gymnasium 1.3 on
    _VectorEnv = VectorEnv[Any, Any, Any]
    _VectorWrapper = VectorWrapper[Any, Any, Any, Any, Any]
else:
    _VectorEnv, _VectorWrapper = VectorEnv, VectorWrapper

Autoreset = Literal["same_step", "disabled"]


def make_native(
    env: EnvName,
    env_config: dict[str, Any],
    num_envs: int,
    kind: Literal["native", "envpool"],
    autoreset: Autoreset,
    atari: Atari | None,
) -> VectorEnv[Any, Any, Any]:
    """``num_envs`` environments in one, guarded; see ``make_vector_env``.

    Raises:
        UsageError: there is no such version of the environment, or it cannot leave resets to the caller.
    """
    if not isinstance(env, str):
        raise UsageError(f"vector_env {kind} needs an environment id, not {name_of(env)}; choose sync or async")
    register_package(env)
    if kind == "native" and is_ale(env) and atari is not None:
        return NativeGuard(AtariGames(env, env_config, num_envs, autoreset, atari))
    if autoreset == "disabled":
        raise UsageError(f"vector_env {kind} cannot leave resets to the caller; choose sync or async")
    if kind == "envpool":
        return NativeGuard(EnvPool(env, env_config, num_envs, atari))
    if is_ale(env):
        raise UsageError(f"vector_env native plays {env} preprocessed: add --atari, or choose sync or async")
    try:
        made = gym.make_vec(env, num_envs, vectorization_mode="vector_entry_point", **env_config)
    except gym.error.UnregisteredEnv as error:
        raise UsageError(f"--env {env}: {str(error).rstrip('.')}. {nearest(env)}") from None
    except (gym.error.Error, ImportError) as error:
        raise UsageError(f"vector_env native: {str(error).rstrip('.')}; choose sync or async") from None
    except TypeError as error:
        raise UsageError(f"--env_config does not fit the native {env}: {error}") from None
    return NativeGuard(OneSeed(made))


class NativeGuard(_VectorWrapper):
    """Turns whatever a native vector env raises into an EnvError that names the step."""

    def __init__(self, env: VectorEnv[Any, Any, Any]) -> None:
        super().__init__(env)
        self.steps = 0

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        try:
            return self.env.reset(seed=seed, options=options)
        except (Exception, SystemExit) as error:
            raise self._raised(error) from None

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        self.steps += 1
        try:
            return self.env.step(actions)
        except (Exception, SystemExit) as error:
            raise self._raised(error) from None

    def _raised(self, error: BaseException) -> EnvError:
        text = "".join(traceback.format_exception(error)).rstrip()
        return EnvError(f"the native envs, vector step {self.steps} raised {type(error).__name__}: {error}\n{text}")


class OneSeed(_VectorWrapper):
    """A registered vector env, which takes one seed and derives those of its envs from it: the first of several."""

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """As Gymnasium's."""
        return self.env.reset(seed=seed[0] if isinstance(seed, Sequence) else seed, options=options)


class _Spaced(_VectorEnv):
    """A vector env that has found out the spaces of one of its environments."""

    def _set_spaces(self, observation: gym.Space[Any], action: gym.Space[Any]) -> None:
        self.single_observation_space, self.single_action_space = observation, action
        self.observation_space = gym.vector.utils.batch_space(observation, self.num_envs)
        self.action_space = gym.vector.utils.batch_space(action, self.num_envs)


class AtariGames(_Spaced):
    """ale-py's vector env: the standard preprocessing in C++ threads, one frame at a time.

    Envs reset in the same step. With ``autoreset`` disabled the caller may reset an ended one once more, by a seed.
    """

    def __init__(self, env: str, env_config: dict[str, Any], num_envs: int, autoreset: Autoreset, atari: Atari) -> None:
        games: Any = importlib.import_module("ale_py.vector_env").AtariVectorEnv
        ours = {"frameskip": SKIP, "noop_max": NOOPS, "img_height": SIDE, "img_width": SIDE, "stack_num": 1}
        spec = {key: value for key, value in gym.spec(env).kwargs.items() if key != "frameskip"}
        ours |= {"life_loss_info": atari.training, "reward_clipping": atari.training}
        try:
            self._games = games(
                num_envs=num_envs, autoreset_mode=AutoresetMode.SAME_STEP, **(spec | env_config), **ours
            )
        except TypeError as error:
            raise UsageError(f"--env_config does not fit the native {env}: {error}") from None
        self.num_envs = num_envs
        self._frame = np.zeros(num_envs, np.int32)  # of the game, in each env
        self._keeps_final = autoreset == "disabled"
        mode = AutoresetMode.DISABLED if self._keeps_final else AutoresetMode.SAME_STEP
        self.metadata = {"autoreset_mode": mode}
        image = gym.spaces.Box(0, 255, (SIDE, SIDE), np.uint8)
        self._set_spaces(image, self._games.single_action_space)

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """As Gymnasium's, with a seed for each env."""
        if isinstance(seed, Sequence):
            mask = None if options is None else options.get("reset_mask")
            seed = np.array(seed) if mask is None else np.array(seed)[mask]
        obs, info = self._games.reset(seed=seed, options=options)
        self._frame = info["episode_frame_number"].copy()
        return obs[:, 0], info

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """As Gymnasium's."""
        obs, reward, terminated, truncated, info = self._games.step(actions)
        obs, before, self._frame = obs[:, 0], self._frame, info["episode_frame_number"].copy()
        if "final_obs" in info:
            # ale-py fills it in for new games only, not where a life was lost and the game goes on
            new_game = (self._frame <= before)[:, None, None]
            info = info | {"final_obs": np.where(new_game, info["final_obs"][:, 0], obs)}
            if self._keeps_final:
                obs = info["final_obs"]
        return obs, reward.astype(np.float32), terminated, truncated, info


class EnvPool(_Spaced):
    """EnvPool's vector env, in C++ threads: resets in the next step, and knows no seeds but those it is made with."""

    def __init__(self, env: str, env_config: dict[str, Any], num_envs: int, atari: Atari | None) -> None:
        try:
            self._envpool = importlib.import_module("envpool")
        except ModuleNotFoundError as error:
            raise missing(f"vector_env envpool of {env}", error, "envpool") from None
        self._task, self._config = env, dict(env_config)
        if is_ale(env) and atari is None:
            raise UsageError(f"vector_env envpool plays {env} preprocessed: add --atari, or choose sync or async")
        if atari is not None:
            # its own names of the same games
            self._task = env.removeprefix("ALE/").replace("NoFrameskip-v4", "-v5")
            sticky = gym.spec(env).kwargs["repeat_action_probability"]
            ours = {"stack_num": 1, "frame_skip": SKIP, "noop_max": NOOPS, "img_height": SIDE, "img_width": SIDE}
            ours |= {"episodic_life": atari.training, "reward_clip": atari.training}
            self._config = {"repeat_action_probability": sticky} | ours | self._config
        self._atari = atari is not None
        self.num_envs = num_envs
        if self._task not in self._envpool.list_all_envs():
            raise UsageError(f"vector_env envpool: EnvPool has no {self._task}; choose sync or async")
        self._pool = self._make([0] * num_envs)
        self.metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}
        with warnings.catch_warnings():  # rounded bounds
            warnings.simplefilter("ignore")
            observation, action = self._pool.observation_space, self._pool.action_space
        image = gym.spaces.Box(0, 255, (SIDE, SIDE), np.uint8)
        self._set_spaces(image if self._atari else observation, action)

    def _make(self, seeds: Sequence[int]) -> Any:
        try:
            return self._envpool.make(
                self._task, env_type="gymnasium", num_envs=self.num_envs, seed=list(seeds), **self._config
            )
        except (TypeError, AssertionError) as error:
            raise UsageError(f"--env_config does not fit {self._task} of EnvPool: {error}") from None

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """As Gymnasium's, with a seed for each env, which makes them anew."""
        if seed is not None:
            self._pool.close()
            self._pool = self._make(seed if isinstance(seed, Sequence) else [seed + i for i in range(self.num_envs)])
        obs, info = self._pool.reset()
        return self._seen(obs), info

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """As Gymnasium's."""
        obs, reward, terminated, truncated, info = self._pool.step(np.asarray(actions, self.single_action_space.dtype))
        return self._seen(obs), reward, terminated, truncated, info

    def close_extras(self, **kwargs: Any) -> None:
        """End its threads."""
        self._pool.close()

    def _seen(self, obs: Any) -> Any:
        return obs[:, 0] if self._atari else obs
