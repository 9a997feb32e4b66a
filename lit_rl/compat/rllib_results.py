"""What RLlib's ``train()`` returns, from a row of ours."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

NAMES = {
    "Train/return": "episode_reward_mean",
    "Train/return_min": "episode_reward_min",
    "Train/return_max": "episode_reward_max",
    "Train/length": "episode_len_mean",
    "Train/episodes": "episodes_this_iter",
    "env_steps": "timesteps_total",
    "time_total_s": "time_total_s",
    "time_this_epoch_s": "time_this_iter_s",
}
EVALUATION = {
    "return": "episode_reward_mean",
    "return_min": "episode_reward_min",
    "return_max": "episode_reward_max",
    "length": "episode_len_mean",
    "episodes": "episodes_this_iter",
}
EVALUATED = ("Eval", "Step2Eval")
MISSING = {"episode_reward_mean": float("nan"), "episode_reward_min": float("nan"), "episode_reward_max": float("nan")}
CUSTOM = ("_mean", "_min", "_max")


def result_of(row: Mapping[str, Any], before: int = 0) -> dict[str, Any]:
    """A row of result.json under RLlib's keys.

    Args:
        row: of an epoch.
        before: env steps that had been made when it began.

    Returns:
        ``episode_reward_mean/min/max`` and ``episode_len_mean`` (NaN where no episode has ended), ``episodes_this_iter``,
        ``timesteps_total``, ``timesteps_this_iter``, ``training_iteration`` (epochs), ``time_total_s`` and
        ``time_this_iter_s`` (seconds), ``info`` (what updates have logged, and their number), ``custom_metrics`` (of hooks)
        and ``evaluation`` (the same keys, of the evaluation).
    """
    result: dict[str, Any] = {**MISSING, "episode_len_mean": float("nan"), "episodes_this_iter": 0}
    info: dict[str, Any] = {"num_updates": row["updates"], "stage": row["stage"]}
    custom: dict[str, Any] = {}
    for name, value in row.items():
        prefix, _, rest = name.rpartition("/")
        if name in NAMES:
            result[NAMES[name]] = value
        elif prefix == "Train":
            (custom if rest.endswith(CUSTOM) else info)[rest] = value
    result["episodes_this_iter"] = int(result["episodes_this_iter"])
    result |= {"timesteps_this_iter": row["env_steps"] - before, "training_iteration": row["epoch"] + 1}
    return result | {"info": info, "custom_metrics": custom, "evaluation": evaluation_of(row)}


def evaluation_of(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """The metrics of an evaluation among others, under RLlib's keys; ours keep their names where there is none."""
    return {EVALUATION.get(rest, rest): value for (prefix, rest), value in _split(metrics) if prefix in EVALUATED}


def _split(metrics: Mapping[str, Any]) -> list[tuple[tuple[str, str], Any]]:
    return [((name.rpartition("/")[0], name.rpartition("/")[2]), value) for name, value in metrics.items()]
