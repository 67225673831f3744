"""The border with sympy: symbolic sizes of a ShapeEnv as expressions."""

import math

import pytest
import sympy
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from flambeau_inductor.expr import SymbolTable, UnsupportedExpression, evaluate, hint


@pytest.fixture
def sizes():
    """Two symbolic sizes of one environment."""
    gm = make_fx(lambda x: x + 1, tracing_mode="symbolic")(torch.empty(6, 10))
    fake = next(iter(gm.graph.nodes)).meta["val"]
    return fake.fake_mode.shape_env, fake.shape[0], fake.shape[1]


def test_arithmetic_survives_the_border(sizes):
    """Every operator of symbolic integers gives the same value on both sides."""
    env, a, b = sizes
    table = SymbolTable(env)
    for value in (a + b, a * b - 3, (a * b) // 4, a % 4, torch.sym_max(a, b), -a // 2):
        assert hint(table(value)) == value.node.hint


def test_symbols_keep_name_range_and_identity(sizes):
    """The same size is the same node, with the environment's range."""
    env, a, _ = sizes
    table = SymbolTable(env)
    assert table(a) is table(a)
    assert table(a).name == str(a.node.expr)
    assert table(a).lo >= 0


def test_unknown_functions_are_refused():
    """What integer algebra does not have is an error, never a guess."""
    s = sympy.Symbol("s", integer=True)
    with pytest.raises(UnsupportedExpression):
        SymbolTable()(sympy.sin(s))


def test_comparison_becomes_a_truth_value():
    """Relations are 0 or 1."""
    s = sympy.Symbol("s", integer=True, positive=True)
    e = SymbolTable()(sympy.Lt(s, 5))
    assert [evaluate(e, lambda _, v=v: v) for v in (4, 5)] == [1, 0]


def test_quotients_are_rounded_as_python_does(sizes):
    """Down, up, towards zero, also below zero, and without sign."""
    env, _, size = sizes
    table = SymbolTable(env)
    for number in (size, -size, size - 12, 3 * size + 2):
        for quotient in (number / 4, number / 3, number / 10):
            for value in (math.floor(quotient), math.ceil(quotient), math.trunc(quotient)):
                assert hint(table(value)) == value.node.hint
        assert hint(table(abs(number))) == abs(number).node.hint


def test_products_with_fractions_are_rounded_as_python_does(sizes):
    """Down, up, towards zero, also below zero."""
    env, _, size = sizes
    table = SymbolTable(env)
    for number in (size, -size, size - 12):
        for value in (math.floor(number * 0.25), math.ceil(number * 0.25), torch.sym_int(number * 0.25)):
            assert hint(table(value)) == value.node.hint
