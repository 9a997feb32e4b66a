from __future__ import annotations

import torch

from lit_rl.functional.sequences import choose, cut, keep, to_rows, to_steps

# five vector steps of two envs, row 2 t + n is step t of env n; an episode begins in env 0 at step 3 and in env 1 at 1, 2
BEGINS = torch.tensor([[0, 0], [0, 1], [0, 1], [1, 0], [0, 0]], dtype=torch.bool)
STATE = {"a": torch.tensor([[0.0, 1.0], [20.0, 21.0], [40.0, 41.0]])}
INITIAL = {"a": torch.tensor([-1.0])}
ROWS = torch.arange(10)
CUT = cut(BEGINS, STATE, INITIAL, 2)


def test_a_rollout_is_cut_every_few_steps_and_where_episodes_begin():
    assert CUT.rows.tolist() == [
        [0, 4, 6, 8, 1, 3, 5, 9],
        [2, -1, -1, -1, -1, -1, 7, -1],
    ]
    assert CUT.state["a"].tolist() == [0, 20, -1, 40, 1, -1, 21, 41]
    assert to_steps(ROWS + 100, CUT).tolist() == [
        [100, 104, 106, 108, 101, 103, 105, 109],
        [102, 0, 0, 0, 0, 0, 107, 0],
    ]
    assert to_rows(to_steps(ROWS, CUT), CUT).tolist() == ROWS.tolist()


def test_chosen_sequences_are_whole_and_in_their_order_in_time():
    rows, found = choose(CUT, torch.tensor([6, 0, 0, 2]))
    assert rows.tolist() == [5, 0, 0, 6, 7, 2, 2]
    assert rows[found.rows].tolist()[0] == [5, 0, 0, 6] and found.rows[1].tolist() == [4, 5, 6, -1]
    assert found.state["a"].tolist() == [21, 0, 0, -1]
    assert to_steps(rows + 1, found).tolist() == [[6, 1, 1, 7], [8, 3, 3, 0]]
    again, part = choose(found, slice(1, 2))
    assert rows[again].tolist() == [0, 2] and part.rows.tolist() == [[0], [1]]


def test_rows_that_are_left_out_leave_holes():
    there = ROWS != 0
    part = keep(CUT, there)
    rows, found = choose(part, torch.tensor([0, 4]))
    assert ROWS[there][rows].tolist() == [1, 2]
    assert to_steps(ROWS[there][rows], found).tolist() == [[0, 1], [2, 0]]


def test_one_sequence_may_be_the_whole_rollout():
    found = cut(torch.zeros_like(BEGINS), {"a": STATE["a"][:1]}, INITIAL, 9)
    assert found.rows.tolist() == [[0, 1], [2, 3], [4, 5], [6, 7], [8, 9]] and found.state["a"].tolist() == [0, 1]
