"""Arrays and numbers of NumPy's as values: facts, truth, hashes, iteration, and what lives across a break."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from arrays import array, assert_captured, assert_left_to_numpy, assert_same_arrays, function_of
from both_ways import recorded

from flambeau_capture import graph_break

FACTS = (
    "(a.shape, a.ndim, a.size, a.dtype, a.itemsize, a.nbytes, len(a))", "(np.shape(a), np.ndim(a), np.size(a))", "a.shape[0] + a.sum().ndim",
    "hasattr(a, 'foo')", "[x * y for x, y in zip(a, a)]", "sum(x * x for x in a.reshape(-1))", "isinstance(a.sum(), float)", "a is a.T.T", "type(a.mean()).__name__",
    "np.arange(3).shape + np.zeros((2, 2)).T.shape", "bool(np.arange(2)[1])", "np.finfo(np.float32).eps * a", "np.iinfo(np.int8).max + a", "a.mean() * torch.ones(3)",
)  # fmt: skip


@pytest.mark.parametrize("text", FACTS)
def test_facts(text):
    for dtype in ("float64", "int32"):
        if "torch" in text and dtype == "int32":
            continue
        assert_captured(function_of(text), lambda: [array(dtype)])  # noqa: B023 - called in this round


@pytest.mark.parametrize(
    "text",
    [
        "{a.sum(): 1}[a.sum()]",
        "a.sum() in {1: 2}",
        "len({a.sum(), a.sum()})",
        "1 if a.sum() > 0 else 2",
        "3 in a",
        "a.strides",
        "a.flags.c_contiguous",
    ],
)
def test_what_depends_on_the_elements(text):
    """Numbers that the graph computes are hashed and compared by what they are, which is not known."""
    assert_left_to_numpy(function_of(f"(a + 1, {text})"), lambda: [array("float64")])


def test_errors_of_arrays_without_dimensions():
    def program(a):
        told = []
        for function in (len, iter):
            try:
                function(a[0, 0])
            except TypeError as error:
                told.append(str(error))
        return told, a + 1

    graphs = []
    found, _ = recorded(program, graphs, fullgraph=True)(array("float64"))
    assert len(found) == 2
    assert found[0] == program(array("float64"))[0][0]


def _known(x):
    table = np.zeros((2, 3))
    row = table[0]
    x = x * 2
    graph_break()
    row += 1
    return table, row, x + torch.from_numpy(row)


def _computed(x):
    a = x.numpy()
    b = a * 2
    part = b[1:]
    total = b.sum()
    graph_break()
    part[0] = 7
    return a, b, part, total, total + 1


def _half_and_half(x):
    table = np.ones(3)
    part = table[1:]
    part[0] = x.numpy()[0]
    other = table[:2]
    graph_break()
    other += 1
    return table, part, other


@pytest.mark.parametrize("program", [_known, _computed, _half_and_half], ids=lambda program: program.__name__)
def test_arrays_live_across_breaks(program):
    """Which lie in one memory stays so."""
    graphs = []
    region = recorded(program, graphs)
    for _ in range(2):
        x, y = (torch.arange(3, dtype=torch.float64) for _ in range(2))
        assert_same_arrays((region(x), x), (program(y), y))
    assert graphs


def test_a_checkpointed_function_that_writes_to_an_array_outside():
    """Eager writes a second time when it computes again, so that it is left to eager."""
    from torch.utils.checkpoint import checkpoint

    def program(x):
        calls = np.zeros(1)

        def body(y):
            calls[0] += 1
            return y.sin() * 2

        return checkpoint(body, x, use_reentrant=False), calls

    found = []
    for function in (recorded(program, []), program):
        x = torch.ones(2, requires_grad=True)
        out, calls = function(x)
        out.sum().backward()
        found.append(calls.tolist())
    assert found[0] == found[1]
