"""The algorithms, one file each, found by name or by import path."""

from __future__ import annotations

import difflib
import importlib
import sys
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from lit_rl.errors import OWN, AlgorithmError, NumericsError, UsageError, in_one_line, own_traceback

if TYPE_CHECKING:
    from lit_rl.algorithms.base import Algorithm, Progress
    from lit_rl.envs.spaces import Spaces

MODULES = {
    "DQN": "dqn",
    "PG": "pg",
    "A2C": "a2c",
    "PPO": "ppo",
    "SAC": "sac",
    "TD3": "td3",
    "DDPG": "ddpg",
    "ES": "es",
    "BC": "bc",
    "MARWIL": "marwil",
    "IQL": "iql",
    "CQL": "cql",
}


def find_algorithm(name: str, shown: str = "--algo") -> type[Algorithm]:
    """The algorithm of this name, or a user's own by import path (``my_pkg.algos:MyDQN``).

    Raises:
        UsageError: there is none; the message calls the setting ``shown`` and lists the nearest names.
    """
    from lit_rl.algorithms.base import Algorithm

    if name.upper() in MODULES:
        module = importlib.import_module(f"lit_rl.algorithms.{MODULES[name.upper()]}")
        found: object = getattr(module, name.upper())
    elif ":" in name:
        found = import_object(name, shown)
    else:
        near = difflib.get_close_matches(name.upper(), MODULES, 1)
        hint = f"did you mean {near[0]}? " if near else ""
        raise UsageError(f"{shown} {name} is unknown; {hint}known: {', '.join(MODULES)}, or your own as module:Class")
    if not (isinstance(found, type) and issubclass(found, Algorithm)):
        raise UsageError(f"{shown} {name} is no lit_rl.Algorithm")
    _check_contract(found)
    return found


def import_object(path: str, shown: str) -> object:
    """What ``module:name`` stands for.

    Raises:
        UsageError: it cannot be imported, whatever the module raises; the message calls the setting ``shown``.
    """
    module, _, name = path.partition(":")
    try:
        return getattr(importlib.import_module(module), name)
    except (Exception, SystemExit) as error:
        raise UsageError(f"{shown} {path} cannot be imported: {in_one_line(error)}") from error


def is_own(algorithm: type[Algorithm]) -> bool:
    """Whether this is a user's own algorithm, none of ours."""
    return ":" in algorithm_name(algorithm)


def _check_contract(algorithm: type[Algorithm]) -> None:
    """Refuse a class that lacks what the interface asks of a subclass."""
    from lit_rl.algorithms.base import AlgorithmConfig

    config: object = algorithm.Config
    if not (isinstance(config, type) and issubclass(config, AlgorithmConfig) and is_dataclass(config)):
        raise UsageError(f"{algorithm_name(algorithm)}: its Config is no dataclass that inherits from AlgorithmConfig")
    if set(vars(config).get("__annotations__", {})) - {field.name for field in fields(config)}:
        raise UsageError(f"{algorithm_name(algorithm)}: its Config has settings but is no dataclass; add @dataclass")


def saved_algorithm(name: object, path: str | Path) -> type[Algorithm]:
    """The algorithm that the checkpoint at ``path`` names. It imports nothing of its own: a file must not say what runs.

    Raises:
        UsageError: there is none, or it is in a module that nobody has imported yet.
    """
    if not isinstance(name, str):
        raise UsageError(f"{path} does not say which algorithm it holds")
    if name.upper() in MODULES or ":" not in name:
        return find_algorithm(name, f"{path}: algo")
    from lit_rl.algorithms.base import Algorithm

    found = _imported(name, f"{path} holds a policy of {name}")
    if not (isinstance(found, type) and issubclass(found, Algorithm)):
        raise UsageError(f"{path} holds a policy of {name}, which is no lit_rl.Algorithm")
    return found


def check_saved_model(config: object, path: str | Path) -> None:
    """Refuse the settings in the checkpoint at ``path`` where they name a custom model that nobody has imported yet.

    Raises:
        UsageError: they do, or it is no torch.nn.Module.
    """
    from torch import nn

    name = config.get("custom_model") if isinstance(config, dict) else None
    if isinstance(name, str):
        found = _imported(name, f"{path} holds a policy with the custom model {name}")
        if not (isinstance(found, type) and issubclass(found, nn.Module)):
            raise UsageError(f"{path} holds a policy with the custom model {name}, which is no torch.nn.Module")
    if isinstance(config, dict):
        check_saved_model(config.get("policy_of"), path)  # settings of another algorithm, whose policy it is


def _imported(name: str, shown: str) -> object:
    """What ``module:name`` stands for in a module that is imported already."""
    module, _, attribute = name.partition(":")
    if sys.modules.get(module) is None:
        raise UsageError(f"{shown}: import {module} first, then load it")
    return vars(sys.modules[module]).get(attribute)  # getattr() might import more


def algorithm_name(algorithm: type[Algorithm]) -> str:
    """The name that :func:`find_algorithm` finds this class by."""
    known = MODULES.get(algorithm.__name__)
    if known and algorithm.__module__ == f"lit_rl.algorithms.{known}":
        return algorithm.__name__
    return f"{algorithm.__module__}:{algorithm.__qualname__}"


def make_algorithm(algorithm: str | type[Algorithm], spaces: Spaces, settings: Mapping[str, Any]) -> Algorithm:
    """The algorithm, by class or by what :func:`find_algorithm` takes, for these spaces; the other settings are defaults.

    Raises:
        UsageError: an unknown algorithm or setting, a value out of range, or spaces that it cannot handle.
    """
    if isinstance(algorithm, str):
        algorithm = find_algorithm(algorithm)
    _check_contract(algorithm)
    known = [field.name for field in fields(algorithm.Config) if field.init]
    for name in settings:
        if name not in known:
            elsewhere = algorithms_with(name)
            hint = f"{elsewhere} have it" if elsewhere else f"nearest: {', '.join(_nearest(name, known))}"
            raise UsageError(f"{algorithm.__name__} has no setting {name}; {hint}")
    make: Callable[..., Algorithm] = algorithm  # the contract of Algorithm, whose own __init__ takes a policy too
    if not is_own(algorithm):
        return make(spaces, algorithm.Config(**settings))
    name = algorithm_name(algorithm)
    try:
        made = make(spaces, algorithm.Config(**settings))
        plan = made.plan
    except OWN:
        raise
    except NotImplementedError as error:
        raise UsageError(f"{name} has no plan: say what experience it learns from ({in_one_line(error)})") from error
    except Exception as error:
        raise UsageError(
            f"{name} cannot be made as {algorithm.__name__}(spaces, config): {in_one_line(error)}"
        ) from error
    if not callable(getattr(plan, "fit", None)):
        raise UsageError(f"{name} has the plan {plan!r}; it must return one of lit_rl.data.plans")
    return made


def raise_from_update(algorithm: Algorithm, progress: Progress, error: Exception) -> NoReturn:
    """Raise what an update has raised, with its place; as AlgorithmError where the algorithm or network is the user's own."""
    where = f"update {progress.updates + 1}, env step {progress.env_steps}"
    if isinstance(error, NumericsError):
        raise NumericsError(f"{error} in {where}") from None
    if isinstance(error, OWN) or not (is_own(type(algorithm)) or algorithm.config.custom_model is not None):
        raise error
    raised = f"{algorithm_name(type(algorithm))} raised {type(error).__name__} in {where}: {error}"
    raise AlgorithmError(f"{raised}\n{own_traceback(error)}") from error


def algorithms_with(setting: str) -> str:
    """The names of the algorithms whose Config has this setting, in one text; empty where none has."""
    configs = {name: find_algorithm(name).Config for name in MODULES}
    return ", ".join(name for name, config in configs.items() if setting in {field.name for field in fields(config)})


def _nearest(name: str, known: list[str]) -> list[str]:
    """The known names that look like this one or abbreviate it; all of them where none does."""
    initials = "".join(word[0] for word in name.split("_") if word)
    near = [initials] if initials in known else []
    return [*near, *difflib.get_close_matches(name, known)] or known
