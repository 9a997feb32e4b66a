"""The two stages, top to bottom: learn, refine, test, keep the best."""

from __future__ import annotations

import json
import logging
import time
import warnings
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.utilities import rank_zero_only, rank_zero_warn
from pytorch_lightning.utilities.exceptions import SIGTERMException

from lit_rl.algorithms import import_object
from lit_rl.callbacks.interrupt import CTRL_C, TERMINATED, Interrupts, Quit
from lit_rl.checkpoint import copy_atomic, load, write_atomic
from lit_rl.data.hooks import Hooks
from lit_rl.data.offline.writers import check_target
from lit_rl.datamodule import ExperienceDataModule
from lit_rl.errors import UsageError, in_one_line
from lit_rl.lit_policy import LitPolicy
from lit_rl.loggers.curve import draw_curve
from lit_rl.loggers.make import check_logger
from lit_rl.loggers.params import write_params
from lit_rl.loggers.records import truncate_to
from lit_rl.loggers.summary import summary_json, summary_table
from lit_rl.optimize import threads_for
from lit_rl.pipeline.folder import make_folder
from lit_rl.pipeline.ranks import Ranks
from lit_rl.pipeline.resume import SUMMARY, Resume, find_restored, find_resume, write_config
from lit_rl.pipeline.settings import RunConfig, Settings
from lit_rl.pipeline.stage import Stage, check_resume, prepare, run_stage


def run(settings: Settings, ranks: Ranks) -> dict[str, Any]:
    """Learn (stage 1), refine (stage 2), test the best policy, and leave everything in the run's folder.

    On every rank of ``ranks``, the first of which makes the folder.

    Returns:
        What summary.json holds.

    Raises:
        UsageError: the settings cannot be used; nothing has been created.
        KeyboardInterrupt: Ctrl-C was pressed twice.
        SystemExit: SIGTERM, with 143.
    """
    with Interrupts(1 if settings.stage2 is None else 2) as interrupts:
        try:
            return _run(settings, ranks, interrupts)
        except (Quit, SIGTERMException):
            code = TERMINATED if interrupts.code is None else interrupts.code
        except Exception:
            if interrupts.code is None:
                raise
            code = interrupts.code  # what was interrupted made an error of its own of it
    if code == CTRL_C:
        raise KeyboardInterrupt
    raise SystemExit(code)


def _run(settings: Settings, ranks: Ranks, interrupts: Interrupts) -> dict[str, Any]:
    started = time.perf_counter()
    prepare_process(settings.run)
    data = make_data(settings)
    try:
        compile = settings.run.compile
        first = prepare(settings.stage1, data, 1, compile, ranks.world)
        policy = first.policy
        if settings.run.ckpt_path is not None:
            policy.load_weights(load(settings.run.ckpt_path)["state_dict"])
            policy.algorithm.start_from_policy()
        then = None if settings.stage2 is None else prepare(settings.stage2, data, 2, compile, ranks.world)
        second = None if then is None else then.policy
        if second is not None:
            second.check_start(policy)
            say_what_starts_anew(policy, second)
        restored = None if settings.resume else _restored(settings, policy, data, ranks.world)
        check_logger(settings.run.logger)
        set_threads(settings.run, policy, ranks)
        _check_output(settings)
        for opened in data.data_sets:
            rank_zero_only(print)(opened, flush=True)
        folder = Path(ranks.first(lambda: str(open_folder(settings))))
        resume = _go_on(settings, folder, policy, second, data, ranks.world) if settings.resume else restored
        if resume is not None:
            rank_zero_only(print)(resume, flush=True)
        if resume is None or resume.stage == 1:
            last = run_stage(first, settings.stage1, data, folder, settings, interrupts, resume)
            first_summary: dict[str, Any] | None = last.summary()
            if second is not None:
                write_on_first_rank(last, folder / "stage1" / SUMMARY)
                second.start_from(last.load_best())
                resume = None
        else:
            first_summary = read_summary(folder / "stage1" / SUMMARY)
        if then is not None and settings.stage2 is not None:
            last = run_stage(then, settings.stage2, data, folder, settings, interrupts, resume)

        began = time.perf_counter()
        tested = run_test(last, data)
        best = folder / "best.ckpt"
        save_best(last, best)
        summary = {
            "stage1": first_summary,
            "stage2": None if second is None else last.summary(),
            "test": tested and tested | {"seconds": time.perf_counter() - began},
            "best_path": str(best),
            "seconds": time.perf_counter() - started,
        }
        ranks.meet(last.trainer)
        if ranks.rank == 0:
            write_atomic(folder / "summary.json", summary_json(summary))
            draw_curve(folder)
            print(summary_table(summary))
        return summary
    finally:
        data.close()


def _check_output(settings: Settings) -> None:
    """Refuse a place for what is collected that cannot be one, or a run that collects nothing."""
    stages = [stage for stage in (settings.stage1, settings.stage2) if stage is not None]
    output = settings.stage1.data.output
    if output is None:
        return
    if all(stage.data.input is not None for stage in stages):
        raise UsageError(f"--output {output} records what is collected, and nothing is: the run learns from data")
    try:
        check_target(output, append=settings.resume)
    except UsageError as error:
        raise UsageError(f"--output {error}") from None


def say_what_starts_anew(first: LitPolicy, second: LitPolicy) -> None:
    """Name the parts of stage 2's policy that stage 1 does not learn, and what is done about it."""
    for part in second.anew:
        learner = type(first.algorithm).__name__
        remedy = f", alone for the first {second.warmup} updates" if part == "critic" and second.warmup else ""
        rank_zero_only(print)(f"stage 2: {part} starts anew{remedy}: {learner} learns none to go on with", flush=True)


def open_folder(settings: Settings) -> Path:
    """The run's folder, with its settings in it."""
    folder = make_folder(settings)
    named = {name: value for name, value in vars(settings).items() if name not in ("flat", "resume")}
    write_params(folder, named, seed=settings.run.seed)
    write_config(folder, settings.flat)
    return folder


def _go_on(
    settings: Settings,
    folder: Path,
    first: LitPolicy,
    second: LitPolicy | None,
    data: ExperienceDataModule,
    ranks: int,
) -> Resume | None:
    """Where the run stands, checked against its policies."""
    resume = find_resume(folder)
    if resume is None:
        rank_zero_only(print)(f"{folder} has no checkpoint yet: starting from the beginning", flush=True)
        rank_zero_only(truncate_to)(folder, 0)
        return _restored(settings, first, data, ranks)
    if resume.stage == 1 or second is None or settings.stage2 is None:
        check_resume(settings.stage1, first, data, resume, ranks)
    else:
        check_resume(settings.stage2, second, data, resume, ranks)
    return resume


def _restored(settings: Settings, policy: LitPolicy, data: ExperienceDataModule, ranks: int) -> Resume | None:
    """What a new run goes on from, checked against its policy and its limits."""
    if settings.run.restore is None:
        return None
    found = find_restored(settings.run.restore)
    check_resume(settings.stage1, policy, data, found, ranks)
    limits = (
        ("max_epochs", settings.stage1.trainer["max_epochs"], found.epochs_ended),
        ("max_steps", settings.stage1.trainer.get("max_steps", -1), found.updates),
        ("total_timesteps", settings.stage1.limits.total_timesteps, found.env_steps),
    )
    for name, limit, count in limits:
        if limit is not None and 0 <= limit <= count:
            raise UsageError(f"--{name} {limit} is reached already: {found.path} stands at {count}; give more")
    return found


def read_summary(path: Path) -> dict[str, Any] | None:
    """The summary of a stage that an earlier process has ended; None where it was removed or, with a warning, damaged."""
    try:
        found = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        rank_zero_warn(f"{path} cannot be read: the summary of the run will have nothing of that stage")
        return None
    return found


def write_on_first_rank(stage: Stage, path: Path) -> None:
    """Keep a stage's summary for a process that goes on behind it."""
    if stage.trainer.is_global_zero:
        write_atomic(path, summary_json(stage.summary()))


def prepare_process(run: RunConfig) -> None:
    """Seed this process and set how it computes."""
    torch.set_num_threads(1 if run.num_threads == "auto" else run.num_threads)
    torch.set_float32_matmul_precision(run.matmul_precision)
    torch.set_flush_denormal(True)  # Adam's moments of dead units go denormal: 1.4 times slower otherwise
    pl.seed_everything(run.seed, verbose=False)
    # by default Lightning's lines on accelerators, tips and reached limits do not stand between the lines that a user reads
    for name in ("pytorch_lightning", "lightning_fabric"):
        logging.getLogger(name).setLevel(run.log_level.upper())
    warnings.filterwarnings("ignore", "Checkpoint directory .* exists and is not empty")
    warnings.filterwarnings("ignore", ".*isinstance\\(treespec, LeafSpec\\)")
    warnings.filterwarnings("ignore", "The '\\w+_dataloader' does not have many workers")


def set_threads(run: RunConfig, policy: LitPolicy, ranks: Ranks) -> None:
    """The threads that the policy's networks are worth, unless a number was typed."""
    if run.num_threads == "auto":
        torch.set_num_threads(threads_for(policy.algorithm, ranks.place.local_world))


def make_data(settings: Settings) -> ExperienceDataModule:
    """The one datamodule that serves both stages and the test."""
    stage = settings.stage1
    given: dict[str, Any] = vars(settings.env) | vars(stage.data) | vars(stage.evaluation)
    run, hooks = settings.run, find_hooks(settings.run.hooks)
    return ExperienceDataModule(**given, seed=run.seed, exact_resume=run.exact_resume, hooks=hooks)


def find_hooks(given: Any) -> Hooks | None:
    """The hooks of ``--hooks``: by import path, with arguments or without; from Python also a class or an object.

    Raises:
        UsageError: they cannot be imported or made, or are none.
    """
    arguments: dict[str, Any] = {}
    shown = given
    if isinstance(given, dict):
        if len(given) != 1:
            raise UsageError(f"--hooks {given} is not allowed: give module:Class, or {{module:Class: its arguments}}")
        ((given, arguments),) = given.items()
        shown = given
    if isinstance(given, str):
        given = import_object(given, "--hooks")
    if isinstance(given, type) and issubclass(given, Hooks):
        try:
            given = given(**(arguments or {}))
        except Exception as error:
            raise UsageError(f"--hooks {shown} cannot be made: {in_one_line(error)}") from error
    if given is not None and not isinstance(given, Hooks):
        raise UsageError(f"--hooks {shown} is no lit_rl.Hooks: inherit from it")
    return given


def run_test(stage: Stage, data: ExperienceDataModule) -> dict[str, Any] | None:
    """Score the stage's best policy on episodes that no evaluation has played; None where none is played."""
    policy = stage.load_best()
    if data.env is None:
        return None
    stage.trainer.test(policy, datamodule=data, verbose=False)
    found = {name.removeprefix("Test/"): x for name, x in policy.reported.items() if name.startswith("Test/")}
    if not found:
        return None
    found["return_mean"] = found.pop("return")
    return found | {"episodes": int(found["episodes"])}


def save_best(stage: Stage, path: Any) -> None:
    """Keep the winner under its final name; without a kept file that is the policy as it is."""
    if stage.best.path is None:
        stage.trainer.save_checkpoint(path, weights_only=True)
    elif stage.trainer.is_global_zero:
        copy_atomic(stage.best.path, path)
