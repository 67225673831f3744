"""Graphs within graphs: what a body reads becomes its inputs, in one order for all bodies of an operator."""

from __future__ import annotations

import pytest
import torch

from flambeau_capture.config import Config
from flambeau_capture.graph.builder import GraphBuilder
from flambeau_capture.signals import GraphBreak


@pytest.fixture
def builder():
    return GraphBuilder(Config(), lambda: ())


def made(builder, size):
    fake = builder.fake_mode.from_tensor(torch.ones(size))
    node = builder.graph.placeholder(f"x{size}")
    node.meta["val"] = fake
    return node, fake


def summed(builder, one, other):
    return builder.call("call_function", torch.add, (one[0], other[0]), {}, ((one[1], other[1]), {}))


def test_outer_nodes_become_inputs_of_each_body_between(builder):
    """Once each; the operator's operands are nodes of the graph around the body."""
    x = made(builder, 3)
    with builder.body() as outer, builder.body() as inner:
        result = summed(builder, x, x)
        assert result[0].graph is inner.graph
    (lifted,) = outer.lifted.values()
    assert list(outer.lifted) == [x[0]]
    assert list(inner.lifted) == [lifted]
    assert [node.op for node in inner.graph.nodes] == ["placeholder", "call_function"]


def test_a_node_of_a_body_is_unknown_outside(builder):
    """It would be computed in another graph, or never."""
    x = made(builder, 3)
    with builder.body():
        result = summed(builder, x, x)
    with pytest.raises(GraphBreak, match="outside"):
        summed(builder, x, result)


def test_bodies_of_one_operator_take_the_same_operands(builder):
    """After what they are handed, in the order asked for; what one does not read is an input without use."""
    x, y = made(builder, 3), made(builder, 3)
    with builder.body() as body:
        handed = body.bind(x[1])
        result = summed(builder, (handed, x[1]), y)
    body.arrange([x[0], y[0]])
    module = body.finish((result[0],))
    names = [node for node in module.graph.nodes if node.op == "placeholder"]
    assert names == [handed, body.lifted[x[0]], body.lifted[y[0]]]
    assert torch.equal(module(torch.ones(3), torch.zeros(3), torch.ones(3))[0], torch.full((3,), 2.0))


def test_derived_values_stand_where_their_arguments_do(builder):
    """A size that a body asks first is a node of the graph around it."""
    x = made(builder, 3)
    with builder.body() as body:
        size = builder.derive(torch.Tensor.dim, (x[0],), 1)
        assert size.graph is builder.root
        assert builder.here(size).graph is body.graph


def test_writes_and_draws_are_noted(builder):
    """Writes to what the body made are its own."""
    x = made(builder, 3)
    with builder.body() as body:
        own = summed(builder, x, x)
        builder.call("call_method", "add_", (own[0], 1), {}, ((own[1], 1), {}))
        assert not body.region.writes
        builder.call("call_method", "add_", (x[0], 1), {}, ((x[1], 1), {}))
    assert body.region.writes
