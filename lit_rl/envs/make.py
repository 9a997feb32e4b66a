"""Making one environment from an id, an import path or a factory."""

from __future__ import annotations

import difflib
import importlib
import re
import traceback
from collections.abc import Callable
from typing import Any, cast

import gymnasium as gym
from gymnasium.wrappers import FilterObservation

from lit_rl.envs.atari import is_ale
from lit_rl.envs.guard import Guard
from lit_rl.envs.masks import ActionMask, tells_mask
from lit_rl.envs.wrappers import PLAIN, Wrappers
from lit_rl.errors import EnvError, UsageError

EnvName = str | Callable[..., gym.Env[Any, Any]]

# ids that exist once a package has been imported, the package, and the extra that installs it
PACKAGES = (
    (re.compile(r"ALE/|\w+(NoFrameskip|Deterministic)-v[04]$"), "ale_py", "atari"),
    (re.compile(r"(MiniGrid|BabyAI)-"), "minigrid", "minigrid"),
)


def make_env(env: EnvName, env_config: dict[str, Any], wrappers: Wrappers = PLAIN, index: int = 0) -> gym.Env[Any, Any]:
    """One environment, guarded (see Guard), its action mask, if it has one, in the observation (see ActionMask).

    Args:
        env: what gymnasium.make takes, "pkg.mod.Name" or "pkg.mod:Name" of an env class or factory, or that itself.
        env_config: its keyword arguments.
        wrappers: what else is put around it.
        index: its number among the vectorised ones, for messages.

    Raises:
        UsageError: no such env, a missing package, or keyword arguments that it does not take.
        EnvError: the env itself raised.
    """
    register_package(env)
    made = _make(env, {"frameskip": 1, **env_config} if wrappers.atari is not None and is_ale(env) else env_config)
    if wrappers.atari is not None:
        try:
            made = wrappers.atari.wrap(made, name_of(env))
        except gym.error.DependencyNotInstalled as error:
            raise missing(name_of(env), error, "atari") from None
    for kind in ("observation_space", "action_space"):
        if not isinstance(getattr(made, kind, None), gym.Space):
            raise UsageError(f"{name_of(env)} has no {kind}; set self.{kind} to a gymnasium.Space")
    if not isinstance(made.metadata, dict):
        raise UsageError(f"{name_of(env)}: its metadata is {made.metadata!r}; give a dict, {{}} for nothing")
    made = wrappers.rules.wrap(_without_missions(made))
    guarded = Guard(made, index)
    # Only a reset shows whether the info holds a mask; seeded, so that making an env draws no entropy.
    _, info = guarded.reset(seed=0)
    return Guard(ActionMask(made), index) if tells_mask(made, info) else guarded


def name_of(env: EnvName) -> str:
    """How messages and file names call ``env``."""
    return env if isinstance(env, str) else getattr(env, "__name__", type(env).__name__)


def known_ids() -> list[str]:
    """The ids that gymnasium.make takes now."""
    return list(gym.registry)


def register_package(env: EnvName) -> None:
    """Make the ids of other packages known where ``env`` is one; raises UsageError without the package that has it."""
    if not isinstance(env, str) or env in gym.registry:
        return
    for ids, package, extra in PACKAGES:
        if ids.match(env):
            try:
                module: Any = importlib.import_module(package)
            except ModuleNotFoundError as error:
                raise missing(env, error, extra) from None
            gym.register_envs(module)
            if package == "ale_py":  # which otherwise greets at every game
                module.ALEInterface.setLoggerMode(module.LoggerMode.Error)


def register_env(name: str, make: Callable[[dict[str, Any]], gym.Env[Any, Any]]) -> None:
    """Make ``--env NAME`` mean what ``make`` returns, which is given the dict of ``--env_config``; the last one counts.

    Raises:
        UsageError: the name cannot be an environment's, or belongs to another package's.
    """
    if not isinstance(name, str):
        raise UsageError(f"register_env: {name!r} is no name")
    known = gym.registry.get(name)
    if not callable(make):
        raise UsageError(f"register_env: {make!r} is no function that makes an environment")
    if known is not None and not getattr(known.entry_point, "registered_here", False):
        raise UsageError(f"register_env: {name} is an environment of another package: choose another name")

    def entry_point(**env_config: Any) -> gym.Env[Any, Any]:
        return make(env_config)

    entry_point.registered_here = True  # type: ignore[attr-defined]
    gym.registry.pop(name, None)
    try:
        gym.register(name, entry_point, order_enforce=False)
    except gym.error.Error as error:
        raise UsageError(f"register_env: {_sentence(error)}") from None


def _without_missions(env: gym.Env[Any, Any]) -> gym.Env[Any, Any]:
    """MiniGrid's observations without the text of the mission, which no network here reads."""
    space = env.observation_space
    if not isinstance(space, gym.spaces.Dict):
        return env
    kept = [key for key, part in space.spaces.items() if type(part).__name__ != "MissionSpace"]
    return env if len(kept) == len(space.spaces) else FilterObservation(env, kept)


def _make(env: EnvName, env_config: dict[str, Any]) -> gym.Env[Any, Any]:
    factory = env if callable(env) else _imported(env)
    name = name_of(env)
    try:
        # The checker costs time on each step, and what it checks is done by Guard and by probe.
        made: Any = (
            factory(**env_config) if factory else gym.make(str(env), **{"disable_env_checker": True, **env_config})
        )
    except (gym.error.DependencyNotInstalled, ModuleNotFoundError) as error:
        raise missing(name, error, _extra_of(name)) from None
    except ImportError as error:
        raise UsageError(f"{name} cannot be made: {error}") from None
    except AssertionError as error:
        limit = env_config.get("max_episode_steps")
        if factory or limit is None or (isinstance(limit, int) and limit > 0):
            raise _broken(name, error) from None
        raise UsageError(f"--env_config does not fit {name}: max_episode_steps {limit!r}: give at least 1") from None
    except gym.error.Error as error:
        raise UsageError(f"--env {name}: {_sentence(error)}. {nearest(name)}") from None
    except TypeError as error:
        limit = env_config.get("max_episode_steps")
        if not factory and not (limit is None or isinstance(limit, int)):
            raise UsageError(
                f"--env_config does not fit {name}: max_episode_steps is {limit!r}; give a number"
            ) from None
        if "argument" not in str(error):
            raise _broken(name, error) from None
        reason = str(error).split(" was raised from the environment creator")[0]
        raise UsageError(f"--env_config does not fit {name}: {reason}") from None
    except (Exception, SystemExit) as error:
        raise _broken(name, error) from None
    if not isinstance(made, gym.Env):
        raise UsageError(f"{name} makes a {type(made).__name__}, which is no gymnasium.Env")
    return made


def _imported(path: str) -> Callable[..., Any] | None:
    """The class or factory that ``path`` is the import path of; None where it is an id (or nothing that is known)."""
    if path.startswith(":"):
        raise UsageError(f"--env {path} names no module before the colon; give an id, or module:Class")
    module, colon, name = path.partition(":") if ":" in path else path.rpartition(".")
    if not module or not name or path in gym.registry or (not colon and "/" in path) or module[0] == ".":
        return None
    try:
        found = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is not None and (module == error.name or module.startswith(f"{error.name}.")):
            if ":" not in path:
                return None
            raise UsageError(f"--env {path}: there is no module {module} on Python's path") from None
        raise UsageError(f"--env {path}: importing {module} needs the package {error.name}") from None
    except (Exception, SystemExit) as error:
        raise _broken(path, error) from None
    if ":" in path and name in gym.registry:
        return None  # module:Env-v0, registered by the import
    factory = getattr(found, name, None)
    if not callable(factory):
        raise UsageError(f"--env {path}: the module {module} has no env id, class or factory {name}. {nearest(name)}")
    return cast(Callable[..., Any], factory)


def nearest(name: str) -> str:
    """A sentence with the known ids that look most like ``name``."""
    by_lower = {known.lower(): known for known in known_ids()}
    close = difflib.get_close_matches(name.lower(), by_lower, n=3, cutoff=0.5)
    if close:
        return f"Nearest known ids: {', '.join(by_lower[known] for known in close)}"
    return "python -c 'import gymnasium; gymnasium.pprint_registry()' lists the known ids"


def _sentence(error: Exception) -> str:
    return str(error).splitlines()[0].rstrip(".")


def _extra_of(name: str) -> str | None:
    spec = gym.registry.get(name)
    entry = str(spec.entry_point) if spec else ""
    return next((extra for extra in ("box2d", "mujoco") if f".{extra}." in entry), None)


def missing(name: str, error: Exception, extra: str | None) -> UsageError:
    """The error for an env whose package is not there, with the extra that installs it."""
    hint = f"; install it with: pip install -e '.[{extra}]'" if extra else ""
    return UsageError(f"{name} needs a package that is not installed ({_sentence(error)}){hint}")


def _broken(name: str, error: BaseException) -> EnvError:
    text = "".join(traceback.format_exception(error)).rstrip()
    return EnvError(f"{name} could not be made: {type(error).__name__}: {error}\n{text}")
