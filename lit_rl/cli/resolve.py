"""From what was typed to the pipeline's Settings."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from lit_rl.cli.arguments import Request
from lit_rl.cli.iterations import fit_iterations
from lit_rl.cli.parser import TRAINER, FlagParser, parser_of
from lit_rl.cli.print_config import printed_second_stage, printed_stage
from lit_rl.cli.refining import borrow_policy, set_refining
from lit_rl.cli.stages import StagePlan, Values, first_stage, given_algorithm, read_step2, second_stage
from lit_rl.cli.trainer_flags import StageLength, check_lengths, refuse, refuse_without_evaluation, world_size
from lit_rl.envs.config import EnvConfig
from lit_rl.errors import UsageError, in_one_line
from lit_rl.pipeline.settings import RunConfig, Settings, Stage2Config, StageSettings
from lit_rl.zoo import tuned


@dataclass
class Resolved:
    """A run that can start, what to tell its user, and every setting by flag name (what ``--print_config`` prints)."""

    settings: Settings
    notes: list[str]
    flat: Values


def resolve(request: Request) -> Resolved:
    """Put a run together.

    Raises:
        UsageError: an unknown setting, a wrong type or range, or settings that contradict each other.
    """
    parser = parser_of(given_algorithm(request.values.get("algo", RunConfig.algo), "--algo"))
    typed = parser.check(request.values, request.origin)
    typed = _one_output_dir(typed) | {"algo": parser.algo}
    if typed.get("input") is not None:  # to learn from data needs no environment
        typed = {"env": None} | typed
    env = typed.get("env", EnvConfig.env)
    tuned_1 = _tuned(parser, env) if typed.get("tuned", RunConfig.tuned) else {}
    notes = [_using(parser, env, "")] if tuned_1 else []
    values = parser.defaults | tuned_1 | typed
    run: RunConfig = _make(parser, "run", values)
    environment: EnvConfig = _make(parser, "environment", values)
    stages: Stage2Config = _make(parser, "stage 2", values)
    _refuse_inexact(run, values)
    first = first_stage(parser, tuned_1, typed)
    fit_iterations(first, environment.num_envs, notes)
    settings = Settings(run, environment, _build(first, stages.two_steps))
    of_the_run = [name for group in ("run", "environment") for name in parser.groups[group]]
    flat = {name: values[name] for name in of_the_run} | printed_stage(first)
    if run.restore is not None:
        flat["restore"] = os.path.abspath(run.restore)  # the run may go on from another working directory
    if not stages.two_steps:
        _refuse_stage_2_settings(parser, typed)
        settings.flat = flat
        return Resolved(settings, notes, flat)
    refined = read_step2(parser, stages.step2)
    tuned_2 = tuned_1
    if refined.parser is not parser:
        tuned_2 = _tuned(refined.parser, env) if run.tuned else {}
        notes += [_using(refined.parser, env, " in stage 2")] if tuned_2 else []
    second = second_stage(first, refined, tuned_2, typed, notes)
    set_refining(first, second, tuned_2, typed, refined.settings)
    fit_iterations(second, environment.num_envs, notes)
    settings.stage2 = _build(second, True)
    settings.stage2.refine = _make(parser, "refining", second.refine)
    settings.stage2.mixed_in = second.mixed_in
    if borrow_policy(first, second):
        settings.stage1 = _build(first, True)
        flat |= printed_stage(first)
    settings.flat = flat = flat | printed_second_stage(first, second, stages.step2)
    return Resolved(settings, list(dict.fromkeys(notes)), flat)


def _one_output_dir(typed: Values) -> Values:
    """--default_root_dir is another name of --output_dir."""
    root = typed.get("default_root_dir")
    rest = {name: value for name, value in typed.items() if name != "default_root_dir"}
    if root is None:
        return rest
    if typed.get("output_dir", root) != root:
        given = f"--default_root_dir {root} and --output_dir {typed['output_dir']}"
        raise UsageError(f"{given} contradict each other: give one of them")
    return rest | {"output_dir": root}


def _tuned(parser: FlagParser, env: Any) -> Values:
    """The tuned settings of this algorithm and environment, checked."""
    if not isinstance(env, str):
        return {}
    found = tuned(parser.algo, env)
    where = f" in the entry {env} of lit_rl/zoo/{parser.algo.lower()}.yaml"
    return parser.check(found, where, prefix="")


def _using(parser: FlagParser, env: Any, stage: str) -> str:
    return f"using the tuned settings of {parser.algo} on {env}{stage} (--tuned false turns them off)"


def _make(parser: FlagParser, group: str, values: Values) -> Any:
    """The config dataclass of a group, which checks its ranges; containers are its own."""
    config: Callable[..., Any] = parser.configs[group]
    try:
        return config(**{name: copy.copy(values[name]) for name in parser.groups[group]})
    except Exception as error:
        if group != "algorithm" or isinstance(error, UsageError):
            raise
        raise UsageError(f"--algo {parser.algo}: its Config refuses its settings: {in_one_line(error)}") from error


def _refuse_inexact(run: RunConfig, values: Values) -> None:
    if run.exact_resume and (world := world_size(values)) > 1:
        raise UsageError(f"--exact_resume works on one device, not on {world}: leave it out, or give --devices 1")


def _refuse_stage_2_settings(parser: FlagParser, typed: Values) -> None:
    of_stage_2 = [*parser.groups["stage 2"], *parser.groups["refining"]]
    names = [name for name in of_stage_2 if name in typed and name != "two_steps"]
    if names:
        raise UsageError(f"--{names[0]} is a setting of the second stage: add --two_steps")


def _build(plan: StagePlan, two_steps: bool) -> StageSettings:
    try:
        return _checked(plan, two_steps)
    except UsageError as error:
        raise UsageError(_renamed(str(error), plan.names)) from None


def _checked(plan: StagePlan, two_steps: bool) -> StageSettings:
    parser, values = plan.parser, plan.values
    algorithm, data, evaluation, keep, limits = (
        _make(parser, group, values) for group in ("algorithm", "data", "evaluation", "keeping the best", "limits")
    )
    trainer = _trainer(plan)
    if trainer["max_epochs"] < -1:
        raise UsageError(f"--max_epochs {trainer['max_epochs']} is out of range: give at least 1, or -1 for no limit")
    refuse(trainer, parser.defaults)
    if trainer.get("max_steps", -1) < 1 and trainer.get("max_steps", -1) != -1:
        raise UsageError(f"--max_steps {trainer['max_steps']} is out of range: give at least 1, or -1 for no limit")
    if data.input is not None and limits.total_timesteps is not None:
        raise UsageError(
            f"--total_timesteps {limits.total_timesteps} counts env steps, and a stage that learns from data makes none: "
            "give --max_steps (updates); for a second stage that acts, total_timesteps in --step2"
        )
    iteration = values.get("steps_per_iteration", data.step_per_epoch)
    iterations = data.step_per_epoch // iteration
    length = StageLength(iterations, iteration, limits.total_timesteps, evaluation.episode_per_test)
    if two_steps:
        refuse_without_evaluation(trainer, length)
    check_lengths(trainer, length, evaluation.test_episodes)
    return StageSettings(parser.algo, algorithm, data, evaluation, keep, limits, _objects(plan, trainer), plan.module)


def _objects(plan: StagePlan, trainer: Values) -> Values:
    """The arguments of pl.Trainer with objects for class paths, and lists where the pipeline adds its own."""
    made = plan.parser.instantiate(trainer)
    for name in ("callbacks", "plugins"):
        if name in made and not isinstance(made[name], list):
            made[name] = [made[name]]
    if plan.copies:
        of_one_trainer = [n for n in ("strategy", "accelerator", "plugins") if n in made]
        made |= {name: copy.deepcopy(made[name]) for name in of_one_trainer}
    return made


def _trainer(plan: StagePlan) -> Values:
    """The arguments of pl.Trainer that differ from its own defaults."""
    parser = plan.parser
    kept = {n: v for n, v in plan.values.items() if n in parser.groups[TRAINER] and v != parser.defaults[n]}
    return kept | {"max_epochs": plan.values["max_epochs"]}


def _renamed(message: str, names: dict[str, str]) -> str:
    """The message with the name that was typed: the dataclasses know no ``_2`` flags."""
    for name, shown in names.items():
        for spelled in (f"--{name} ", f"{name} "):
            if message.startswith(spelled):
                return f"{shown} {message.removeprefix(spelled)}"
    return message
