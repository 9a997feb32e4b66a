"""Values of RLlib's that become other values or several settings here; each function takes what :data:`Translate` says."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import Any

from lit_rl.compat.rllib_keys import Translate, Values
from lit_rl.data.config import MOST
from lit_rl.errors import UsageError


def times(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise UsageError(f"{value!r} is not allowed: give a whole number of at least 1")
    return value


def envs_of(given: Mapping[str, Any]) -> int:
    return int(given.get("num_envs_per_worker", given.get("num_envs", 1)))


def epoch(size: int, given: Mapping[str, Any]) -> Values:
    """An epoch of whole rollouts, about as long as ours, where nobody says how long it is to be."""
    typed = any(given.get(name) not in (None, 0) for name in ("timesteps_per_iteration", "step_per_epoch"))
    return {} if typed else {"step_per_epoch": size * max(1, round(10_000 / size))}


def fragment(value: Any, given: Mapping[str, Any], known: Collection[str]) -> Values:
    """sample_batch_size: env steps of each env between two updates."""
    size = times("sample_batch_size", value)
    if "rollout_length" in known:
        if "epochs_per_rollout" in known and "train_batch_size" in given:
            return {}  # the rollout is train_batch_size long, and is collected at once
        return {"rollout_length": size} | epoch(size * envs_of(given), given)
    if "collect_per_step" in known:
        steps = size * envs_of(given)
        return {"collect_per_step": steps, "update_per_step": 1 / steps}
    raise UsageError("this algorithm collects in iterations: give steps_per_iteration (train_batch_size)")


def train_batch(value: Any, given: Mapping[str, Any], known: Collection[str]) -> Values:
    """train_batch_size: a minibatch of replay or data, a whole rollout, or an iteration of ES."""
    size = times("train_batch_size", value)
    if "rollout_length" in known:
        envs = envs_of(given)
        if size % envs:
            raise UsageError(
                f"{size} is not allowed: a rollout is shared out among {envs} envs, so it must be a multiple"
            )
        if "epochs_per_rollout" not in known and "sample_batch_size" in given:
            made = envs * int(given["sample_batch_size"])
            if made != size:
                raise UsageError(f"one update learns from num_envs x sample_batch_size = {made} env steps: give {made}")
            return {}
        return {"rollout_length": size // envs} | epoch(size, given)
    return {"batch_size": size} if "batch_size" in known else {"steps_per_iteration": size}


def target_every(value: Any, given: Mapping[str, Any], known: Collection[str]) -> Values:
    """Their count is in env steps, ours in updates."""
    if "target_update_every" not in known:
        if value in (0, 1):
            return {}
        raise UsageError("the targets move a little at every update: give tau, and 0 here")
    found: Values = {"tau": 1.0}
    if "update_per_step" in given:
        per_step = float(given["update_per_step"])
    else:
        per_step = 1 / (int(given.get("sample_batch_size", 4)) * envs_of(given))
        found["update_per_step"] = per_step
    return found | {"target_update_every": max(1, round(times("target_network_update_freq", value) * per_step))}


EPSILON = ("exploration_fraction", "exploration_initial_eps", "exploration_final_eps", "schedule_max_timesteps")


def truth(value: Any) -> bool:
    if not isinstance(value, bool | None):
        raise UsageError(f"{value!r} is not allowed: give true or false")
    return bool(value)


def number(name: str, given: Mapping[str, Any], default: float) -> float:
    """What was given by this name, a number of at least 0."""
    value = given.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
        raise UsageError(f"{value!r} is not allowed: give a number of at least 0")
    return float(value)


def epsilon(_: Any, given: Mapping[str, Any], known: Collection[str]) -> Values:
    steps = number("schedule_max_timesteps", given, 100_000) * number("exploration_fraction", given, 0.1)
    first, last = number("exploration_initial_eps", given, 1.0), number("exploration_final_eps", given, 0.02)
    return {"epsilon": [[0, first], [max(1, round(steps)), last]] if steps else last}


def beta(_: Any, given: Mapping[str, Any], known: Collection[str]) -> Values:
    first = number("prioritized_replay_beta", given, 0.4)
    last = number("final_prioritized_replay_beta", given, first)
    whole = number("schedule_max_timesteps", given, 100_000) * number("beta_annealing_fraction", given, 0.2)
    steps = number("prioritized_replay_beta_annealing_timesteps", given, whole)
    return {"prioritized_beta": first if first == last else [[0, first], [max(1, round(steps)), last]]}


def ou(_: Any, given: Mapping[str, Any], known: Collection[str]) -> Values:
    scale = number("exploration_ou_noise_scale", given, 0.1) * number("exploration_ou_sigma", given, 0.2)
    return {"exploration_noise": scale}


def widths(value: Any, given: Mapping[str, Any], known: Collection[str]) -> Values:
    both = [given[name] for name in ("actor_hiddens", "critic_hiddens") if name in given]
    if any(other != value for other in both):
        raise UsageError("actor and critic have the same hidden_sizes here: give both the same")
    return {"hidden_sizes": value}


def activations(value: Any, given: Mapping[str, Any], known: Collection[str]) -> Values:
    both = [given[n] for n in ("actor_hidden_activation", "critic_hidden_activation") if n in given]
    if any(other != value for other in both):
        raise UsageError("actor and critic have the same activation here: give both the same")
    return {"activation": value}


def gae(value: Any, given: Mapping[str, Any], known: Collection[str]) -> Values:
    return {} if truth(value) else {"gae_lambda": 1.0}


def filter(value: Any, given: Mapping[str, Any], known: Collection[str]) -> Values:
    if value not in ("NoFilter", "MeanStdFilter"):
        raise UsageError(f"{value!r} is not allowed: give NoFilter or MeanStdFilter")
    if value == "NoFilter" and "normalize_obs" not in known:
        return {}
    return {"normalize_obs": value == "MeanStdFilter"}


def gpus(value: Any, given: Mapping[str, Any], known: Collection[str]) -> Values:
    if isinstance(value, bool) or value not in (0, 1):
        raise UsageError(
            f"{value!r} is not allowed: give 0 or 1. Several runs share a GPU by being started beside each other with "
            "num_gpus 1 each; several GPUs learn one policy with --devices"
        )
    return {"accelerator": "gpu", "devices": 1} if value == 1 else {"accelerator": "cpu"}


def steps(value: Any, given: Mapping[str, Any], known: Collection[str]) -> Values:
    return {} if value in (0, None) else {"step_per_epoch": times("timesteps_per_iteration", value)}


def every(value: Any, given: Mapping[str, Any], known: Collection[str]) -> Values:
    if value in (None, 0):
        raise UsageError("the best policy is picked by evaluations: give how many epochs are between two of them")
    return {"check_val_every_n_epoch": value}


def seconds(value: Any, given: Mapping[str, Any], known: Collection[str]) -> Values:
    return {} if value in (0, None) else {"val_check_interval": clock(value), "check_val_every_n_epoch": None}


def clock(seconds: Any) -> str:
    """Seconds as Lightning takes times, rounded up: DD:HH:MM:SS."""
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds <= MOST:
        raise UsageError(f"{seconds!r} is not allowed: give seconds above 0, at most {MOST}")
    minutes, rest = divmod(math.ceil(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    return f"{days:02}:{hours:02}:{minutes:02}:{rest:02}"


def level(value: Any, given: Mapping[str, Any], known: Collection[str]) -> Values:
    levels = {"DEBUG": "debug", "INFO": "info", "WARN": "warning", "WARNING": "warning", "ERROR": "error"}
    if value not in levels:
        raise UsageError(f"{value!r} is not allowed: give DEBUG, INFO, WARN or ERROR")
    return {"log_level": levels[value]}


def evaluation(value: Any, given: Mapping[str, Any], known: Collection[str]) -> Values:
    found: Values = {}
    greedy = {"explore": False, "exploration_fraction": 0, "exploration_final_eps": 0}
    for name, inner in value.items():
        if name == "env_config":
            found["eval_env_config"] = inner
        elif name not in greedy or inner != greedy[name]:
            raise UsageError(
                f"evaluations act greedily, and only their env_config may differ: {name} has no meaning here"
            )
    return found


ESTIMATES = ("is", "wis")
CALLBACKS = (
    "on_episode_start",
    "on_episode_step",
    "on_episode_end",
    "on_sample_end",
    "on_train_result",
    "on_postprocess_traj",
)


def callbacks(value: Any, given: Mapping[str, Any], known: Collection[str]) -> Values:
    unknown = [name for name in value if name not in CALLBACKS]
    if unknown:
        raise UsageError(f"{unknown[0]} is none of {', '.join(CALLBACKS)}")
    functions = {name: function for name, function in value.items() if function is not None}
    return {"hooks": {"lit_rl.compat.rllib_callbacks:Callbacks": functions}} if functions else {}


def is_callbacks(value: Any) -> bool:
    return isinstance(value, dict) and "class_path" not in value


def schedule(ours: str) -> Translate:
    return lambda value, *_: {} if value is None else {ours: value}


def batch_mode(value: Any, given: Mapping[str, Any], known: Collection[str]) -> Values:
    if value not in ("truncate_episodes", "complete_episodes"):
        raise UsageError(f"{value!r} is not allowed: give truncate_episodes or complete_episodes")
    if "complete_episodes" not in known:
        return {}  # replay and data keep every transition apart
    return {"complete_episodes": value == "complete_episodes"}


def recurrent(name: str, harmless: Any) -> Translate:
    """A setting of recurrent policies, which not every algorithm has."""

    def translate(value: Any, given: Mapping[str, Any], known: Collection[str]) -> Values:
        if name in known:
            return {name: value}
        if value == harmless:
            return {}
        raise UsageError("this algorithm has no recurrent policy: use PPO or A2C, or give frame_stack")

    return translate


def optimization(value: Any, given: Mapping[str, Any], known: Collection[str]) -> Values:
    rates = set(value.values())
    if len(rates) != 1:
        raise UsageError("actor, critics and temperature have one lr here: give all three the same")
    return {"lr": rates.pop()}


def is_input_evaluation(value: Any) -> bool:
    return value in ("is", "wis", [*ESTIMATES]) or (isinstance(value, str | list) and "simulation" in value)


def input_evaluation(value: Any, given: Mapping[str, Any], known: Collection[str]) -> Values:
    names = [value] if isinstance(value, str) else list(value or [])
    if names == [*ESTIMATES] and given.get("input", "sampler") in (None, "sampler"):
        return {}  # their default, which counts for data alone
    if "simulation" in names:
        raise UsageError("'simulation' is not allowed: evaluations play episodes wherever there is an env (--env ID)")
    return {"input_evaluation": names}


def of_td3(name: str, value: Any, known: Collection[str]) -> Values:
    is_td3 = "policy_delay" in known
    if truth(value) != is_td3:
        raise UsageError(
            f"{'TD3 has it' if is_td3 else 'DDPG has none of it'}: give --run {'DDPG' if is_td3 else 'TD3'}"
        )
    return {}
