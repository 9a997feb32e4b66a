"""Rewriting a captured graph into what compiles to faster code on a CPU, within the last bits."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

aten = torch.ops.aten


def rewrite(graph: fx.GraphModule) -> None:
    """All passes, in place."""
    tanh_as_sigmoid(graph)
    graph.graph.eliminate_dead_code()
    graph.graph.lint()
    graph.recompile()


def tanh_as_sigmoid(graph: fx.GraphModule) -> None:
    """tanh(x) = 2 sigmoid(2x) - 1: the vector tanh costs four sigmoids."""
    for node in list(graph.graph.find_nodes(op="call_function", target=aten.tanh.default)):
        with graph.graph.inserting_before(node):
            sigmoid = _call(graph, aten.sigmoid.default, _call(graph, aten.mul.Tensor, node.args[0], 2.0))
            result = _call(graph, aten.sub.Tensor, _call(graph, aten.mul.Tensor, sigmoid, 2.0), 1.0)
        result.meta = node.meta
        node.replace_all_uses_with(result)
        graph.graph.erase_node(node)


def _call(graph: fx.GraphModule, operation: Any, *arguments: Any) -> fx.Node:
    return graph.graph.call_function(operation, arguments)


def narrow_products(graph: fx.GraphModule, widest: int) -> None:
    """Matrix products with at most ``widest`` rows, columns or terms, written as sums, which fuse with what is around them."""
    for node in list(graph.graph.nodes):
        bias, x, w = _factors(node)
        if x is None or node.kwargs:
            continue
        rows, terms, columns = *x.meta["val"].shape[-2:], w.meta["val"].shape[-1]
        if min(rows, terms, columns) > widest:
            continue
        with graph.graph.inserting_before(node):
            if terms <= widest:
                result = _sum_of_outer_products(graph, x, w, terms)
            elif columns <= rows:
                result = _columns(graph, x, w, columns)
            else:
                result = _rows(graph, x, w, rows)
            if bias is not None:
                result = _call(graph, aten.add.Tensor, result, bias)
        result.meta = node.meta
        node.replace_all_uses_with(result)
        graph.graph.erase_node(node)


def _factors(node: fx.Node) -> tuple[Any, Any, Any]:
    """What a product adds to, and its two factors."""
    if node.target in (aten.mm.default, aten.bmm.default):
        return None, node.args[0], node.args[1]
    if node.target in (aten.addmm.default, aten.baddbmm.default):
        return node.args[0], node.args[1], node.args[2]
    return None, None, None


def _sum_of_outer_products(graph: fx.GraphModule, x: fx.Node, w: fx.Node, terms: int) -> fx.Node:
    total = None
    for i in range(terms):
        column, row = _call(graph, aten.slice.Tensor, x, -1, i, i + 1), _call(graph, aten.slice.Tensor, w, -2, i, i + 1)
        product = _call(graph, aten.mul.Tensor, column, row)
        total = product if total is None else _call(graph, aten.add.Tensor, total, product)
    assert total is not None
    return total


def _columns(graph: fx.GraphModule, x: fx.Node, w: fx.Node, columns: int) -> fx.Node:
    found = []
    for i in range(columns):
        column = _call(graph, aten.unsqueeze.default, _call(graph, aten.select.int, w, -1, i), -2)
        found.append(_call(graph, aten.sum.dim_IntList, _call(graph, aten.mul.Tensor, x, column), [-1], True))
    return found[0] if columns == 1 else _call(graph, aten.cat.default, found, -1)


def _rows(graph: fx.GraphModule, x: fx.Node, w: fx.Node, rows: int) -> fx.Node:
    found = []
    for i in range(rows):
        row = _call(graph, aten.unsqueeze.default, _call(graph, aten.select.int, x, -2, i), -1)
        found.append(_call(graph, aten.sum.dim_IntList, _call(graph, aten.mul.Tensor, w, row), [-2], True))
    return found[0] if rows == 1 else _call(graph, aten.cat.default, found, -2)
