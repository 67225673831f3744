"""Where a graph computes what another graph computes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, fx
from tracing import traced

from flambeau_inductor.rewrite.subgraph import find, results_of

aten = torch.ops.aten


def pattern_of(function: Callable[..., Any], *inputs: Tensor) -> fx.Graph:
    return traced(function, *inputs).graph


def found(pattern: fx.Graph, graph: fx.Graph, *, loosely: bool = False) -> list[list[str]]:
    """The operands of every match, by name."""
    last = results_of(pattern)[-1]
    roots = graph.find_nodes(op="call_function", target=last.target)
    operands = pattern.find_nodes(op="placeholder")
    return [
        [one.nodes[node].name for node in operands] for root in roots for one in find(pattern, root, loosely=loosely)
    ]


X, Y = torch.ones(3, 4), torch.ones(3, 4)


def test_calls_and_numbers_agree() -> None:
    pattern = pattern_of(lambda a, b: (torch.sin(a) * 2 + b,), X, Y)
    graph = traced(lambda x, y: (torch.sin(x) * 2 + y, torch.sin(y) * 3 + x, torch.cos(x) * 2 + y), X, Y).graph
    assert len(found(pattern, graph)) == 1
    assert len(found(pattern, graph, loosely=True)) == 2


@pytest.mark.parametrize("number", [0.0, -0.0, math.nan])
def test_zeros_of_different_sign_differ_and_nans_do_not(number: float) -> None:
    pattern = pattern_of(lambda a: (a * number + 1,), X)
    graph = traced(lambda x: tuple(x * n + 1 for n in (0.0, -0.0, math.nan)), X).graph
    assert len(found(pattern, graph)) == 1


def test_an_operand_is_one_node() -> None:
    """Where the pattern reads one twice; two operands of the pattern may be one node."""
    square = pattern_of(lambda a: (a * a,), X)
    product = pattern_of(lambda a, b: (a * b,), X, Y)
    graph = traced(lambda x, y: (x * y, x * x), X, Y).graph
    assert len(found(square, graph)) == 1
    assert len(found(product, graph)) == 2


def test_results_that_share_an_operand_alone() -> None:
    """The last is found first, the others among the readers of what it reads, further on too."""
    pattern = pattern_of(lambda a: (torch.exp(torch.sin(a)), torch.cos(a)), X)
    both = traced(lambda x, y: (torch.cos(x), torch.exp(torch.sin(x)), torch.cos(y)), X, Y).graph
    apart = traced(lambda x, y: (torch.cos(x), torch.exp(torch.sin(y))), X, Y).graph
    assert len(found(pattern, both)) == 1
    assert not found(pattern, apart)


def test_parts_of_several_results() -> None:
    pattern = pattern_of(lambda a: (torch.sort(a, -1)[0] + 1,), X)
    graph = traced(lambda x: (torch.sort(x, -1)[0] + 1, torch.sort(x, -1)[1] + 1, torch.sort(x, 0)[0] + 1), X).graph
    assert len(found(pattern, graph)) == 1


def test_lists_of_operands() -> None:
    pattern = pattern_of(lambda a, b: (torch.cat([a, b], 1),), X, Y)
    graph = traced(lambda x, y: (torch.cat([x, y], 1), torch.cat([x, y], 0), torch.cat([x, y, x], 1)), X, Y).graph
    assert len(found(pattern, graph)) == 1


def test_symbolic_numbers_are_compared_as_expressions() -> None:
    """No guard comes of it."""
    graph = traced(lambda x: (x.view(-1, x.shape[0]).sin(),), torch.ones(3, 5), mode="symbolic").graph
    environment = graph.find_nodes(op="placeholder")[0].meta["val"].shape[0].node.shape_env
    (root,) = graph.find_nodes(op="call_function", target=aten.sin.default)
    guards = len(environment.guards)
    assert len(list(find(graph, root))) == 1
    assert len(environment.guards) == guards
