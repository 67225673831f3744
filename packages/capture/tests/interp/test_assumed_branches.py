"""Branches on tensors of which one way raises: one graph where the program goes on, the program's own error where it does not.

PYTEST_DONT_REWRITE: the asserts of the programs are Python's own.
"""

from __future__ import annotations

import contextlib

import pytest
import torch
from both_ways import assert_equal, eager, outcome, recorded

from flambeau_capture import make_region

NOTES: list[str] = []


def _assert(x):
    assert (x > 0).all(), f"the least is {x.min().item():.1f}"
    return x.log()


def _assert_of_two(x):
    assert (x > 0).all() and (x < 100).all()
    assert not torch.isnan(x).any()
    return x * 3


def _raise_behind_effects(x):
    NOTES.append("before")
    if (x < 0).any():
        NOTES.append("it raises")
        raise ValueError("negative", 3)
    NOTES.append("after")
    return x * 2


def _go_on_inside(x):
    if (x > 0).all():
        return x + 1
    raise KeyError("k")


def _draw(x):
    noise = torch.rand(3)
    assert (x > 0).all()
    return x + noise, torch.rand(2)


def _handled(x):
    try:
        assert (x > 0).all(), "words"
        y = x.log()
    except AssertionError as error:
        NOTES.append(str(error))
        y = x.abs()
    return y


def _suppressed(x):
    with contextlib.suppress(ValueError):
        if (x < 0).any():
            raise ValueError
        return x * 5
    return x * 7


def _at_last(x):
    try:
        assert (x > 0).all()
    finally:
        NOTES.append("finally")
    return x + 1


def _checked(x):
    if not (x > 0).all():
        raise RuntimeError("in a callee")
    return x


def _callee(x):
    return _checked(x) + _checked(x + 1)


def _rounds(x):
    for i in range(3):
        if bool((x < i - 3).any()):
            raise IndexError(i)
        x = x + 1
    return x


def _generator(x):
    def parts():
        for i in range(2):
            assert (x > i - 1).all(), i
            yield x * i

    return list(parts())


def _all_of(x):
    assert all((part > 0).all() for part in (x, x + 1)), "all"
    if any([(x < 0).any(), (x > 100).any()]):
        raise ValueError("any")
    return x + 1


def _a_number(x):
    assert x.sum() - 6, "nothing"
    torch._assert((x > 0).all(), "torch's own")
    return x


def _without_gradients(x):
    with torch.no_grad():
        assert (x > 0).all()
        y = x * 2
    return y + x, torch.is_grad_enabled()


def _nothing_returned(x):
    assert (x > 0).all()
    return 5


ONE_GRAPH = [
    _assert, _assert_of_two, _raise_behind_effects, _go_on_inside, _draw, _handled, _suppressed, _at_last, _callee, _rounds, _generator, _all_of,
    _a_number, _without_gradients, _nothing_returned,
]  # fmt: skip


def _observed(function, x):
    NOTES.clear()
    torch.manual_seed(0)
    found = outcome(function, x)
    return found, x, list(NOTES), torch.rand(1), torch.is_grad_enabled()


@pytest.mark.parametrize("gradients", [False, True])
@pytest.mark.parametrize("program", ONE_GRAPH, ids=lambda program: program.__name__)
def test_both_ways_are_as_in_eager(program, gradients):
    """Results, errors, effects, numbers drawn; in one graph, whichever way the call goes that it is made for."""
    for values in ([[2.0, 3.0, 4.0], [1.0, -2.0, 3.0]], [[1.0, -2.0, 3.0], [2.0, 3.0, 4.0]]):
        records = []
        region = make_region(program, eager, observer=records.append, fullgraph=True)
        for value in (*values, *values):
            inputs = [torch.tensor(value, requires_grad=gradients) for _ in range(2)]
            assert_equal(_observed(region, inputs[0]), _observed(program, inputs[1]))
        assert records[0].operations
        assert not any(record.breaks for record in records)


def _written(x):
    x.mul_(2)
    assert (x > 0).all(), "m"
    return x.sin()


def _two_errors(x):
    if (x > 0).all():
        raise ValueError
    raise TypeError


def _many_elements(x):
    assert x > 0
    return x


def _neither(x):
    return x + 1 if (x > 0).all() else x - 1


@pytest.mark.parametrize("program", [_written, _two_errors, _many_elements, _neither], ids=lambda p: p.__name__)
def test_other_branches_stay_branches(program):
    """Where neither way raises, or both; where torch refuses the truth; and where the graph has written to an input by then."""
    region = make_region(program, eager)
    for value in ([2.0, 3.0], [1.0, -2.0], [2.0, 3.0]):
        inputs = [torch.tensor(value) for _ in range(2)]
        assert_equal(_observed(region, inputs[0]), _observed(program, inputs[1]))


def test_a_truth_of_the_programs_own_is_asked(check, monkeypatch):
    """A method that a program gave tensors is guarded, and decides."""
    program = _assert_of_two
    x = torch.tensor([1.0, 2.0])
    region = make_region(program, eager)
    assert_equal(outcome(region, x), outcome(program, x))
    monkeypatch.setattr(torch.Tensor, "__bool__", lambda self: False, raising=False)
    assert outcome(region, x) == outcome(program, x) == ("raised", (AssertionError, ""))


def _asserted_in_words(x):
    assert (x > 0).all(), f"{x.min()} is not positive"
    return x.log()


def _raised_for_nan_and_zero(x):
    if x.isnan().any():
        raise ValueError(f"nan in {x}")
    if not x.sum().item():
        raise ZeroDivisionError
    return x / x.sum().item()


def _branch_on_a_count(x):
    if x[x > 0].numel():
        return x + 1
    raise ValueError("nothing is positive")


def _caught(x):
    try:
        if x.min().item() < 0:
            raise ValueError("negative")
        return x.sqrt()
    except ValueError as error:
        return str(error)


def _loop_of_doublings(x):
    for i in range(3):
        x = x * 2
        if x.max() > 100:
            raise OverflowError(i)
    return x


X = torch.linspace(1, 3, 6)


@pytest.mark.parametrize(
    "function", [_asserted_in_words, _raised_for_nan_and_zero, _branch_on_a_count, _caught, _loop_of_doublings]
)
def test_one_graph_checks_the_number(function):
    """For values that pass and for those that do not."""
    graphs = []
    region = recorded(function, graphs, fullgraph=True)
    for x in (X, -X, X * 0, X * 30, X):
        assert_equal(outcome(region, x), outcome(function, x))
    (graph,) = graphs
    assert any(node.target in (torch._check, torch._assert_async) for node in graph.graph.nodes)


def test_other_branches_break(broken):
    """Where both sides raise, or the side that raises does something else on its way."""

    def both(x):
        if x.sum() > 0:
            raise ValueError("positive")
        raise TypeError("not positive")

    def sometimes(x):
        if x.sum() > 0:
            if x.ndim > 3:
                raise ValueError("many dimensions")
            x = x + 1
        return x

    for function in (both, sometimes):
        assert "data-dependent-branch" in broken(function)


def test_not_is_a_number_of_the_graph(check):
    """`not` of a tensor and of its numbers."""
    check(lambda x: (not (x > 2).any(), not x.sum().item(), not x.argmax().item()))
