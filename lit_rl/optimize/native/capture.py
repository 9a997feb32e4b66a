"""A loss and its gradient as one pure graph of tensor operations, which reads the weights where they lie.

``make_fx`` runs the loss once, on real tensors, and writes down what happens. Tensors that the loss reads through its module
(weights, targets, running statistics) become inputs of the graph, so that it sees them as they are at every call.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, fx, nn
from torch.fx.experimental.proxy_tensor import make_fx

from lit_rl.algorithms.base import Loss
from lit_rl.functional.tree import tree_leaves, tree_map
from lit_rl.optimize.gradient import gradient

aten = torch.ops.aten


class Uncapturable(Exception):
    """The loss is no pure function of tensors; the message says why, in a few words."""


class Place(int):
    """Where a tensor of aux stands among the outputs."""


class Captured(NamedTuple):
    """A graph from the leaves of the loss's arguments and the live tensors to ``[flat gradient, *metrics, *aux]``."""

    graph: fx.GraphModule
    live: list[Tensor]
    metrics: list[str]
    aux: Any  # with the Place of each tensor


def capture(loss_fn: Callable[..., Loss], parameters: Sequence[nn.Parameter], tensors: Sequence[Any]) -> Captured:
    """The graph of :func:`lit_rl.optimize.gradient.gradient` on arguments of these shapes.

    Raises:
        Uncapturable: it draws random numbers, reads a value, changes what it reads, is given something else than tensors, or runs
            a fused recurrent kernel.
    """
    leaves = tree_leaves(tuple(tensors))
    if not leaves:
        raise Uncapturable("it is given no tensors")
    if any(not isinstance(x, Tensor) for x in leaves):
        raise Uncapturable("it is given something else than tensors")
    shape: dict[str, Any] = {}

    def flat_gradient(*leaves: Tensor) -> list[Tensor]:
        given = iter(leaves)
        found = gradient(loss_fn, parameters, tree_map(lambda _: next(given), tuple(tensors)))
        outputs = [found.flat, *found.metrics.values()]

        def place(x: Any) -> Any:
            if not isinstance(x, Tensor):
                return x
            outputs.append(x)
            return Place(len(outputs) - 1)

        shape["aux"], shape["metrics"] = tree_map(place, found.aux), list(found.metrics)
        return outputs

    try:
        graph: fx.GraphModule = make_fx(flat_gradient, tracing_mode="real")(*leaves)
    except Exception as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise Uncapturable(f"{type(error).__name__}: {reason[:120]}") from error
    live = _lift(graph)
    _check_pure(graph)
    _tidy(graph)
    _own_outputs(graph)
    graph.recompile()
    return Captured(graph, live, shape["metrics"], shape["aux"])


def _lift(graph: fx.GraphModule) -> list[Tensor]:
    """Make inputs of the tensors that the graph holds, and hand them back."""
    live: list[Tensor] = []
    inputs: dict[int, fx.Node] = {}
    last = [node for node in graph.graph.nodes if node.op == "placeholder"][-1]
    for node in list(graph.graph.nodes):
        if node.op != "get_attr":
            continue
        tensor: Any = functools.reduce(getattr, node.target.split("."), graph)
        if id(tensor) not in inputs:
            with graph.graph.inserting_after(last):
                last = inputs[id(tensor)] = graph.graph.placeholder(f"live_{len(live)}")
            live.append(tensor.detach())
            last.meta["val"] = live[-1]
        node.replace_all_uses_with(inputs[id(tensor)])
        graph.graph.erase_node(node)
    return live


def _check_pure(graph: fx.GraphModule) -> None:
    for node in graph.graph.nodes:
        if not isinstance(node.target, torch._ops.OpOverload):
            continue
        if torch.Tag.nondeterministic_seeded in node.target.tags:
            raise Uncapturable("it draws random numbers")
        if "_rnn" in str(node.target):
            raise Uncapturable(f"it runs {node.target}, a fused kernel")
        for argument, value in zip(node.target._schema.arguments, node.args, strict=False):
            written = argument.alias_info is not None and argument.alias_info.is_write
            if written and isinstance(value, fx.Node) and value.op == "placeholder":
                raise Uncapturable("it changes a tensor that it is given or reads")


def _tidy(graph: fx.GraphModule) -> None:
    """Leave out what only autograd needed."""
    for node in list(graph.graph.nodes):
        if node.op != "call_function":
            continue
        source: Any = node.args[0] if node.args else None
        if node.target in (aten.detach.default, aten.alias.default, aten.lift_fresh_copy.default):
            node.replace_all_uses_with(source)
            graph.graph.erase_node(node)
        elif node.target is aten.t.default and source.target is aten.t.default:
            node.replace_all_uses_with(source.args[0])
    graph.graph.eliminate_dead_code()
    graph.graph.lint()
    graph.recompile()


def _own_outputs(graph: fx.GraphModule) -> None:
    """Copy the inputs that are handed back as they are: outputs must not share memory with what changes later."""
    (output,) = graph.graph.find_nodes(op="output")
    with graph.graph.inserting_before(output):
        output.args = (
            [
                graph.graph.call_function(aten.clone.default, (x,)) if x.op == "placeholder" else x
                for x in output.args[0]
            ],
        )
