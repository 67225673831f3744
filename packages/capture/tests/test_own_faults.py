"""What goes wrong in capture itself is told as such: not taken for a graph break, for the program's own error or for a value without a formula."""

from __future__ import annotations

import operator
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import sympy
import torch
from both_ways import eager
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

from flambeau_capture import make_region
from flambeau_capture.errors import InternalError
from flambeau_capture.graph.builder import GraphBuilder
from flambeau_capture.guards import spec as gs
from flambeau_capture.guards.explain import explain
from flambeau_capture.interp.cached import _Call
from flambeau_capture.interp.formulas import combined
from flambeau_capture.signals import GraphBreak
from flambeau_capture.sources import source as src
from flambeau_capture.values.constants import ConstantValue
from flambeau_capture.values.sequences import ListValue
from flambeau_capture.values.symbolic import SymbolicValue, formula_of_input


def fault(*args, **kwargs):
    raise RuntimeError("a fault of ours")


def depends_on_data(symbol):
    raise GuardOnDataDependentSymNode(sympy.true, "no hint")


@pytest.mark.parametrize("kind", [TypeError, ValueError, KeyError, IndexError, OverflowError, RuntimeError])
def test_a_model_that_raises_where_python_does_not(kind, monkeypatch):
    """The error is not taken for Python's answer to wrong arguments, which stays the program's."""

    def index(self, t, value, start=None):
        raise kind("a fault of ours")

    monkeypatch.setitem(ListValue.methods, "index", index)
    right = make_region(lambda x: x + [3, 5].index(5), backend=eager, suppress_errors=False)
    with pytest.raises(InternalError, match="a fault of ours"):
        right(torch.zeros(2))
    if kind is not RuntimeError:
        wrong = make_region(lambda x: x + [3, 5].index(7), backend=eager, suppress_errors=False)
        with pytest.raises(ValueError, match="7 is not in list"):
            wrong(torch.zeros(2))


@pytest.mark.parametrize("method", [GraphBuilder.decide, GraphBuilder.specialise])
def test_a_symbol_that_cannot_be_asked(method):
    """Only torch's own "depends on data" is a break; guards are noted in any case."""
    noted = []
    builder = SimpleNamespace(note_guards=lambda: noted.append(True), unpatched=nullcontext())
    symbol = type("Symbol", (), {"__bool__": fault})()
    with pytest.raises(RuntimeError, match="a fault of ours"):
        method(builder, symbol)
    assert noted == [True]
    unknown = type("Symbol", (), {"__bool__": depends_on_data})()
    with pytest.raises(GraphBreak, match="a number that comes from a tensor"):
        method(builder, unknown)
    assert noted == [True, True]


def test_a_formula_that_python_refuses_and_one_that_we_do():
    """A division by zero has no formula; what no arithmetic raises is a fault."""
    number = SymbolicValue.__new__(SymbolicValue)
    number.formula = formula_of_input(src.Local("n"), 4)
    assert combined(operator.floordiv, (number, ConstantValue(2))).value == 2
    assert combined(operator.floordiv, (number, ConstantValue(0))) is None
    with pytest.raises(RuntimeError, match="a fault of ours"):
        combined(fault, (number, ConstantValue(2)))


def test_a_cached_function_that_raises_when_asked_for_real():
    """Its error is the program's."""
    raised = []
    tracer = SimpleNamespace(
        exceptions=SimpleNamespace(raised=lambda error: raised.append(error) or LookupError("in the program"))
    )
    call = _Call.__new__(_Call)
    call.t, call.function = tracer, fault
    with pytest.raises(LookupError, match="in the program"):
        call._found([], {})
    assert [str(error) for error in raised] == ["a fault of ours"]


def test_a_guard_is_explained_where_looking_closer_fails():
    """By its description and what went wrong; the value need not be of the kind that was seen."""
    Hostile = type("Hostile", (), {"__len__": fault})
    words = explain(gs.SequenceLength(src.Local("x"), 2), {"x": Hostile()}, {})
    assert words == f"len({src.Local('x')}) == 2 does not hold: RuntimeError on looking closer"
