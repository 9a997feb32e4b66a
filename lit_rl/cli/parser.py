"""Every flag of ``lit-rl train``: from the config dataclasses, the algorithm's own Config and pl.Trainer's signature."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import re
import typing
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytorch_lightning as pl

from lit_rl.algorithms import MODULES, algorithm_name, algorithms_with
from lit_rl.algorithms.base import ANEW, IN_STAGE_2, Algorithm
from lit_rl.cli.experiments import ExperimentFlags
from lit_rl.cli.flags import Flags, as_plain, is_plain, members
from lit_rl.cli.trainer_flags import NOT_SET, PASSED, TRAINER_FLAGS
from lit_rl.compat.rllib import NAMES
from lit_rl.compat.rllib_run import RUN_FLAGS, RunFlags
from lit_rl.data.config import DataConfig, EvalConfig
from lit_rl.envs.config import EnvConfig
from lit_rl.errors import UsageError, in_one_line
from lit_rl.pipeline.settings import KeepConfig, LimitConfig, RefineConfig, RunConfig, Stage2Config

TRAINER = "Trainer"


class FlagParser(Flags):
    """The flags that belong to an algorithm; the defaults of pl.Trainer's are Lightning's own.

    Attributes:
        in_stage_2: the values of those that have another one in stage 2, where --step2 says nothing.
        anew: the defaults of those that have another one in a stage 2 that goes on with another algorithm's policy.
    """

    also = ("help", "version", "config", "print_config", "run", "resume", "file", "num_samples", *RUN_FLAGS, *NAMES)

    def __init__(self, algorithm: type[Algorithm]) -> None:
        super().__init__(
            "train", "lit-rl train [--two_steps] [--env ID] [--algo NAME] [--config FILE] [--<flag> VALUE ...]"
        )
        self.algorithm = algorithm
        self.algo = algorithm_name(algorithm)
        self.configs: dict[str, type[Any]] = {
            "run": RunConfig,
            "stage 2": Stage2Config,
            "refining": RefineConfig,
            "environment": EnvConfig,
            "data": DataConfig,
            "evaluation": EvalConfig,
            "keeping the best": KeepConfig,
            "algorithm": algorithm.Config,
            "limits": LimitConfig,
        }
        self._add_other_flags()
        for group, config in self.configs.items():
            try:
                self._check_fields(config)
                self.add(group, config, f"{group} {self.algo}" if group == "algorithm" else group)
            except Exception as error:
                if group != "algorithm" or isinstance(error, UsageError):
                    raise
                raise UsageError(f"--algo {self.algo}: its Config cannot be read: {in_one_line(error)}") from error
        self._add_trainer()
        told = {field.name: field.metadata for field in dataclasses.fields(algorithm.Config)}
        self.in_stage_2 = {name: about[IN_STAGE_2] for name, about in told.items() if IN_STAGE_2 in about}
        self.anew = {name: about[ANEW] for name, about in told.items() if ANEW in about}
        self.write_help()
        self._add_experiments()

    def _add_other_flags(self) -> None:
        add = self._parser.add_argument
        config = "Settings from a YAML or JSON file, or inline: '{\"gamma\": 0.98}'. A later one wins, a flag over all."
        add("--config", metavar="FILE", help=config)
        add(
            "--print_config", action="store_true", help="Print all settings as YAML that --config reads back, and exit."
        )
        add("--resume", action="store_true", help="Go on with the run named by --experiment_name: --ckpt_path last.")
        add("--version", action="store_true", help="Print the version and exit.")

    def _add_experiments(self) -> None:
        """Help on the flags that are read before all others are; see cli/experiments.py."""
        group = self._parser.add_argument_group(
            "experiments, and the names that RLlib's users know (docs/from_rllib.md)"
        )
        shown = Flags("train", "")
        for config in (ExperimentFlags, RunFlags):
            shown.add(config.__name__, config)
        shown.write_help()
        for action in shown._parser._actions:
            if action.dest in shown.hints:
                names = ["-f", *action.option_strings] if action.dest == "file" else action.option_strings
                group.add_argument(*names, metavar=action.metavar, nargs=action.nargs, help=action.help)

    def _check_fields(self, config: type[Any]) -> None:
        """Refuse an algorithm's setting that is a flag of every run, or has no default."""
        fields = [field for field in dataclasses.fields(config) if field.init]
        taken = [field.name for field in fields if field.name in self.hints]
        if taken:
            raise UsageError(
                f"--algo {self.algo} has a setting named {taken[0]}, which is a flag of every run: rename it"
            )
        typing.get_type_hints(config)
        for field in fields:
            if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
                raise UsageError(f"--algo {self.algo} has a setting without a default: {field.name}")

    def _add_trainer(self) -> None:
        """The parameters of pl.Trainer that are no fields of ours already."""
        parameters = list(inspect.signature(pl.Trainer.__init__).parameters.values())[1:]
        taken = {p.name for p in parameters if p.name in self.hints}
        parameters = [p for p in parameters if p.name not in taken]
        for parameter in parameters:
            self.hints[parameter.name] = parameter.annotation
            self.defaults[parameter.name] = parameter.default
        self.groups[TRAINER] = [p.name for p in parameters]
        group = self._parser.add_argument_group(f"Lightning's {TRAINER}, in each stage")
        group.add_class_arguments(pl.Trainer, None, as_group=False, skip=set(taken))

    def write_help(self) -> None:
        super().write_help()
        for action in self._parser._actions:
            if action.dest == "algo":
                action.option_strings = [*action.option_strings, "--run"]

    def help_of(self, name: str, text: str) -> tuple[Any, str]:
        default = self.defaults[name]
        if name in self.groups[TRAINER]:
            flag = TRAINER_FLAGS.get(name, PASSED)
            default = default if flag.default is NOT_SET else flag.default
            text = {"ours": flag.note, "refused": f"Not supported: {flag.note}."}.get(flag.how, _plain_text(text))
        if name == "algo":
            text = text.replace("a name,", f"{', '.join(MODULES)},")
        return default, text

    def unknown(self, name: str, shown: str) -> str:
        elsewhere = algorithms_with(name)
        return f"{self.algo} has no setting {shown}; {elsewhere} have it" if elsewhere else super().unknown(name, shown)

    def checked(self, name: str, value: Any, shown: str, where: str) -> Any:
        """As in every command; classes stay class paths (see :meth:`instantiate`), and objects from Python what they are."""
        if name == "env" and callable(value):
            return value
        if name == "hooks" and not isinstance(value, str | bool):  # classes, objects and functions from Python
            return value
        if name == "algo" and isinstance(value, type) and issubclass(value, Algorithm):
            return algorithm_name(value)
        if name == "logger" and value is False:
            return "false"
        kinds, value = members(self.hints[name]), as_plain(value)
        if not is_plain(value):
            if timedelta in kinds and isinstance(value, timedelta):
                return value
            if _is_lightnings(value, kinds):
                return value
        return super().checked(name, value, shown, where)

    def instantiate(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """The values with new objects in place of class paths.

        Raises:
            UsageError: a class that refuses its arguments.
        """
        made = {}
        for name, value in values.items():
            if _holds_class_path(value):
                try:
                    namespace = self._parser.parse_object({name: copy.deepcopy(value)}, defaults=False)
                    value = self._parser.instantiate(namespace)[name]
                except Exception as error:  # whatever the user's class raises
                    raise UsageError(f"--{name} cannot be made: {type(error).__name__}: {error}") from None
            made[name] = value
        return made


_PARSERS: dict[type[Algorithm], FlagParser] = {}


def parser_of(algorithm: type[Algorithm]) -> FlagParser:
    """The flags that belong to an algorithm; kept, as building them takes a tenth of a second and they never change."""
    if algorithm not in _PARSERS:
        _PARSERS[algorithm] = FlagParser(algorithm)
    return _PARSERS[algorithm]


def _plain_text(text: str) -> str:
    """The beginning of one of Lightning's docstrings, without its markup and its defaults."""
    text = re.sub(r":\w+:`~?([^`]*)`", lambda m: m[1].rpartition(".")[2], " ".join(text.split()))
    text = re.sub(r"\s*(Default: \S+?\.?|Disabled by default \(\S+\)\.)(?= |$)", "", text).replace("`", "").strip()
    sentences = re.split(r"(?<=[.)]) (?=[A-Z])", text)
    return " ".join(s for i, s in enumerate(sentences) if i == 0 or len(" ".join(sentences[: i + 1])) < 200)


def _is_lightnings(value: Any, kinds: list[Any]) -> bool:
    """Whether ``value`` is an object of Lightning's that these types allow, or a list of such; class paths may be among them."""
    types = [m for kind in kinds for part in (kind, *typing.get_args(kind)) for m in members(part)]
    allowed = tuple(
        m for m in types if inspect.isclass(m) and m.__module__.startswith(("pytorch_lightning", "lightning"))
    )
    items = value if isinstance(value, list | tuple) else [value]
    return all(isinstance(item, (*allowed, str, dict)) for item in items) and bool(allowed)


def _holds_class_path(value: Any) -> bool:
    return (
        any(map(_holds_class_path, value))
        if isinstance(value, list)
        else isinstance(value, dict) and "class_path" in value
    )
