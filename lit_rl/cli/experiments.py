"""Several runs by one command: the experiments of a file (``-f``), each with several seeds (``--num_samples``).

What RLlib calls otherwise is translated here too, by ``lit_rl.compat.rllib``, once the algorithm is known.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import yaml

from lit_rl.cli.arguments import Request, load_yaml, read_config
from lit_rl.cli.flags import Flags
from lit_rl.compat.rllib_run import RUN_FLAGS, RunFlags, translate_run
from lit_rl.errors import UsageError

MOST_SAMPLES = 1_000  # all are put together before the first begins
# What RLlib's flags of a run become, by the flag; whatever is not here comes from --stop.
GIVEN_BY = {
    "output_dir": "--local_dir",
    "enable_checkpointing": "--checkpoint_at_end",
    "callbacks": "--checkpoint_freq",
    "step2": "--checkpoint_freq",
}


@dataclass
class ExperimentFlags:
    """experiments"""

    file: str | None = None
    """Run every experiment of a YAML file, {name: {run: DQN, env: ..., stop: ..., config: {...}}}, one by one. Short: -f."""
    num_samples: int = 1
    """Runs of each experiment, with seeds that count on from --seed; NAME_seed0, NAME_seed1, ... with an experiment_name."""


def expand(request: Request) -> list[Request]:
    """The runs that were asked for, all settings in our own names.

    Raises:
        UsageError: a file that cannot be read, or a key of RLlib's that has no meaning here.
    """
    file = request.values.pop("file", None)
    requests = [request] if file is None else _of_file(str(file), request)
    return [_translated(one) for each in requests for one in _samples(each)]


def _of_file(file: str, flags: Request) -> list[Request]:
    """The experiments of a file; what was typed beside it counts for each of them."""
    if "experiment_name" in flags.values:
        raise UsageError("--experiment_name: an experiment of -f has the name that it has in the file; leave it out")
    experiments, _, lines = read_config(file, "-f")
    if not experiments:
        raise UsageError(
            f"-f {file} holds no experiment: give {{name: {{run: DQN, env: CartPole-v1, config: {{...}}}}}}"
        )
    requests = []
    for name, values in experiments.items():
        where = f" (in {file}, {name})"
        if not isinstance(values, dict):
            raise UsageError(
                f"-f {file}, line {lines.get(str(name), 1)}: {name} must be {{run: DQN, env: ..., config: ...}}"
            )
        config = values.get("config") or {}
        if not isinstance(config, dict):
            raise UsageError(
                f"-f {file}, line {lines.get(f'{name}.config', 1)}: config must be {{setting: value, ...}}"
            )
        request = Request({"experiment_name": str(name)}, {"experiment_name": where}, set(flags.actions))
        for prefix, part in ((f"{name}.", values), (f"{name}.config.", config)):
            here = {
                str(key).replace("-", "_"): value for key, value in part.items() if key != "config" or part is config
            }
            on = {str(key).replace("-", "_"): lines.get(f"{prefix}{key}", 0) for key in part}
            request.add(here, where, {key: line for key, line in on.items() if line})
        request.values |= flags.values
        request.origin |= flags.origin
        requests.append(request)
    return requests


def _samples(request: Request) -> list[Request]:
    """One request for each seed."""
    values = dict(request.values)
    count, where = _plain(values.pop("num_samples", 1)), request.origin.get("num_samples", "")
    if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= MOST_SAMPLES:
        raise UsageError(f"--num_samples {count}{where} is not allowed: give a whole number from 1 to {MOST_SAMPLES}")
    if count == 1:
        return [Request(values, request.origin, request.actions)]
    seed, name = _plain(values.get("seed", 0)), values.get("experiment_name")
    if isinstance(seed, bool) or not isinstance(seed, int):
        raise UsageError(f"--seed {seed} is not allowed: give a whole number")
    requests = []
    for i in range(seed, seed + count):
        own = {"seed": i} | ({} if name is None else {"experiment_name": f"{name}_seed{i}"})
        requests.append(Request(values | own, request.origin, request.actions))
    return requests


def _translated(request: Request) -> Request:
    """The request with our settings in place of RLlib's."""
    from lit_rl.algorithms import MODULES
    from lit_rl.cli.parser import parser_of
    from lit_rl.cli.stages import given_algorithm
    from lit_rl.compat import rllib
    from lit_rl.pipeline.settings import RunConfig

    algo = request.values.get("algo", RunConfig.algo)
    if not (isinstance(algo, str) and algo.upper() in MODULES):
        rllib.check_algorithm(algo)
    known = parser_of(given_algorithm(algo, "--algo")).hints
    values: dict[str, Any] = {}
    for name, value in request.values.items():
        read = _plain(value) if name in rllib.NAMES or name == "model" else value
        values[name] = read if rllib.is_theirs(name, read, known) else value
    run = _run_flags({name: values.pop(name) for name in RUN_FLAGS if name in values}, request.origin)
    found, origin = rllib.translate(values, known, request.origin)
    two_steps = found.get("two_steps", False) not in (False, "false")
    for name, value in translate_run(run, two_steps).items():
        if name == "callbacks" and found.get(name) is not None:
            value = [*_listed(_plain(found[name])), *value]
        elif name == "step2" and found.get(name) is not None:
            given = _plain(found[name])
            if not isinstance(given, dict):
                continue  # which is refused by its name
            value = given | {"callbacks": [*_listed(given.get("callbacks")), *value["callbacks"]]}
        elif name in found and _plain(found[name]) != value:
            raise UsageError(
                f"--{name} {found[name]} and {GIVEN_BY.get(name, '--stop')} contradict each other: give one"
            )
        found[name] = value
        origin[name] = f" ({GIVEN_BY.get(name, '--stop')})"
    return Request(found, origin, request.actions)


def _run_flags(values: dict[str, Any], origin: dict[str, str]) -> RunFlags:
    """RLlib's flags of a run, each in its type."""
    if "stop" in values:
        values["stop"] = _plain(values["stop"])
    flags = Flags("train", "")
    flags.add("run", RunFlags)
    return RunFlags(**flags.check(values, origin))


def _plain(value: Any) -> Any:
    """What a text that was typed stands for; the text itself where it is no YAML."""
    try:
        return load_yaml(value) if isinstance(value, str) and value else value
    except (yaml.YAMLError, ValueError, RecursionError):  # numbers of thousands of digits, brackets in brackets
        return value


def _listed(callbacks: Any) -> list[Any]:
    if callbacks is None:
        return []
    return callbacks if isinstance(callbacks, list) else [callbacks]
