"""Graphs that call transforms of `torch.func` over bodies: what is recorded are the operations that the transforms make of the body's."""

from __future__ import annotations

import operator
from functools import partial

import pytest
import torch
from lifting import as_tuple, check_gradient, check_same, clones, compile_graph, fakes, lift_function, scalar_loss
from torch.fx import Graph, GraphModule
from torch.torch_version import TorchVersion
from torch.utils import _pytree as pytree

from flambeau_autograd import prepare
from flambeau_autograd.errors import UnsupportedGraph


def calling(transform, body, inputs):
    """A graph of one call, `transform(body)(*inputs)`; the body is a module inside of it."""
    samples = _arguments_of(transform, body, inputs)
    root = torch.nn.Module()
    root.body = lift_function(body, samples)
    graph = Graph()
    operands = [graph.placeholder(f"x{i}") for i in range(len(inputs))]
    node = graph.call_function(_apply(transform), (graph.get_attr("body"), *operands))
    with torch.random.fork_rng():
        count = len(pytree.tree_leaves(transform(lambda *args: as_tuple(body(*args)))(*inputs)))
    graph.output(tuple(graph.call_function(operator.getitem, (node, i)) for i in range(count)))
    return GraphModule(root, graph)


def _apply(transform):
    return lambda module, *operands: tuple(pytree.tree_leaves(transform(module)(*operands)))


def _arguments_of(transform, body, inputs):
    """What the body is called with, as plain tensors."""
    seen = []

    def spy(*args):
        seen[:] = [torch.zeros(arg.shape, dtype=arg.dtype) for arg in args]
        return as_tuple(body(*args))

    with torch.random.fork_rng():
        transform(spy)(*inputs)
    return seen


def first(transform):
    """Of a transform that wants a function of one result, over bodies, which give tuples."""
    return lambda module: transform(lambda *args: module(*args)[0])


def check(transform, body, inputs, dynamic=False):
    """The compiled graph beside the transform in eager: results, gradients, the numbers drawn."""
    gm = calling(transform, body, inputs)
    compiled = compile_graph(gm, inputs, dynamic=dynamic)
    ours, theirs = clones(inputs), clones(inputs)
    torch.manual_seed(3)
    got, drawn = as_tuple(compiled(*ours)), torch.random.get_rng_state()
    torch.manual_seed(3)
    want = tuple(pytree.tree_leaves(transform(lambda *args: as_tuple(body(*args)))(*theirs)))
    assert drawn.equal(torch.random.get_rng_state())
    assert len(got) == len(want)
    for mine, wanted in zip(got, want, strict=True):
        check_same(mine, wanted)
    if (loss := scalar_loss(want)) is not None:
        loss.backward()
        scalar_loss(got).backward()
        for mine, wanted in zip(ours, theirs, strict=True):
            check_gradient(mine.grad, wanted.grad)
    assert not any("batch" in str(node.target) for node in prepare(gm, fakes(inputs, dynamic)).forward.graph.nodes)


vmap, func = torch.vmap, torch.func
PROGRAMS = {
    "vmap": (partial(vmap, in_dims=(1, None), out_dims=1), lambda a, b: a * b.sum(), [(3, 5), (4,)]),
    "vmap in chunks": (partial(vmap, chunk_size=2), lambda a: a.softmax(0).cumsum(0), [(5, 4)]),
    "vmap of vmap": (lambda f: vmap(vmap(f, (None, 0)), (0, None)), lambda a, b: (a - b).square().sum(), [(4, 3), (5, 3)]),
    "writes": (vmap, lambda a: a.clone().mul_(2).add_(a), [(4, 3)]),
    "writes to views": (first(func.grad), lambda a: _written(a).square().sum(), [(4, 3)]),
    "grad": (first(func.grad), lambda a, b: (a * b).sin().sum(), [(4, 3), (3,)]),
    "grad twice, each": (lambda f: vmap(func.grad(func.grad(lambda a: f(a)[0]))), lambda a: a.sin() * a, [(4,)]),
    "grad and value": (first(partial(func.grad_and_value, argnums=(0, 1))), lambda a, b: (a @ b).tanh().sum(), [(4, 3), (3, 2)]),
    "without grad inside": (first(func.grad), lambda a: _half_detached(a).sum(), [(4,)]),
    "jacrev": (first(func.jacrev), lambda a: (a**2).cumsum(0), [(4,)]),
    "jacrev in chunks": (first(partial(func.jacrev, chunk_size=3)), lambda a: (a**2).cumsum(0), [(4,)]),
    "jacfwd": (first(partial(func.jacfwd, argnums=1)), lambda a, b: a * b.exp(), [(3,), (3,)]),
    "hessian": (first(func.hessian), lambda a: (a**4).sum() + a.prod(), [(3,)]),
    "vjp": (lambda f: lambda a, v: func.vjp(f, a)[1]((v,)), lambda a: a.sin().outer(a), [(3,), (3, 3)]),
    "jvp": (lambda f: lambda a, v: func.jvp(f, (a,), (v,)), lambda a: (a.T * 2) @ a / 3 - 1, [(3, 3), (3, 3)]),
    "hvp": (lambda f: lambda a, v: func.jvp(first(func.grad)(f), (a,), (v,)), lambda a: (a.sin() * a.cos()).sum(), [(4,), (4,)]),
    "per sample": (lambda f: vmap(first(func.grad)(f), (None, 0)), lambda w, x: (w @ x).logsumexp(0), [(2, 3), (4, 3)]),
}  # fmt: skip


def _written(a):
    copy = a.clone()
    copy[0].add_(1)
    copy[1:].mul_(3)
    return copy


def _half_detached(a):
    return a * a.sin().detach()


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("differentiated", [False, True])
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_transform_is_what_it_makes_of_the_operations(name, differentiated, dynamic):
    transform, body, shapes = PROGRAMS[name]
    torch.manual_seed(0)
    check(transform, body, [torch.randn(shape, requires_grad=differentiated) for shape in shapes], dynamic)


@pytest.mark.parametrize("randomness", ["different", "same"])
@pytest.mark.parametrize(
    "body",
    [
        lambda a: a + torch.randn_like(a),
        lambda a: torch.nn.functional.dropout(a, 0.5),
        lambda a: a * torch.empty_like(a).uniform_(),
        lambda a: a[torch.randperm(6)],
    ],
)
def test_samples_draw_the_numbers_that_eager_draws(body, randomness):
    check(partial(vmap, randomness=randomness), body, [torch.randn(4, 6, requires_grad=True)])


def test_what_a_transform_refuses_is_refused():
    """Eager then says why."""
    x = torch.randn(4, 6)
    gm = calling(partial(vmap, randomness="different"), lambda a: a + torch.rand(6), [x])
    (node,) = gm.graph.find_nodes(op="call_function", target=gm.graph.output_node().args[0][0].args[0].target)
    node.target = _apply(vmap)
    with pytest.raises(UnsupportedGraph, match="randomness"):
        prepare(gm, fakes([x]))


@pytest.mark.skipif(
    TorchVersion(torch.__version__) < "2.12", reason="torch compares whole tensors there, which runs in eager"
)
def test_a_body_follows_the_rules_of_the_graph_around_it():
    """A check that eager makes of values, and fakes leave out, is recorded in a body too."""
    x, q = torch.randn(4), torch.tensor(0.3)
    transform, body = first(func.grad), lambda a, b: torch.quantile(a, b)
    compiled = compile_graph(calling(transform, body, [x, q]), [x, q])
    check_same(compiled(x, q)[0], func.grad(body)(x, q))
    with pytest.raises(RuntimeError, match="q values must be in the range"):
        compiled(x, q + 1)


def test_a_result_with_a_history_of_its_own_is_refused():
    def function(x):
        return x.detach().requires_grad_() * 2

    graph = Graph()
    graph.output((graph.call_function(function, (graph.placeholder("x"),)),))
    with pytest.raises(UnsupportedGraph, match="requires grad, and no input does"):
        prepare(GraphModule(torch.nn.Module(), graph), fakes([torch.randn(3)]))


def test_a_failure_below_transforms_leaves_the_thread_as_it_was():
    """Torch has no fakes for this; an error worded below functorch kept it switched off as long as its traceback lived."""

    def body(a):
        return (a.sin() * 2).prod()

    def transform(f):
        return vmap(lambda p: func.hessian(lambda a: f(a)[0])(p).diagonal().sum())

    x = torch.randn(5, 3)
    gm = calling(transform, body, [x])
    before = [str(keys) for keys in _dispatch_state()]
    errors = []
    try:
        prepare(gm, fakes([x]))
    except UnsupportedGraph as error:
        errors.append(error)
    assert [str(keys) for keys in _dispatch_state()] == before
    want = transform(lambda a: (body(a),))(x)
    errors.clear()
    torch.testing.assert_close(transform(lambda a: (body(a),))(x), want)


def _dispatch_state():
    return torch._C._dispatch_tls_local_include_set(), torch._C._dispatch_tls_local_exclude_set()
