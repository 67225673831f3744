"""Graphs with symbolic sizes: traced once, right for every size."""

from __future__ import annotations

import operator

import pytest
import sympy
import torch
import torch.nn.functional as F
from lifting import as_tuple, compile_graph, fakes, lift_symbolically, scalar_loss
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx import Graph, GraphModule
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.utils._sympy.functions import (
    BitwiseFn_bitwise_and,
    BitwiseFn_bitwise_or,
    BitwiseFn_bitwise_xor,
    CeilToInt,
    CleanDiv,
    FloatPow,
    FloatTrueDiv,
    FloorDiv,
    FloorToInt,
    IntTrueDiv,
    LShift,
    Max,
    Min,
    Mod,
    PowByNatural,
    PythonMod,
    RoundToInt,
    RShift,
    ToFloat,
    TruncToInt,
)  # fmt: skip

import flambeau_autograd
from flambeau_autograd.functional.symbols import SymbolNodes

CASES = {
    "pointwise": (lambda x: (x.sin() * x + 1,), [(3, 4)], [(5, 7)]),
    "view": (lambda x: (x.view(x.size(0) * x.size(1)).exp(),), [(3, 4)], [(5, 7)]),
    "mean": (lambda x: (x.mean(), x.mean(0), x.var(1)), [(3, 4)], [(5, 7)]),
    "softmax": (lambda x: (F.softmax(x, -1), F.layer_norm(x, (x.size(-1),))), [(3, 4)], [(5, 7)]),
    "pad": (lambda x: (F.pad(x, (1, 2)), F.pad(x, (1, -1, -1, 1), value=2.0)), [(3, 4)], [(5, 7)]),
    "matmul": (lambda x, y: (x @ y.t(),), [(3, 4), (5, 4)], [(6, 9), (2, 9)]),
    "cat": (lambda x, y: (torch.cat([x, y], 0) * 2, x.size(0) + y.size(0)), [(3, 4), (5, 4)], [(6, 9), (2, 9)]),
    "slice_write": (lambda x: (_write(x),), [(4, 4)], [(6, 9)]),
    "split_half": (lambda x: (x[:, : x.size(1) // 2] * 2,), [(3, 4)], [(5, 8)]),
    "view_of_input": (lambda x: (x.view(-1), x.t()), [(3, 4)], [(5, 8)]),
    "sliced_by_a_size": (lambda x, y: (y[: x.size(0)], y[x.size(0) - 1 :], y[-x.size(0) :, : x.size(1) - 1], y * 2), [(3, 4), (5, 4)], [(4, 9), (7, 9)]),
    "sizes_of_views": (lambda x: (x.narrow(0, 1, x.size(0) - 1), x.split(x.size(1) - 1, 1)[0], x[0].expand(x.size(0), -1), x.view(x.size(0) * x.size(1))), [(3, 4)], [(5, 8)]),
    "views_of_a_result": (lambda x: (lambda y: (y, y[: x.size(0) - 1], y.view(x.size(0) * x.size(1))))(x * 2), [(3, 4)], [(5, 8)]),
    "factories": (lambda x: (x * torch.arange(x.size(1)) + x.new_zeros(x.size(0), 1),), [(3, 4)], [(5, 8)]),
}  # fmt: skip


def _write(x):
    y = x.clone()
    y[1:3].add_(1.0)
    y.view(-1).mul_(2.0)
    return y


def _owner(tensor, others):
    """The first of `others` that shares the tensor's storage."""
    storage = tensor.untyped_storage().data_ptr()
    return next(
        i for i, t in enumerate(others) if isinstance(t, torch.Tensor) and t.untyped_storage().data_ptr() == storage
    )


@pytest.mark.parametrize("name", CASES)
def test_other_sizes(name):
    """Compiled at one size with every dimension symbolic, run at another."""
    function, first, second = CASES[name]
    gm = lift_symbolically(function)
    compiled = compile_graph(gm, [torch.randn(s, requires_grad=True) for s in first], dynamic=True)
    for shapes in (first, second):
        ours = [torch.randn(s, requires_grad=True) for s in shapes]
        theirs = [t.detach().clone().requires_grad_() for t in ours]
        got, want = as_tuple(compiled(*ours)), as_tuple(function(*theirs))
        for a, b in zip(got, want):
            torch.testing.assert_close(a, b)
            if isinstance(a, torch.Tensor):
                assert a.stride() == b.stride()
                assert _owner(a, (*ours, *got)) == _owner(b, (*theirs, *want))
        scalar_loss(got).backward()
        scalar_loss(want).backward()
        for a, b in zip(ours, theirs):
            torch.testing.assert_close(a.grad, b.grad)


S = sympy.Symbol("s", positive=True, integer=True)
EXPRESSIONS = [
    S + 2, 3 * S, S**2, PowByNatural(S, sympy.Integer(3)), FloatPow(ToFloat(S), sympy.Float(0.5)), FloorDiv(S, sympy.Integer(2)), CleanDiv(6 * S, sympy.Integer(4)),
    IntTrueDiv(S, sympy.Integer(2)), FloatTrueDiv(ToFloat(S), sympy.Float(4.0)), Mod(S, sympy.Integer(3)), PythonMod(S, sympy.Integer(-3)), Max(S, sympy.Integer(7)),
    Min(S, sympy.Integer(7)), ToFloat(S), TruncToInt(FloatTrueDiv(ToFloat(S), sympy.Float(4.0))), sympy.Lt(S, 6), sympy.Le(S, 6), sympy.Gt(S, 6), sympy.Ge(S, 6), sympy.Eq(S, 6),
    sympy.Ne(S, 6), sympy.Not(sympy.Eq(S, 6), evaluate=False), sympy.Abs(S - 7), *(of(IntTrueDiv(S, sympy.Integer(4))) for of in (CeilToInt, FloorToInt, RoundToInt)),
    *(of(S, sympy.Integer(3)) for of in (LShift, RShift, BitwiseFn_bitwise_and, BitwiseFn_bitwise_or, BitwiseFn_bitwise_xor)),
]  # fmt: skip


@pytest.mark.parametrize("expression", EXPRESSIONS, ids=str)
def test_an_expression_is_computed_from_sizes(expression):
    """The node that stands for it gives what sympy gives, below, at and above where a comparison turns."""
    fake = fakes([torch.ones(6, 4)], dynamic=True)[0]
    graph = Graph()
    nodes = SymbolNodes(graph)
    nodes.bind_tensor(fake, graph.placeholder("x"))
    size = fake.shape[0].node.expr
    graph.output(nodes.of_expression(expression.xreplace({S: size})))
    module = GraphModule(torch.nn.Module(), graph)
    for length in (5, 6, 10):
        assert module(torch.ones(length, 4)) == expression.xreplace({S: sympy.Integer(length)})


def test_symbolic_integer_inputs():
    """A SymInt placeholder is an input, can be saved, and can be returned."""
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext

    from flambeau_autograd import aot_autograd

    env = ShapeEnv()
    mode = FakeTensorMode(shape_env=env)
    x = mode.from_tensor(
        torch.randn(6, 4, requires_grad=True),
        symbolic_context=StatelessSymbolicContext(dynamic_sizes=[DimDynamic.DYNAMIC] * 2),
    )

    def function(n, x):
        return (x.exp().view(n, -1) * n, n + 1)

    gm = lift_symbolically(function)
    compiled = aot_autograd(fw_compiler=lambda gm, i: gm.forward)(gm, [x.shape[0], x])
    real = torch.randn(5, 3, requires_grad=True)
    out, number = compiled(5, real)
    assert number == 6
    out.sum().backward()
    torch.testing.assert_close(real.grad, 5 * real.detach().exp())


def test_a_check_of_a_number_read_out_of_a_tensor_is_an_assertion():
    """It stays in the forward, with the reading, though nobody else has use for the number."""
    mode = FakeTensorMode(shape_env=ShapeEnv())
    graph = Graph()
    x = graph.placeholder("x")
    number = graph.call_method("item", (graph.call_method("sum", (x,)),))
    graph.call_function(torch._check, (graph.call_function(operator.gt, (number, 0)),))
    graph.output((graph.call_method("sin", (x,)),))
    x.meta["val"] = fake = mode.from_tensor(torch.ones(3))
    prepared = flambeau_autograd.prepare(GraphModule({}, graph), [fake])
    prepared.forward.recompile()
    torch.testing.assert_close(prepared.forward(torch.ones(3))[0], torch.ones(3).sin())
    with pytest.raises(RuntimeError, match="captured for numbers with"):
        prepared.forward(-torch.ones(3))
