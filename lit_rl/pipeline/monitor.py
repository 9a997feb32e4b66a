"""The metric that a stage is scored by: what its evaluations log, which of it counts, and who else waits for it."""

from __future__ import annotations

from typing import Literal

from pytorch_lightning.callbacks import Callback, Checkpoint

from lit_rl.data.evaluation import STATISTICS
from lit_rl.datamodule import ExperienceDataModule
from lit_rl.errors import UsageError
from lit_rl.lit_policy import LitPolicy
from lit_rl.loggers.curve import PREFIXES
from lit_rl.pipeline.settings import KeepConfig, StageSettings

SMALLER_IS_BETTER = ("loss", "mse", "return_std")
Mode = Literal["max", "min"]


def find_monitor(stage: StageSettings, policy: LitPolicy, data: ExperienceDataModule) -> tuple[str, Mode]:
    """The metric that picks the best of a stage, and whether more or less of it is better.

    Raises:
        UsageError: it, another that a callback waits for, or an estimate that was asked for will never be logged.
    """
    names = _evaluated(policy, data)
    _check_estimates(stage, names)
    monitor, mode = _monitored(stage.keep, policy.stage, names)
    callbacks = stage.trainer.get("callbacks") or []
    _check_callbacks(callbacks, policy.stage, stage.module is not None, names)
    watched = [("--monitor", monitor), *((_shown(c), c.monitor) for c in callbacks if hasattr(c, "monitor"))]
    for shown, name in watched:
        if name != f"{policy.prefix}/success" or data.played is None:
            continue
        if not data.played.reports_success(policy.best_policy):
            known = ", ".join(other for other in names if other != name)
            raise UsageError(f"{shown} {name} is never logged: this environment reports no success; there are {known}")
    return monitor, mode


def _evaluated(policy: LitPolicy, data: ExperienceDataModule) -> list[str]:
    """The metrics of a stage's evaluations, the usual one first; success only where the environment reports it."""
    played = [] if data.env is None else list(STATISTICS)
    held_out = data.first_held_out(policy.algorithm)
    scored: list[str] = []
    if held_out is not None:
        scored = policy.held_out.names(held_out, policy.best_policy, policy.algorithm.held_out_loss)
    return [f"{policy.prefix}/{name}" for name in (*played, *scored)]


def _monitored(keep: KeepConfig, number: int, names: list[str]) -> tuple[str, Mode]:
    """The metric that picks the best of a stage, by default the first of ``names``, and whether more or less is better.

    Raises:
        UsageError: it will never be logged.
    """
    if not names:
        raise UsageError(
            "there is nothing to score the policy by: add --env ID, or give a --validation_fraction above 0"
        )
    monitor = keep.monitor or names[0]
    if number == 2 and monitor.startswith("Eval/"):
        monitor = f"{PREFIXES[2]}/{monitor.removeprefix('Eval/')}"
    if monitor not in names:
        known = ", ".join(names)
        raise UsageError(f"--monitor {monitor} is never logged at an evaluation; there are {known}")
    mode = keep.monitor_mode
    if mode == "auto":
        mode = "min" if monitor.rpartition("/")[2] in SMALLER_IS_BETTER else "max"
    return monitor, mode


def _check_estimates(stage: StageSettings, names: list[str]) -> None:
    """Refuse an estimate from recorded episodes that these do not allow, or that nothing is there for."""
    for kind in stage.keep.input_evaluation or []:
        if not any(name.endswith(f"/{kind}_return") for name in names):
            need = "recorded episodes: give --input PATH"
            if stage.data.input is not None:
                need = (
                    "held-out episodes that say how probable their actions were, and a policy that does: leave it out"
                )
            raise UsageError(f"--input_evaluation {kind} needs {need}")


def _check_callbacks(callbacks: list[Callback], number: int, own_module: bool, names: list[str]) -> None:
    """Refuse a user's callback that waits for what is never logged: it would fail once the stage has begun."""
    # code of the user's own may log what it likes
    foreign = own_module or any(not hasattr(c, "monitor") and not _is_lightnings(c) for c in callbacks)
    for callback in callbacks:
        monitor = getattr(callback, "monitor", None)
        if not isinstance(monitor, str):
            continue
        prefix = monitor.split("/")[0]
        if prefix in PREFIXES.values() and prefix != PREFIXES[number]:
            raise UsageError(
                f"{_shown(callback)} {monitor}, and stage {number} logs {PREFIXES[number]}/*: "
                "give the callbacks of stage 2 in --step2 '{\"callbacks\": [...]}'"
            )
        counts = isinstance(callback, Checkpoint) and monitor in ("epoch", "step")
        if not (foreign or counts or prefix == "Train" or monitor in names):
            known = ", ".join([*names, "Train/return", "Train/length", "Train/<what its updates log>"])
            raise UsageError(f"{_shown(callback)} {monitor}, which is never logged; there are {known}")


def _shown(callback: Callback) -> str:
    return f"--callbacks: {type(callback).__name__} monitors"


def _is_lightnings(callback: Callback) -> bool:
    return type(callback).__module__.startswith(("pytorch_lightning.", "lightning."))
