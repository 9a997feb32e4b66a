"""Observations as trees: nested dicts and tuples with arrays or tensors as leaves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Tree = Any


def tree_map(fn: Callable[..., Any], tree: Tree, *rest: Tree) -> Tree:
    """Apply `fn` to each leaf of `tree` and to the leaves at the same place of `rest`.

    A leaf is whatever is neither a dict nor a tuple. Dicts come back as plain dicts in the order of `tree`'s keys,
    tuples as tuples, named tuples as their own class. Raises KeyError or ValueError where `rest` is shaped otherwise.
    """
    if isinstance(tree, dict):
        return {key: tree_map(fn, child, *(other[key] for other in rest)) for key, child in tree.items()}
    if isinstance(tree, tuple):
        children = [tree_map(fn, *same_place) for same_place in zip(tree, *rest, strict=True)]
        return type(tree)(*children) if hasattr(tree, "_fields") else tuple(children)
    return fn(tree, *rest)


def tree_leaves(tree: Tree) -> list[Any]:
    """All leaves of `tree`, depth first, in the order in which `tree_map` meets them."""
    if not isinstance(tree, (dict, tuple)):
        return [tree]
    leaves: list[Any] = []
    for child in tree.values() if isinstance(tree, dict) else tree:
        if isinstance(child, (dict, tuple)):
            leaves += tree_leaves(child)
        else:
            leaves.append(child)
    return leaves
