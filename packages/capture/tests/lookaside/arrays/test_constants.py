"""What NumPy computes while tracing: numbers, tables, arrays that belong to the program of each call."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from arrays import assert_same_arrays
from both_ways import recorded

NUMBERS = (
    "np.sqrt(2.0) + np.pi", "np.sqrt(x.shape[-1])", "int(np.prod(x.shape))", "np.float32(2.5) * 2", "np.log(3).item()", "float(np.interp(2, [0, 4], [0.0, 1.0]))",
    "np.isscalar(x) or np.isnan(2.0)", "np.arange(4)[2]", "np.linspace(0, 1, 5).sum()", "np.dtype('f4').itemsize", "np.result_type(np.int8, 2.0).itemsize", "np.argmax([1, 3, 2])",
    "np.float64(2) == 2", "round(np.float32(2.5))", "np.int64(7) // 2", "np.maximum(2, x.dim())", "np.array([1, 2]).tolist()[1]", "np.float64(3) > x.dim()",
    "np.lcm(4, x.shape[0] + 4)", "np.divmod(7, 2)[1]", "np.modf(1.5)[0]", "np.cbrt(8.0)", "np.heaviside(1.0, 0.5)", "len(np.binary_repr(5))", "np.searchsorted(np.arange(5), 3)",
    "np.linalg.det(np.eye(2) * 2)", "np.linalg.svd(np.eye(2))[1][0]", "np.polyfit(np.arange(4.0), np.arange(4.0) * 2, 1)[0]", "np.nanstd([1.0, 2.0])",
)  # fmt: skip


@pytest.mark.parametrize("text", NUMBERS)
def test_numbers(text):
    """They are NumPy's scalars, or what the function gives, and may go into operations on tensors."""
    program = eval(f"lambda x: (x * ({text}), {text})", {"np": np})
    graphs = []
    for dynamic in (None, True):
        region = recorded(program, graphs, fullgraph=True, dynamic=dynamic)
        for size in (3, 4):
            assert_same_arrays(region(torch.ones(2, size)), program(torch.ones(2, size)))
    assert graphs


def _made(x):
    table = np.zeros((2, 3))
    row = table[1]
    row[0] = 2
    table += np.arange(3)
    return table, row, x + torch.from_numpy(row)


def _kept_apart(x):
    table = np.arange(6.0).reshape(2, 3)
    return table, table.T, table[:, 1:]


def _written_by_the_graph(x):
    table = np.zeros(3)
    part = table[1:]
    part[0] = x.numpy()[0]
    return table, part


def _seen_by_a_tensor(x):
    table = np.ones(3)
    tensor = torch.from_numpy(table)
    table[0] = 5
    return tensor + x, table


@pytest.mark.parametrize(
    "program", [_made, _kept_apart, _written_by_the_graph, _seen_by_a_tensor], ids=lambda program: program.__name__
)
def test_arrays_are_made_anew(program):
    """What a call does to the arrays that it got, the next does not see; views lie in one memory."""
    graphs = []
    region = recorded(program, graphs)
    x = torch.ones(3, dtype=torch.float64)
    for _ in range(3):
        ours, theirs = region(x), program(x)
        assert_same_arrays(ours, theirs)
        for leaf in ours:
            leaf += 7
    assert len(graphs) == (0 if program is _kept_apart else 1)


def test_what_warns_is_left_to_numpy():
    """At each call, where NumPy is told to."""
    region = recorded(lambda x: x * np.sqrt(-1.0), [])
    for _ in range(2):
        with pytest.warns(RuntimeWarning, match="invalid value"):
            region(torch.ones(2))


def test_random_numbers_are_drawn_at_each_call():
    def program(x):
        return x + torch.from_numpy(np.random.rand(3))

    region = recorded(program, [])
    x = torch.zeros(3, dtype=torch.float64)
    np.random.seed(0)
    expected = [program(x) for _ in range(3)]
    np.random.seed(0)
    assert_same_arrays([region(x) for _ in range(3)], expected)


def test_what_numpy_refuses_the_program_may_catch():
    def program(x):
        try:
            return x * np.arange(4).reshape(3)[0]
        except ValueError as error:
            return x + 1, str(error)

    graphs = []
    assert_same_arrays(recorded(program, graphs, fullgraph=True)(torch.ones(2)), program(torch.ones(2)))
    assert len(graphs) == 1
