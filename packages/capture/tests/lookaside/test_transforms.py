"""Transforms of `torch.func` are calls in one graph, over bodies, and do what they do in plain Python; what eager refuses, eager refuses."""

from __future__ import annotations

import functools
import operator
import warnings
from collections import namedtuple

import pytest
import torch
from both_ways import assert_equal, eager, outcome, recorded
from torch.func import functional_call, grad, grad_and_value, hessian, jacfwd, jacrev, jvp, linearize, vjp, vmap

from flambeau_capture import GraphBreakError, make_region

Pair = namedtuple("Pair", "a b")
MODEL = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 3))
NORM = torch.nn.BatchNorm1d(3)
KEPT = []
FACTOR = 2.0
with warnings.catch_warnings(action="ignore"):
    jvp(
        torch.sin, (torch.ones(1),), (torch.ones(1),)
    )  # torch compiles formulas for the first, and warns once that its compiler is old
scaled = vmap(lambda row: row * FACTOR)
gradient = grad(lambda x: (x * FACTOR).sin().sum())
jacobian = jacrev(lambda x: (x * FACTOR).cumsum(0))


class Cube(torch.autograd.Function):
    @staticmethod
    def forward(x):
        return x**3

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def backward(ctx, g):
        return 3 * g * ctx.saved_tensors[0] ** 2

    @staticmethod
    def jvp(ctx, tangent):
        return 3 * tangent * ctx.saved_tensors[0] ** 2

    @staticmethod
    def vmap(info, in_dims, x):
        return Cube.apply(x), in_dims[0]


class Noted(Cube):
    @staticmethod
    def vmap(info, in_dims, x):
        KEPT.append(info.batch_size)
        return Cube.apply(x), in_dims[0]


def parameters():
    return {name: value.detach() for name, value in MODEL.named_parameters()}


def pulled(function, *primals):
    out, pull = vjp(function, *primals)
    return out, pull(out), pull(out * 2)


PROGRAMS = {
    "a function in C": lambda x, y: vmap(torch.dot)(x, x),
    "identity": lambda x, y: (vmap(lambda row: row)(x), vmap(lambda row: row.view(-1))(x)),
    "dimensions": lambda x, y: vmap(lambda a, b: a * b.sum(), in_dims=(1, None), out_dims=1)(x, y),
    "trees": lambda x, y: vmap(
        lambda d, pair: {"o": [d["a"] * pair[0], Pair(pair[1], d["a"])]},
        in_dims=({"a": 0}, (None, None)), out_dims={"o": [0, Pair(0, 1)]},
    )({"a": x}, (y, y + 1)),
    "numbers and keywords": lambda x, y: vmap(lambda a, k, s=None: a * k * s, (0, None))(x, 2.5, s=y),
    "chunks": lambda x, y: vmap(lambda a: a.cumsum(0), chunk_size=2)(x),
    "nested": lambda x, y: vmap(vmap(lambda a, b: a * b.sum(), (None, 0)), (0, None))(x, x * 2),
    "an element of each": lambda x, y: vmap(lambda a, i: a[i])(x, torch.arange(4) % 3),
    "the best two": lambda x, y: vmap(lambda a: a.topk(2))(x),
    "a result for all": lambda x, y: vmap(lambda a: (a * 2, y), out_dims=(0, None))(x),
    "gradient": lambda x, y: grad(lambda a: (a * y).sin().sum())(x),
    "arguments": lambda x, y: grad(lambda a, b, k=1: (a * b * k).sum(), argnums=(1, 0))(x, y, k=3),
    "the last argument": lambda x, y: grad(lambda a, b: (a * b).sum(), argnums=-1)(x, y),
    "a tree of arguments": lambda x, y: grad(lambda p: (p["a"] * p["b"][0]).sum())({"a": x, "b": (y,)}),
    "beside the result": lambda x, y: grad_and_value(lambda a: ((a * y).sum(), (a, y, {"k": a * 2})), has_aux=True)(x),
    "gradient of gradient": lambda x, y: vmap(grad(grad(lambda a: a.sin() * a)))(y),
    "without gradients": lambda x, y: torch.no_grad()(lambda: grad(lambda a: (a * a.detach()).sum())(x))(),
    "cotangents": lambda x, y: pulled(lambda a: a.sin() * y, x),
    "cotangents of a tree": lambda x, y: vjp(lambda a, b: {"u": a * b, "v": a.sum()}, x, y)[1]({"u": x, "v": y.sum()}),
    "cotangents of a batch": lambda x, y: vmap(vjp(lambda a: a.sin(), y)[1])(torch.eye(3)),
    "tangents": lambda x, y: jvp(lambda a, b: ({"u": a * b}, a.sum()), (x, y), (x * 2, y + 1)),
    "tangents, and beside": lambda x, y: jvp(lambda a: (a * 2, a * 3), (x,), (x,), has_aux=True),
    "linearized": lambda x, y: (lambda out, push: (out, push(x), push(x * y)))(*linearize(lambda a: a.sin() * y, x)),
    "linearized at a tree": lambda x, y: (lambda out, push: (out, push({"k": y}, x)))(
        *linearize(lambda a, b: ({"u": a["k"] * b}, b.sum(0)), {"k": y}, x)
    ),
    "jacrev": lambda x, y: jacrev(lambda p, q: {"u": p["a"] * q, "v": [q.sum()]}, argnums=(0, 1))({"a": y}, y * 2),
    "jacfwd": lambda x, y: jacfwd(lambda p, q: (p * q, (q * 1,)), has_aux=True)(y, y * 2),
    "hessian": lambda x, y: hessian(lambda p: (p["a"] ** 3).sum())({"a": y}),
    "jacfwd of jacrev": lambda x, y: vmap(jacfwd(jacrev(lambda a: a.sin().pow(3).sum())))(x),
    "a module": lambda x, y: (vmap(MODEL)(x), vmap(grad(lambda a: MODEL(a).sum()))(x)),
    "other parameters": lambda x, y: grad(lambda p: functional_call(MODEL, p, (x,)).sum())(parameters()),
    "made outside": lambda x, y: (scaled(x), gradient(x), jacobian(y)),
    "a function of one's own": lambda x, y: (vmap(Cube.apply)(x), grad(lambda a: Cube.apply(a).sum())(x)),
    "a function's tangents": lambda x, y: jvp(Cube.apply, (x,), (x,)),
    "what it is called": lambda x, y: (lambda g: (g(x), g.__name__, g.__wrapped__ is torch.relu))(vmap(torch.relu)),
    "in a loop": lambda x, y: functools.reduce(lambda a, _: a - 0.1 * grad(lambda b: (b * y).square().sum())(a), range(3), x),
    "facts of samples": lambda x, y: vmap(lambda a: a * a.shape[0] + a.numel() + a.dim())(x),
    "the grad mode": lambda x, y: torch.no_grad()(
        lambda: (grad(lambda a: (a * torch.is_grad_enabled()).sum())(x), vmap(lambda a: a * torch.is_grad_enabled())(x))
    )(),
    "writes to new tensors": lambda x, y: vmap(lambda a: a.clone().mul_(2).add_(a))(x),
}  # fmt: skip


def arguments(differentiated):
    torch.manual_seed(0)
    return [torch.randn(*shape, requires_grad=differentiated) for shape in ((4, 3), (3,))]


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("differentiated", [False, True])
@pytest.mark.parametrize("name", PROGRAMS)
def test_as_in_plain_python(name, differentiated, dynamic):
    function, graphs = PROGRAMS[name], []
    region = recorded(function, graphs, fullgraph=True, dynamic=dynamic)
    for _ in range(2):
        inputs = arguments(differentiated)
        assert_equal([region(*inputs), *inputs], [function(*inputs), *inputs])
    assert len(graphs) == 1


def test_the_graph_holds_functions_of_torch_alone():
    """Whoever is given the graph can run it, print it, and name what it calls."""
    graphs = []
    w = torch.randn(3)
    recorded(lambda x: vmap(grad(lambda a: (a * w).sum()))(x), graphs, fullgraph=True)(torch.randn(4, 3))
    targets = [n.target for part in graphs[0].modules() if hasattr(part, "graph") for n in part.graph.nodes]
    assert {torch.func.vmap, torch.func.grad_and_value, functools.partial, operator.call} <= set(targets)
    assert not any("flambeau" in str(getattr(target, "__module__", "")) for target in targets)


RAISING = {
    "no scalar": lambda x, y: grad(lambda a: a * 2)(x),
    "no such dimension": lambda x, y: vmap(lambda a: a, in_dims=3)(x),
    "batches of two sizes": lambda x, y: vmap(lambda a, b: a + b)(x, torch.ones(5, 3)),
    "another structure": lambda x, y: vmap(lambda a: a, in_dims=([0],))((x,)),
    "nothing to batch": lambda x, y: vmap(lambda a: a, in_dims=None)(x),
    "numbers at random": lambda x, y: vmap(lambda a: a + torch.rand(3))(x),
    "a write to what all share": lambda x, y: vmap(lambda a: y.clone().add_(a))(x),
    "a value of a sample": lambda x, y: vmap(lambda a: a * a.sum().item())(x),
    "a branch on a sample": lambda x, y: vmap(lambda a: a if a.sum() > 0 else -a)(x),
    "no tensor beside": lambda x, y: grad(lambda a: (a.sum(), 3), has_aux=True)(x),
    "no pair": lambda x, y: grad(lambda a: a.sum(), has_aux=True)(x),
    "whole numbers": lambda x, y: grad(lambda a: a.sum())(torch.arange(3)),
    "no such argument": lambda x, y: grad(lambda a: a.sum(), argnums=1)(x),
    "an argument twice": lambda x, y: grad(lambda a: a.sum(), argnums=(0, 0))(x),
    "other cotangents": lambda x, y: vjp(lambda a: (a, a * 2), x)[1](x),
    "other tangents": lambda x, y: jvp(lambda a: a, (x,), (y,)),
    "tangents of another shape": lambda x, y: linearize(torch.sin, x)[1](y),
    "tangents of another type": lambda x, y: linearize(torch.sin, x)[1](x.double()),
    "linearized in a batch": lambda x, y: vmap(lambda a: linearize(lambda b: b.pow(3) * y, a)[1](a))(x),
    "too few tangents": lambda x, y: linearize(torch.mul, x, y)[1](x),
    "a checkpoint": lambda x, y: grad(
        lambda a: torch.utils.checkpoint.checkpoint(torch.sin, a, use_reentrant=False).sum()
    )(x),
}  # fmt: skip


@pytest.mark.parametrize("name", RAISING)
def test_what_eager_refuses(name):
    inputs = arguments(False)
    region = make_region(RAISING[name], backend=eager)
    expected = outcome(RAISING[name], *inputs)
    assert expected[0] == "raised"
    for _ in range(2):
        assert outcome(region, *inputs) == expected


BROKEN = {
    "a write to an argument": lambda x, y: (vmap(lambda a: a.mul_(2))(x), x),
    "a write to what it closes over": lambda x, y: (vmap(lambda a: (y.mul_(2), a)[1])(x), y),
    "an object outside": lambda x, y: (vmap(lambda a: (KEPT.append(1), a)[1])(x), KEPT.pop()),
    "the history of a level": lambda x, y: grad(lambda a: (a * (2 if (y * 2).requires_grad else 3)).sum())(x),
    "the history of a sample": lambda x, y: vmap(lambda a: a * (2 if a.requires_grad else 3))(x),
    "the layout of a sample": lambda x, y: vmap(lambda a: a * (2 if a.is_contiguous() else a.stride(0)), in_dims=1)(x),
    "an element of all": lambda x, y: vmap(lambda a: a[torch.tensor(1)].mul_(2))(x * 1),
    "a rule with effects": lambda x, y: (vmap(Noted.apply)(x), KEPT.pop()),
    "what is linearized draws": lambda x, y: linearize(lambda a: a * torch.rand(3), x)[1](x),
    "what is linearized is written": lambda x, y: (lambda z, out: (out[1](x), z.mul_(2), out[1](x)))(
        *(lambda z: (z, linearize(lambda a: a.sin() * z, x)))(y * 1)
    ),
    "chunks of the same numbers": lambda x, y: vmap(lambda a: a * torch.rand(3), randomness="same", chunk_size=2)(x),
}


@pytest.mark.parametrize("differentiated", [False, True])
@pytest.mark.parametrize("name", BROKEN)
def test_what_is_no_part_of_the_graph_is_as_in_plain_python(name, differentiated):
    function = BROKEN[name]
    if differentiated and "write to" in name:

        def function(x, y):
            return BROKEN[name](x * 1, y * 1)

    with pytest.raises(GraphBreakError):
        make_region(function, backend=eager, fullgraph=True)(*arguments(differentiated))
    KEPT.clear()
    region = make_region(function, backend=eager)
    for _ in range(2):
        torch.manual_seed(3)
        found = region(*arguments(differentiated))
        torch.manual_seed(3)
        assert_equal(found, function(*arguments(differentiated)))


def test_random_numbers_are_those_of_eager():
    def function(x):
        return (
            vmap(lambda a: a + torch.randn_like(a), randomness="different")(x),
            vmap(lambda a: torch.nn.functional.dropout(a), randomness="same")(x),
            grad(lambda a: (a * torch.rand(3)).sum())(x),
        )

    region = make_region(function, backend=eager, fullgraph=True)
    for _ in range(2):
        torch.manual_seed(3)
        found, drawn = region(torch.ones(4, 3)), torch.get_rng_state()
        torch.manual_seed(3)
        assert_equal([found, drawn], [function(torch.ones(4, 3)), torch.get_rng_state()])


def test_what_a_function_made_outside_reads_is_guarded(monkeypatch):
    graphs = []
    region = recorded(PROGRAMS["made outside"], graphs, fullgraph=True)
    for factor, count in ((2.0, 1), (3.0, 2), (3.0, 2)):
        monkeypatch.setitem(globals(), "FACTOR", factor)
        assert_equal(region(*arguments(False)), PROGRAMS["made outside"](*arguments(False)))
        assert len(graphs) == count


def test_options_from_outside_are_guarded():
    graphs = []
    region = recorded(lambda x, d, n: (vmap(lambda a: a * 2, d)(x), grad(lambda a, b: (a * b).sum(), n)(x, x)), graphs)
    x = torch.randn(3, 3)
    for options in ((0, 0), (1, 0), (1, 1), (0, (0, 1)), (0, 0)):
        plain = vmap(lambda a: a * 2, options[0])(x), grad(lambda a, b: (a * b).sum(), options[1])(x, x)
        assert_equal(region(x, *options), plain)
    assert len(graphs) == 4


def test_a_module_keeps_its_own_parameters():
    """`functional_call` puts them back, and what the forward itself writes is written."""

    def other(x):
        return vmap(lambda a: functional_call(MODEL, parameters(), (a,)))(x)

    def normalised(x):
        return grad(lambda p: functional_call(NORM, p, (x,)).square().sum())(dict(NORM.named_parameters()))

    before = dict(MODEL.named_parameters())
    region = make_region(other, backend=eager, fullgraph=True)
    assert_equal(region(torch.ones(4, 3)), other(torch.ones(4, 3)))
    assert all(value is before[name] for name, value in MODEL.named_parameters())
    with pytest.raises(GraphBreakError):
        make_region(normalised, backend=eager, fullgraph=True)(torch.randn(4, 3))


def test_a_function_that_vjp_gives_does_not_leave_the_graph():
    region = make_region(lambda x: vjp(torch.sin, x)[1], backend=eager)
    x = torch.randn(3)
    assert_equal(region(x)(x), (x.cos() * x,))


def test_a_failure_on_fakes_leaves_the_thread_as_it_was():
    """Torch has no fakes for it; an error worded below a transform kept functorch switched off as long as its traceback lived."""

    def function(x):
        return vmap(lambda p: hessian(lambda a: (a.sin() * 2).prod())(p).diagonal().sum())(x)

    x, kept = torch.randn(5, 3), []
    try:
        make_region(function, backend=eager, fullgraph=True)(x)
    except GraphBreakError as error:
        kept.append(error)
    want = function(x)
    kept.clear()
    assert_equal(make_region(function, backend=eager)(x), want)
