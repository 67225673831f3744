"""Graphs of wrapper tensors become graphs of plain ones, and are called as before."""

from __future__ import annotations

from operator import getitem

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx import Graph, GraphModule
from torch.utils import _pytree as pytree

from flambeau_autograd import UnsupportedGraph, compile_joint, flatten, prepare
from flambeau_autograd.wrappers.forms import form_of


class Pair(Tensor):
    """Two tensors that every operation goes through."""

    @staticmethod
    def __new__(cls, a, b):
        return Tensor._make_wrapper_subclass(cls, a.shape, strides=a.stride(), dtype=a.dtype)

    def __init__(self, a, b):
        self.a, self.b = a, b

    def __tensor_flatten__(self):
        return ["a", "b"], None

    @staticmethod
    def __tensor_unflatten__(inner, meta, size, stride):
        return Pair(inner["a"], inner["b"])

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        sides = [func(*pytree.tree_map_only(Pair, lambda t, s=s: getattr(t, s), args), **(kwargs or {})) for s in "ab"]
        return pytree.tree_map(lambda a, b: Pair(a, b) if isinstance(a, Tensor) else a, *sides)


def pair(*sizes, grad=False):
    made = Pair(torch.randn(*sizes), torch.randn(*sizes))
    return made.requires_grad_() if grad else made


def faked(mode, value):
    if not isinstance(value, Tensor):
        return value
    if isinstance(value, Pair):
        made = Pair(mode.from_tensor(value.a), mode.from_tensor(value.b))
        return made.requires_grad_() if value.requires_grad else made
    return mode.from_tensor(value)


def captured(function, *args):
    """The graph of a function of one node for each call of torch that it makes, and fakes of its arguments."""
    mode, graph = FakeTensorMode(), Graph()
    fakes = [faked(mode, arg) for arg in args]
    nodes = [graph.placeholder(f"arg_{i}") for i in range(len(args))]
    for node, fake in zip(nodes, fakes):
        node.meta["val"] = fake
    with mode:
        node = graph.call_function(function, tuple(nodes))
        node.meta["val"] = function(*fakes)
        results = node.meta["val"] if isinstance(node.meta["val"], tuple) else (node.meta["val"],)
        outputs = [graph.call_function(getitem, (node, i)) for i in range(len(results))] if len(results) > 1 else [node]
        for output, result in zip(outputs, results):
            output.meta["val"] = result
    graph.output(tuple(outputs))
    return GraphModule(torch.nn.Module(), graph), fakes


def compiled(function, *args):
    gm, fakes = captured(function, *args)
    return compile_joint(gm, fakes, forward_compiler=lambda graph, inputs: graph.forward)


def square(x):
    return (x * x).exp()


def test_the_compiled_graphs_are_of_plain_tensors():
    gm, fakes = captured(square, pair(3, grad=True))
    flat = flatten(gm, fakes)
    prepared = prepare(flat.graph, flat.inputs)
    for half in (prepared.forward, prepared.backward):
        kinds = {type(v) for node in half.graph.nodes if isinstance(v := node.meta.get("val"), Tensor)}
        assert Pair not in kinds and kinds
        assert all(isinstance(n.target, torch._ops.OpOverload) for n in half.graph.nodes if n.op == "call_function")
    assert (prepared.signature.inputs, len(prepared.signature.outputs)) == (2, 2)


def test_a_graph_without_wrappers_is_left_alone():
    assert flatten(*captured(square, torch.ones(3))) is None


def test_gradients_are_wrappers():
    x = pair(3, grad=True)
    (y,) = compiled(square, x)(x)
    assert type(y) is Pair and y.requires_grad and not y.a.requires_grad
    y.backward(Pair(torch.ones(3), torch.full((3,), 2.0)))
    assert type(x.grad) is Pair
    assert torch.allclose(x.grad.a, 2 * x.a * y.a) and torch.allclose(x.grad.b, 4 * x.b * y.b)


def test_the_gradient_of_a_plain_tensor_beside_wrappers_is_one():
    x, w = pair(3), torch.randn(3, requires_grad=True)
    (y,) = compiled(torch.mul, x, w)(x, w)
    y.backward(Pair(torch.ones(3), torch.ones(3)))
    assert type(w.grad) is Pair and torch.equal(w.grad.b, x.b)


def test_a_gradient_of_another_class_is_an_error():
    x = pair(3, grad=True)
    (y,) = compiled(square, x)(x)
    with pytest.raises(UnsupportedGraph, match="is a Tensor that is made otherwise"):
        y.backward(torch.ones(3))


def test_a_second_derivative():
    x = pair(3, grad=True)
    (y,) = compiled(lambda x: (x * x * x).sum(), x)(x)
    (grad,) = torch.autograd.grad(y, [x], create_graph=True)
    grad.sum().backward()
    assert torch.allclose(x.grad.a, 6 * x.a) and torch.allclose(x.grad.b, 6 * x.b)


def test_writes_are_counted_for_the_wrapper():
    x = pair(3)
    before = x.a.clone()
    gm, fakes = captured(lambda x: x.mul_(2) + 1, x)
    call = compile_joint(gm, fakes, forward_compiler=lambda graph, inputs: graph.forward)
    (y,) = call(x)
    assert torch.equal(x.a, before * 2) and torch.equal(y.a, before * 2 + 1)
    assert (x._version, x.a._version) == (1, 0)


def test_a_write_to_what_eager_saves_is_an_error():
    x = pair(3, grad=True)
    z = x * 1
    (y,) = compiled(square, z)(z)
    with torch.no_grad():
        z.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()
    (y,) = compiled(torch.sum, x)(x)
    with torch.no_grad():
        x.mul_(2)
    y.backward(Pair(torch.ones(()), torch.ones(())))
    assert torch.equal(x.grad.a, torch.ones(3))


def test_results_that_the_caller_holds_already():
    x = pair(3)
    given, first, second = compiled(lambda x: (lambda y: (x, y, y))(x * 2), x)(x)
    assert given is x and first is second
    with pytest.raises(UnsupportedGraph, match="a view of another"):
        flatten(*captured(lambda x: x[:2], x))


def test_forms():
    outer = Pair(pair(2), pair(2))
    form = form_of(outer)
    parts = form.take_apart(outer)
    assert len(parts) == 4 and parts[3] is outer.b.b
    again = form.assemble(iter(parts))
    assert type(again.a) is Pair and again.b.a is outer.b.a
    assert form.fits(outer) and not form.fits(pair(2)) and not form.fits(torch.ones(2))
