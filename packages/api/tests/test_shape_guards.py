"""What was assumed about sizes, as text: it is read back as what it was, and asserted again."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import pytest
import sympy
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.utils._sympy import functions as shape_functions

from flambeau.shape_guards import read, replay_guards, shape_guards, written

A, B = (sympy.Symbol(name, integer=True, positive=True) for name in "ab")


def fakes(rows: int) -> tuple[ShapeEnv, list[Any]]:
    env = ShapeEnv()
    return env, [FakeTensorMode(shape_env=env).from_tensor(torch.ones(rows, 4))]


def expressions() -> Iterator[sympy.Basic]:
    """Each of torch's functions of sizes, of one to three of them."""
    for function in vars(shape_functions).values():
        if not inspect.isclass(function) or not issubclass(function, sympy.Basic):
            continue
        for given in ((A,), (A, B), (A, B, sympy.Integer(3))):
            try:
                made = function(*given)
            except (TypeError, ValueError, AssertionError, AttributeError):
                continue
            if made.is_extended_real:
                yield from (sympy.Eq(made, 7), sympy.Ge(made * 3 - 1, A), sympy.Ne(1, made))


def test_every_function_of_sizes_is_read_as_it_was_written() -> None:
    symbols = {"a": A, "b": B}
    made = list(expressions())
    assert {"FloorDiv", "PythonMod", "Max", "Min", "FloatTrueDiv"} <= {
        type(part).__name__ for guard in made for part in sympy.preorder_traversal(guard)
    }
    for guard in made:
        assert read(written(guard), symbols) == guard


def test_a_floor_division_is_assumed_again() -> None:
    """Its bounds are asked for in the new environment."""
    env, inputs = fakes(6)
    rows = inputs[0].shape[0]
    assert rows * (18 // rows) == 18
    guards = shape_guards(inputs)
    assert any("FloorDiv" in guard for guard in guards)
    again, others = fakes(6)
    assert replay_guards(guards, others)
    assert [held.expr for held in again.guards] == [held.expr for held in env.guards]
    assert not replay_guards(guards, fakes(7)[1])


@pytest.mark.parametrize("text", ["Equality(Symbol('s0'), Integer(-3))", "Equality(Symbol('unknown'), Integer(6))"])
def test_what_does_not_hold_or_is_not_there_is_refused(text: str) -> None:
    assert not replay_guards([text], fakes(6)[1])
