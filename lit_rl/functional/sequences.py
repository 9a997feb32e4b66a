"""Sequences of steps for policies that remember: rows of a minibatch with their places in time.

L steps of a sequence, S sequences, B rows, T vector steps, N envs.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from lit_rl.functional.tree import Tree, tree_map


class Sequences(NamedTuple):
    """How B rows follow one another: S sequences of up to L steps each, every one within an episode."""

    state: Tree  # (S, ...): what the policy remembered before the first step of each
    rows: Tensor  # (L, S) int64: the row of each step; -1 where a sequence has ended
    place: Tensor  # (B,) int64: where each row stands among the L x S steps, l * S + s


def cut(begins: Tensor, state: Tree, initial: Tree, length: int) -> Sequences:
    """All steps of a rollout, as T * N rows in time order, cut every ``length`` vector steps and where an episode begins.

    Args:
        begins: (T, N) bool on the CPU, where an episode begins; in the first vector step it does not matter.
        state: (T / L, N, ...), what the policy remembered before vector steps 0, L, 2 L, ...
        initial: (1, ...), what it remembers where an episode begins.
        length: L.
    """
    steps, envs = begins.shape
    t = torch.arange(steps)[:, None].expand(steps, envs)
    n = torch.arange(envs).expand(steps, envs)
    starts = begins | (t % length == 0)
    number = starts.cumsum(0) - 1  # of the sequence in its env
    total = number[-1] + 1
    number = number + total.cumsum(0) - total
    place = (t - torch.where(starts, t, 0).cummax(0).values) * int(total.sum()) + number
    order = number[starts].argsort()
    first_t, first_n = t[starts][order], n[starts][order]
    kept = first_t % length == 0

    def before(x: Tensor, first: Tensor) -> Tensor:
        found = x[(first_t // length).to(x.device), first_n.to(x.device)]
        return torch.where(kept.to(x.device).view(-1, *[1] * (found.ndim - 1)), found, first)

    found = tree_map(before, state, initial)
    return _placed(found, place.reshape(-1), (int(place.max()) // len(kept) + 1, len(kept)))


def choose(sequences: Sequences, which: Tensor | slice) -> tuple[Tensor, Sequences]:
    """Some of the sequences, whole, and the rows that belong to them."""
    rows = sequences.rows[:, which]
    (place,) = (rows.reshape(-1) >= 0).nonzero(as_tuple=True)
    state = tree_map(lambda x: x[which], sequences.state)
    return rows.reshape(-1)[place], _placed(state, place, rows.shape)


def keep(sequences: Sequences, rows: Tensor) -> Sequences:
    """The same sequences of fewer rows: those where ``rows`` (B,) is true."""
    return _placed(sequences.state, sequences.place[rows], sequences.rows.shape)


def to_device(sequences: Sequences, device: torch.device) -> Sequences:
    """The sequences on a device."""
    found: Sequences = tree_map(lambda x: x.to(device), sequences)
    return found


def to_steps(rows: Tensor, sequences: Sequences) -> Tensor:
    """Rows (B, ...) in their places among the steps, (L, S, ...); 0 where there is none."""
    steps, count = sequences.rows.shape
    grid = rows.new_zeros(steps * count, *rows.shape[1:]).index_copy(0, sequences.place, rows)
    return grid.view(steps, count, *rows.shape[1:])


def to_rows(steps: Tensor, sequences: Sequences) -> Tensor:
    """What :func:`to_steps` made (L, S, ...), as rows (B, ...) again."""
    return steps.flatten(0, 1).index_select(0, sequences.place)


def _placed(state: Tree, place: Tensor, shape: tuple[int, ...]) -> Sequences:
    rows = place.new_full(shape, -1)
    rows.view(-1)[place] = torch.arange(len(place), device=place.device)
    return Sequences(state, rows, place)
