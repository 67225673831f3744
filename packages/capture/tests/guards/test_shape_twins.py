"""The native guard tree and its Python twin agree on expressions of shapes."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from flambeau_capture.errors import GuardBuildError
from flambeau_capture.guards import spec as gs
from flambeau_capture.guards.build import build
from flambeau_capture.guards.shape_program import compile_expression, run
from flambeau_capture.sources import source as src

from .agreement import X, Y, agree

numbers = st.one_of(st.integers(-9, 9), st.sampled_from([2**62, 2**63 - 1, -(2**63), 64]))
leaves = st.one_of(numbers.map(str), st.sampled_from(["s0", "s1", "s2"]))
expressions = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["+", "-", "*", "//", "%", "/"]), inner).map(
            lambda t: f"({t[0]} {t[1]} {t[2]})"
        ),
        st.tuples(st.sampled_from(["Mod", "FloorDiv", "Max", "Min", "IntTrueDiv"]), inner, inner).map(
            lambda t: f"{t[0]}({t[1]}, {t[2]})"
        ),
        st.tuples(st.sampled_from(["Abs", "floor", "CeilToInt", "ToFloat", "-", "RoundToInt"]), inner).map(
            lambda t: f"{t[0]}({t[1]})"
        ),
        st.tuples(inner, st.integers(0, 3)).map(lambda t: f"({t[0]})**{t[1]}"),
        st.tuples(inner, inner, inner).map(lambda t: f"Where({t[0]} < {t[1]}, {t[1]}, {t[2]})"),
    ),
    max_leaves=6,
)
relations = st.tuples(expressions, st.sampled_from(["<", "<=", "==", "!=", ">", ">="]), expressions).map(" ".join)


@given(relations, st.tuples(numbers, numbers, numbers))
@settings(max_examples=300)
def test_shape_expressions(text, at):
    symbols = tuple((f"s{i}", src.Item(X, i)) for i in range(3))
    agree([gs.ShapeExpression(text, symbols)], {"x": list(at)})


@pytest.mark.parametrize(
    "text, at, holds",
    [
        ("Eq(Mod(s0, 8), 0)", (16,), True),
        ("Eq(Mod(s0, 8), 0)", (17,), False),
        ("(s0 >= 2) & (s0 < 10) | Eq(s0, 77)", (77,), True),
        ("And(2 <= s0, Ne(s0, 5))", (5,), False),
        ("2 <= s0 <= 9223372036854775806", (3,), True),
        ("~(s0 > 3)", (3,), True),
        ("Not(s0 > 3)", (4,), False),
        ("Eq(ModularIndexing(s0, 4, 3), 2)", (11,), True),
        ("-s0 // 4 == -3", (10,), True),
        ("s0**2 > 99", (10,), True),
        ("Eq(PowByNatural(s0, 64), 0)", (10,), False),
        ("1/s0 > 0", (0,), False),
        ("s0*4611686018427387904 > 0", (1,), True),
        ("s0*4611686018427387904 > 0", (2,), False),
        ("-s0*4611686018427387904 < 0", (2,), True),
        ("-s0*4611686018427387904 < 0", (3,), False),
        ("Piecewise((s0, s0 > 3), (0, True)) > 3", (5,), True),
        ("OpaqueUnaryFn_log2(s0) < 3.5", (8,), True),
        ("OpaqueUnaryFn_sqrt(s0) == 3.0", (9,), True),
        ("Eq(BitwiseFn_bitwise_and(s0, 6), 4)", (12,), True),
        ("Eq(BitwiseFn_bitwise_or(s0, 3), 15)", (12,), True),
        ("Eq(BitwiseFn_bitwise_xor(s0, 10), 6)", (12,), True),
        ("Eq(LShift(s0, 3), 96)", (12,), True),
        ("LShift(s0, 70) > 0", (12,), False),
        ("Eq(RShift(s0, 2), 3)", (12,), True),
        ("Eq(RShift(s0, 70), 0)", (12,), True),
        ("Eq(PowByNatural(-1, s0), -1)", (3,), True),
        ("Eq(PowByNatural(-1, s0), 1)", (12,), True),
        ("s0 < 2.5", (2,), True),
        *(
            (f"{name}({operands}) >= 0", (12,), False)
            for name in ("BitwiseFn_bitwise_and", "BitwiseFn_bitwise_or", "BitwiseFn_bitwise_xor", "RShift")
            for operands in ("s0/2, 6", "6, s0/2")
        ),
    ],
)
def test_shape_expressions_as_sympy_prints_them(text, at, holds):
    tensor = torch.empty(*at)
    symbols = (("s0", src.TensorSize(X, 0)),)
    assert agree([gs.ShapeExpression(text, symbols)], {"x": tensor}) is holds
    assert run(compile_expression(text, ["s0"]), at) is holds


@pytest.mark.parametrize("number", [-(2**63), 1 - 2**63, 2**63 - 2, 2**63 - 1])
@pytest.mark.parametrize("divisor", [9, -9, 64, -64, 2**63 - 1, -(2**63)])
def test_the_rest_of_a_division_near_the_limits_of_integers(number, divisor):
    """The multiple of the divisor below may lie beyond them (`nox -s sanitize` sees that)."""
    symbols = (("s0", src.Item(X, 0)),)
    guard = gs.ShapeExpression(f"Eq(Mod(s0, {divisor}), {number % divisor})", symbols)
    assert agree([guard], {"x": [number]})
    assert not agree([guard], {"x": [0 if number % divisor else 1]})


def test_strides_offsets_and_python_numbers_are_symbols_too():
    tensor = torch.arange(20.0).view(4, 5)[1:, 2:]
    symbols = (("a", src.TensorStride(X, 0)), ("b", src.TensorOffset(X)), ("c", src.Attribute(Y, "n")))
    guard = gs.ShapeExpression("Eq(a + 2, b) & Eq(c, 1.5)", symbols)
    assert agree([guard], {"x": tensor, "y": SimpleNamespace(n=1.5)})
    assert not agree([guard], {"x": tensor, "y": SimpleNamespace(n="no")})
    assert not agree([guard], {"x": tensor, "y": SimpleNamespace(n=10**30)})
    assert agree([gs.ConstantIs(src.TensorSize(X, 1), 3)], {"x": tensor})


def test_an_expression_without_a_native_form_is_refused():
    with pytest.raises(GuardBuildError, match="Frobnicate"):
        build([gs.ShapeExpression("Frobnicate(s0)", (("s0", src.TensorSize(X, 0)),))])
