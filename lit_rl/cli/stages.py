"""What a stage is made of, by flag name, weakest first.

Stage 1: defaults < tuned settings < configs < flags.
Stage 2: defaults of its algorithm < its tuned settings < what was typed for stage 1 < the ``_2`` flags < ``--step2``.
Of the tuned ``_2`` settings those count that nothing typed for stage 1 speaks about.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lit_rl.algorithms import algorithm_name, find_algorithm
from lit_rl.algorithms.base import Algorithm
from lit_rl.cli.arguments import ALIASES
from lit_rl.cli.flags import describe, nearest
from lit_rl.cli.parser import TRAINER, FlagParser, parser_of
from lit_rl.cli.trainer_flags import own_defaults
from lit_rl.errors import UsageError
from lit_rl.functional.schedules import final_value, value_at

Values = dict[str, Any]

STAGE_GROUPS = ("data", "evaluation", "keeping the best", "algorithm", "limits", TRAINER)
# One datamodule and one set of ranks serve both stages, so these cannot differ between them.
OF_THE_RUN = (
    *("episode_per_test", "num_test_envs", "test_episodes", "default_root_dir", "devices", "num_nodes"),
    *("validation_fraction", "skip_bad_episodes", "window_mb", "output"),
)
# What is typed for a stage that learns from data and does not pass to one that acts: other units, other metrics.
OF_DATA = ("input", "input_evaluation", "monitor", "stop_return", "step_per_epoch", "steps_per_iteration")
LIMITS = {"max_steps": -1, "max_time": None, "total_timesteps": None}  # and their values that limit nothing
DEFAULT_MAX_EPOCHS = 100
OFFLINE = {"step_per_epoch": 1_000}  # updates, of a stage that learns from data
OFFLINE_EPOCHS = 20
NEXT_LR = 0.3  # stage 2's learning rate, times the last one of stage 1
AFTER_ZERO_LR = 0.1  # the same, times the first one, where the last one is 0


@dataclass
class StagePlan:
    """A stage by flag name: the values that count, and the names that somebody typed."""

    parser: FlagParser
    values: Values  # every field of the stage, and pl.Trainer's parameters that differ from Lightning's own
    typed: set[str]
    names: dict[str, str] = dataclasses.field(default_factory=dict)  # what messages call a setting, where not --name
    module: str | None = None
    copies: bool = False  # whether objects that belong to one Trainer must be copied
    refine: Values = dataclasses.field(default_factory=dict)  # of stage 2: how it keeps what stage 1 learned
    mixed_in: Any = None  # data that stage 2 draws a share of its minibatches from


def of_stage(parser: FlagParser, values: Values) -> Values:
    """The values that belong to a stage rather than to the run."""
    return {name: value for name, value in values.items() if parser.group_of(name) in STAGE_GROUPS}


def first_stage(parser: FlagParser, tuned_1: Values, typed: Values) -> StagePlan:
    """The first stage: see the module's docstring for what counts."""
    given = of_stage(parser, tuned_1) | of_stage(parser, typed)
    values = _defaults(parser) | (OFFLINE if typed.get("input") is not None else {}) | given
    values |= own_defaults(values)
    usual = OFFLINE_EPOCHS if values["input"] is not None else None
    values["max_epochs"] = _max_epochs([typed.get("max_epochs")], [tuned_1.get("max_epochs"), usual], typed)
    return StagePlan(parser, values, set(of_stage(parser, typed)))


def _defaults(parser: FlagParser) -> Values:
    return {name: copy.copy(parser.defaults[name]) for group in STAGE_GROUPS[:-1] for name in parser.groups[group]}


def _max_epochs(typed: list[Any], tuned_: list[Any], limits: Values) -> int:
    """Epochs of a stage: the first typed number; else none beside another limit; else the first tuned one, or 100."""
    limited = any(limits.get(name, nothing) != nothing for name, nothing in LIMITS.items())
    candidates = [*typed, *([-1] if limited else tuned_), DEFAULT_MAX_EPOCHS]
    return int(next(epochs for epochs in candidates if epochs is not None))


@dataclass
class Step2:
    """What ``--step2`` says: stage 2's algorithm (by its flags), a user's own LitPolicy, and checked settings."""

    parser: FlagParser
    module: str | None
    settings: Values


def second_stage(first: StagePlan, step2: Step2, tuned_2: Values, typed: Values, notes: list[str]) -> StagePlan:
    """The second stage: see the module's docstring for what counts."""
    parser, second = first.parser, step2.parser
    own = {name: value for name, value in step2.settings.items() if name not in second.groups["refining"]}
    inherited = _inherited(second, parser, typed, notes)
    if inherited.get("input") is not None and "input" not in own and goes_online(second, typed):
        inherited = {name: value for name, value in inherited.items() if name not in OF_DATA}
    given_2 = _second_flags(parser, tuned_2, typed, second is not parser)
    lr_2 = typed.get("lr_2")
    if lr_2 is not None and own.get("lr", lr_2) != lr_2:
        raise UsageError(f"--lr_2 {lr_2} and --step2 with lr {own['lr']} contradict each other: give one of them")
    offline = OFFLINE if (inherited | own).get("input") is not None else {}
    values = _defaults(second) | offline | of_stage(second, tuned_2) | inherited
    scratch = values.get("lr")
    values |= own
    values |= {name: first.values[name] for name in OF_THE_RUN if name in first.values}
    values |= own_defaults(values)
    names = {name: f"--step2: {name}" for name in own}
    for name in ("patience", "average_weights"):
        if name not in own:
            values[name], names[name] = given_2.get(f"{name}_2", parser.defaults[f"{name}_2"]), f"--{name}_2"
    if second is not parser:
        values |= {name: value for name, value in second.anew.items() if name not in tuned_2 | inherited | own}
    for name in second.groups["algorithm"]:
        if name in own or values[name] is None:
            continue
        if name in second.in_stage_2:
            values[name] = second.in_stage_2[name]
        elif is_lr(name) and given_2.get("lr_2") is not None:
            values[name], names[name] = given_2["lr_2"], "--lr_2"
        elif is_lr(name):
            values[name] = (
                _next_lr(name, first.values[name]) if second is parser else NEXT_LR * _first(name, values[name])
            )
        elif is_schedule(second.hints[name]):
            values[name] = _final(name, values[name])
    typed_epochs = [own.get("max_epochs"), typed.get("max_epochs_2"), typed.get("max_epochs")]
    usual = OFFLINE_EPOCHS if values["input"] is not None else None
    tuned_epochs = [tuned_2.get("max_epochs_2"), tuned_2.get("max_epochs"), usual]
    values["max_epochs"] = _max_epochs(typed_epochs, tuned_epochs, inherited | own)
    if "max_epochs" not in own and typed.get("max_epochs_2") is not None:
        names["max_epochs"] = "--max_epochs_2"
    refine = {"critic_warmup_lr": None if scratch is None else _first("lr", scratch)}
    return StagePlan(second, values, set(inherited) | set(own), names, step2.module, copies=True, refine=refine)


def goes_online(second: FlagParser, typed: Values) -> bool:
    """Whether a stage 2 of this algorithm acts, after a stage 1 that learned from data."""
    return typed.get("env") is not None and not second.algorithm.data_only


def _inherited(second: FlagParser, parser: FlagParser, typed: Values, notes: list[str]) -> Values:
    """What was typed for stage 1 and exists in stage 2; what does not is said."""
    found = of_stage(parser, typed)
    if second is parser:
        return found
    lost = [name for name in found if name not in second.hints]
    if lost:
        notes.append(f"stage 2: {second.algo} has no {', '.join(lost)}: what was given holds in stage 1 only")
    return second.check({n: v for n, v in found.items() if n in second.hints}, " (given for stage 1, in stage 2)")


def _second_flags(parser: FlagParser, tuned_2: Values, typed: Values, another: bool) -> Values:
    """The ``_2`` settings that were given.

    A tuned learning rate does not count where one was typed for stage 1, or where that is ``another`` algorithm: it was
    tuned to go on with what its own had learned.
    """
    names = [name for name in parser.groups["stage 2"] if name.endswith("_2")]
    no_lr = another or any(map(is_lr, typed))
    found = {n: tuned_2[n] for n in names if n in tuned_2 and not (n == "lr_2" and no_lr)}
    return found | {n: typed[n] for n in names if n in typed}


def read_step2(parser: FlagParser, step2: Mapping[str, Any]) -> Step2:
    """Check ``--step2`` against the flags of its algorithm (stage 1's, ``parser``, if it names none).

    Raises:
        UsageError: an unknown setting, one that holds for the whole run, or a value of the wrong type.
    """
    for name in step2:
        if not isinstance(name, str):
            raise UsageError(f"--step2: {name!r} is no setting: its keys are flag names")
        if ALIASES.get(name, name) != name and ALIASES[name] in step2:
            raise UsageError(f"--step2: {name} and {ALIASES[name]} say the same: give one of them")
    step2 = {ALIASES.get(name, name): value for name, value in step2.items()}
    module, algo = step2.pop("module", None), step2.pop("algo", None)
    if isinstance(module, type):
        module = f"{module.__module__}:{module.__qualname__}"
    if module is not None:
        from lit_rl.pipeline.stage import find_module

        find_module(str(module))  # raises before anything is created
    second = parser if algo is None else parser_of(given_algorithm(algo, "--step2: algo"))
    allowed = [n for group in (*STAGE_GROUPS, "refining") for n in second.groups[group] if n not in OF_THE_RUN]
    for name in step2:
        if name not in second.hints:
            raise UsageError(f"--step2: unknown setting {name}; {nearest(name, [*allowed, 'algo', 'module'])}")
        if name in second.groups["stage 2"]:
            plain = name.removesuffix("_2")
            raise UsageError(f"--step2: {name} does not belong here; use {plain if plain in allowed else 'the flag'}")
        if name not in allowed:
            raise UsageError(f"--step2: {name} holds for the whole run; give it as --{name}")
    return Step2(second, module, second.check(step2, prefix="--step2: "))


def is_lr(name: str) -> bool:
    """Whether a setting is a learning rate, which stage 2 lowers."""
    return name == "lr" or name.endswith("_lr")


def _next_lr(name: str, schedule: Any) -> float:
    """The learning rate to refine with, after one that followed ``schedule``."""
    last = _final(name, schedule)
    return NEXT_LR * last if last else AFTER_ZERO_LR * _first(name, schedule)


def _first(name: str, schedule: Any) -> float:
    _final(name, schedule)
    return value_at(schedule, 0)


def _final(name: str, schedule: Any) -> float:
    """The last value of what must be a schedule."""
    try:
        return final_value(schedule)
    except (IndexError, TypeError):
        raise UsageError(f"--{name} {schedule} is no schedule: give a number or [[env_step, value], ...]") from None


def is_schedule(hint: Any) -> bool:
    """Whether a setting may be given as [[env_step, value], ...]."""
    return describe(list[list[float]]) in describe(hint)


def given_algorithm(algo: Any, shown: str) -> type[Algorithm]:
    """The algorithm that was given by name, by import path or, from Python, as a class.

    Raises:
        UsageError: there is none; ``shown`` is what the message calls the setting.
    """
    if isinstance(algo, type):
        algo = algorithm_name(algo)
    if not isinstance(algo, str):
        raise UsageError(f"{shown} needs the name of an algorithm, or your own as module:Class")
    return find_algorithm(algo, shown)
