"""The typed records that travel from environments to losses.

Shapes: T vector steps, N envs, B minibatch, K finished episodes. Observations are trees (nested dicts and tuples). What
environments made stands in numpy arrays on the host.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from lit_rl.functional.sequences import Sequences
from lit_rl.functional.tree import Tree


class Steps(NamedTuple):
    """T vector steps of N envs, in time order.

    ``obs[t + 1]`` is what the policy sees next; where an episode ended at ``t`` and its env was reset in the same step,
    the true next observation is in ``final_obs`` instead. Rows with ``valid`` false are resets, not transitions.

    Where a policy sees stacks of K frames, these are single ones: ``age`` and ``past`` say how stacks are made of them.
    """

    obs: Tree  # (T + 1, N, ...)
    action: np.ndarray  # (T, N, ...), in the policy's own units
    reward: np.ndarray  # (T, N) float32
    terminated: np.ndarray  # (T, N) bool
    truncated: np.ndarray  # (T, N) bool
    valid: np.ndarray  # (T, N) bool
    final_index: np.ndarray  # (K, 2) int64: (t, n) of each final observation
    final_obs: Tree  # (K, ...)
    age: np.ndarray = np.zeros(
        (0, 0), np.uint8
    )  # (T + 1, N): frames of its episode before each of ``obs``, up to K - 1
    past: Tree = ()  # (K - 1, N, ...): what was seen before ``obs[0]``, of the stacked parts
    state: Tree = None  # (C + 1, N, ...): of the policy, before every E-th vector step and after the last
    final_state: Tree = None  # (K, ...): the policy's before each final observation


class Transitions(NamedTuple):
    """A minibatch for learning from replay; ``target = reward + discount * value(next_obs)``.

    ``reward`` is the discounted sum over n steps (fewer where the episode or the data ends) and ``discount`` is gamma^n,
    0 only where the episode terminated. What does not differ between minibatches may be one tensor in all of them: read it.
    """

    obs: Tree  # (B, ...)
    action: Tensor  # (B, ...)
    reward: Tensor  # (B,) float32
    discount: Tensor  # (B,) float32
    next_obs: Tree  # (B, ...)
    weight: Tensor  # (B,) float32: importance weights, 1 under uniform replay
    return_: Tensor = torch.zeros(0)  # (B,) float32: discounted rewards to the end of a recorded episode; else empty
    noise: Tensor = torch.zeros(0)  # standard normal, of the shape that the plan asks for: the loss's own randomness


class RolloutBatch(NamedTuple):
    """A minibatch of a rollout; everything about the policy is as it was when the rollout had been collected."""

    obs: Tree  # (B, ...)
    action: Tensor  # (B, ...), in the policy's own units
    log_prob: Tensor  # (B,) float32, of the action
    value: Tensor  # (B,) float32, of the observation; 0 without a critic
    advantage: Tensor  # (B,) float32
    return_: Tensor  # (B,) float32: advantage + value, what the critic should say
    last: Tensor  # () bool: no minibatch of the same rollout comes after it
    sequences: Sequences | tuple[()] = ()  # how rows follow one another, where the policy remembers


class Evaluations(NamedTuple):
    """Scores of perturbed weights: row p of ``return_`` belongs to weights + stdev * direction p, and - stdev * it."""

    direction: Tensor  # (P, D) standard normal
    return_: Tensor  # (P, 2)


class Episode(NamedTuple):
    """A finished episode: its raw, undiscounted return, its env steps, and success where the env reports it."""

    number: int
    return_: float
    length: int
    success: float | None
    custom: dict[str, float] | None = None  # what hooks have measured of it


class Trajectory(NamedTuple):
    """An episode as it was played or recorded, n steps."""

    number: int
    seed: int | None  # its reset seed, where it is known
    obs: Tree  # (n + 1, ...): the last observation included
    action: np.ndarray  # (n, ...), as the environment takes them
    reward: np.ndarray  # (n,) float64, as the environment pays it, its wrappers included
    terminated: bool
    truncated: bool  # by the environment's limit, or because nothing more was played
    success: float | None
    log_prob: np.ndarray | None  # (n,) float64, of the actions; None where it is not known
