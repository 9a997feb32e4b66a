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
