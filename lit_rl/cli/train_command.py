"""``lit-rl train``: from what was typed to a run."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from lit_rl.cli.arguments import Request, dump_yaml, from_argv
from lit_rl.cli.experiments import expand
from lit_rl.errors import AlgorithmError, EnvError, NumericsError, UsageError, printable

if TYPE_CHECKING:
    from lit_rl.cli.resolve import Resolved


def main(argv: list[str]) -> int:
    """Train, or print what ``--help`` and ``--print_config`` ask for."""
    request = from_argv(argv)
    if "help" in request.actions:
        print(_help(request), end="")
    elif "print_config" in request.actions:
        print("---\n".join(dump_yaml(one.flat) for one in _put_together(request)), end="")
    else:
        run_request(request)
    return 0


def run_request(request: Request) -> Any:
    """Run what was asked for: what summary.json holds, or a list of that where it was several runs.

    Of several a run that fails does not end the others; its error is raised when they are over.

    Raises:
        UsageError: settings that cannot be used; nothing has been created.
    """
    resolved = _put_together(request)
    if len(resolved) == 1:
        return run_resolved(resolved[0])
    _try_data(resolved)
    summaries: list[dict[str, Any]] = []
    failed: Exception | None = None
    for number, one in enumerate(resolved, 1):
        run = one.settings.run
        name = f"run {number} of {len(resolved)}: {run.experiment_name or run.algo}, seed {run.seed}"
        print(name, flush=True)
        try:
            summaries.append(run_resolved(one))
        except (AlgorithmError, EnvError, NumericsError, UsageError) as error:
            print(f"{name} failed: {printable(str(error))}", file=sys.stderr, flush=True)
            failed = failed or error
    if failed is not None:
        raise failed
    return summaries


def _try_data(resolved: list[Resolved]) -> None:
    """Refuse an environment or a data set that cannot be used before the first of several runs begins."""
    from lit_rl.pipeline.run import make_data

    different = {str((one.settings.env, one.settings.stage1.data.input)): one.settings for one in resolved}
    for settings in different.values():
        make_data(settings).close()


def run_resolved(resolved: Resolved) -> dict[str, Any]:
    """Say what was decided for the user, and run it.

    Returns:
        What summary.json holds.

    Raises:
        UsageError: settings that cannot be used; nothing has been created.
    """
    from lightning_fabric.utilities.exceptions import MisconfigurationException

    from lit_rl.cli.trainer_flags import try_out
    from lit_rl.pipeline.ranks import Ranks
    from lit_rl.pipeline.run import run

    settings = resolved.settings
    trainers = [try_out(stage.trainer) for stage in (settings.stage1, settings.stage2) if stage is not None]
    ranks = Ranks.of(trainers[0])
    if ranks.rank == 0:
        for note in resolved.notes:
            print(note, flush=True)
    try:
        with ranks:
            return run(settings, ranks)
    except MisconfigurationException as error:
        raise UsageError(f"Lightning: {error}") from error


def _put_together(request: Request) -> list[Resolved]:
    """The runs that were asked for."""
    from lit_rl.cli.resume import resolve_any

    return [resolve_any(one) for one in expand(request)]


def _help(request: Request) -> str:
    from lit_rl.cli.parser import parser_of
    from lit_rl.cli.stages import given_algorithm
    from lit_rl.pipeline.settings import RunConfig

    return parser_of(given_algorithm(request.values.get("algo", RunConfig.algo), "--algo")).format_help()
