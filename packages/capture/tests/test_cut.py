"""Where a frame that breaks is cut: traced once where the instruction that broke left no trace, and with what tracing it again gives."""

from __future__ import annotations

import math

import pytest
import torch
from both_ways import assert_equal, eager, recorded

from flambeau_capture import make_region, pipeline
from flambeau_capture.effects.describe import effects_text
from flambeau_capture.interp.tracer import Tracer


def printed(x):
    y = x.sin() + 1
    print(end="")
    return y * 2


def printed_with_operands(x):
    y, seen = x.sin() + 1, [1, 2]
    print(y.shape, seen, {"a": 1}, end="", file=None, flush=False)
    seen.append(3)
    return y * 2, seen


def branched(x):
    y = x.exp()
    if y.sum() > 3:
        y = y - 1
    return y * 2


def within_a_with(x):
    with torch.no_grad():
        y = x * 2
        print(end="")
        return y + 1


def several(x):
    x = x + 1
    print(end="")
    x = x * 2
    print(end="")
    return x.cos()


def with_a_store_before(x):
    found = {"before": x + 1}
    found["after"] = x + 2
    print(end="")
    return found


def in_a_callee(x):
    def callee(y):
        z = y + 1
        print(end="")
        return z * 2

    return callee(x * 3) + 1


def in_a_key(x):
    order = []
    y = sorted([2, 1], key=lambda item: (order.append(item), print(end=""))[0] or item)
    return x + y[0], order


def in_an_iterator(x):
    numbers = iter([1, 2, 3])
    y = x + next(numbers)
    print(*numbers, end="")
    return y, list(numbers)


def of_a_number(x, number):
    y = x * number
    math.acos(number)
    return y


ONCE = [printed, printed_with_operands, branched, within_a_with, several, with_a_store_before]
AGAIN = [in_a_callee, in_a_key, in_an_iterator]


def x():
    return torch.linspace(-1, 2, 6)


@pytest.fixture
def made(monkeypatch):
    """The traces that were begun, as names of functions."""
    names = []

    def tracer(info, *rest):
        names.append(info.code.co_qualname)
        return Tracer(info, *rest)

    monkeypatch.setattr(pipeline, "Tracer", tracer)
    return names


@pytest.mark.parametrize("function", ONCE)
def test_a_break_is_traced_once(function, made, broken):
    assert broken(function, x())
    assert len(made) == len(set(made)) and function.__name__ in made and len(made) > 1


@pytest.mark.parametrize("function", AGAIN)
def test_what_may_have_left_a_trace_is_traced_again(function, made, broken):
    """Results are those of Python: nothing happens twice, and no iterator skips."""
    assert broken(function, x())
    assert made.count(function.__name__) == 2


def test_what_a_step_that_broke_assumed_of_a_number_is_not_kept():
    """The frame is cut where `acos` raises for one number; cut there it serves others."""
    records = []
    region = make_region(of_a_number, eager, observer=records.append)
    for number in (7, 4, 9, 12, 5):
        with pytest.raises(ValueError, match="math domain error"):
            region(x(), number)
    assert len([record for record in records if record.code.co_qualname == "of_a_number"]) <= 3


def described(traced):
    """All that becomes of a trace."""
    result = traced.result
    values = (*result.exit.stack, *result.exit.locals.values())
    return (
        result.graph.code,
        [str(node.meta.get("val")) for node in result.graph.graph.nodes],
        [str(source) for source in result.inputs],
        effects_text(result.effects, result.outputs),
        (result.exit.instruction, result.exit.reason, result.exit.position.line, result.exit.is_open),
        [value.describe() for value in values],
        len(traced.guards),
    )


@pytest.mark.parametrize("function", ONCE)
def test_both_ways_are_the_same(function, monkeypatch):
    """Every frame that is stepped back is traced again as well."""
    trace_frame, compared = pipeline.trace_frame, []

    def both(*given):
        found = trace_frame(*given)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(pipeline, "step_back", lambda tracer, broken: False)
            again = trace_frame(*given)
        if found.broken is not None:
            compared.append(described(found) == described(again))
        return found

    monkeypatch.setattr(pipeline, "trace_frame", both)
    make_region(function, eager)(x())
    assert compared and all(compared)


def rows_by_number(x):
    """How many rounds there are depends on data, and the rest of the frame begins with the loop."""
    result = torch.zeros_like(x)
    for place in (x[:, 0] > 0).nonzero():
        row = x.index_select(0, place)
        result.index_add_(0, place, row * row.sum())
    return result + 1


def test_rounds_over_the_rows_of_a_tensor_are_captured():
    graphs = []
    x = torch.tensor([[1.0, 2.0], [-1.0, 3.0], [4.0, 5.0]])
    assert_equal(recorded(rows_by_number, graphs)(x), rows_by_number(x))
    assert any(node.target == "index_add_" for graph in graphs for node in graph.graph.nodes)
