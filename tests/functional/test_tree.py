from typing import NamedTuple

import numpy as np
import pytest
import torch

from lit_rl.functional.tree import tree_leaves, tree_map


class Pair(NamedTuple):
    first: int
    second: dict


def test_structure_and_key_order_are_kept():
    tree = {"z": (1, {"b": 2}), "a": 3}
    doubled = tree_map(lambda x: 2 * x, tree)
    assert doubled == {"z": (2, {"b": 4}), "a": 6}
    assert list(doubled) == ["z", "a"]


def test_leaves_come_in_the_order_of_the_map():
    tree = {"z": (1, {"b": 2}), "a": 3}
    met = []
    tree_map(met.append, tree)
    assert tree_leaves(tree) == met == [1, 2, 3]


def test_several_trees_are_walked_together_by_key():
    assert tree_map(lambda x, y: x - y, {"a": 5, "b": (7,)}, {"b": (1,), "a": 2}) == {"a": 3, "b": (6,)}


def test_a_named_tuple_stays_itself():
    assert tree_map(lambda x: x + 1, Pair(1, {"k": 2})) == Pair(2, {"k": 3})
    assert isinstance(tree_map(lambda x: x, Pair(1, {})), Pair)


def test_arrays_tensors_and_lists_are_leaves():
    tree = (np.zeros(2), torch.zeros(3), [1, 2])
    assert [len(leaf) for leaf in tree_leaves(tree)] == [2, 3, 2]
    assert tree_map(len, tree) == (2, 3, 2)


@pytest.mark.parametrize("other", [(1,), (1, 2, 3)])
def test_tuples_of_other_lengths_are_refused(other):
    with pytest.raises(ValueError):
        tree_map(lambda x, y: x, (1, 2), other)
