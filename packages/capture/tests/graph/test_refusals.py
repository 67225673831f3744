"""An operator that refuses the types of its operands runs for real: what came before it is done, its error is eager's."""

from __future__ import annotations

import operator

import pytest
import torch
import torch.nn.functional as F
from both_ways import assert_equal, outcome, recorded

from flambeau_capture.graph.refusals import _TOTAL, _TOTAL_OF_TWO, is_total, refused

ONES = torch.ones(2, 2)


def _cast(function, *args):
    with torch.autocast("cpu"):
        return function(*args)


ATTENTION = torch.nn.MultiheadAttention(2, 1)
REFUSED = {
    "product": lambda x: F.linear(x.double(), ONES),
    "product, low": lambda x: x.bfloat16() @ ONES,
    "convolution": lambda x: F.conv1d(x[None].double(), torch.ones(1, 2, 1)),
    "cell": lambda x: torch.gru_cell(x.double(), ONES.double(), torch.ones(6, 2), torch.ones(6, 2)),
    "cell, cast": lambda x: _cast(torch.gru_cell, x, ONES, torch.ones(6, 2).double(), torch.ones(6, 2).double()),
    "cells": lambda x: torch.lstm_cell(x.bfloat16(), (ONES, ONES), torch.ones(8, 2), torch.ones(8, 2)),
    "attention": lambda x: ATTENTION(*[x.double()] * 3)[0],
    "product, cast": lambda x: _cast(F.linear, x, ONES.double()),
    "bool": lambda x: torch.trunc(x > 0),
    "bool written": lambda x: (x > 0).chunk(2)[0].mul_(2),
    "complex": lambda x: x.to(torch.complex64) > 0,
    "float": lambda x: x & 1,
    "float written": lambda x: (x * 1).bitwise_and_(1),
    "one element written twice": lambda x: (x * 2)[:1].expand(3, 2).add_(1),
}
PASSES = {
    "or of one row": lambda x: (x[:1] > 0).expand(2, 2) | (x > 0),
    "and of one row": lambda x: (x[:1] > 0).expand(2, 2) & (x > 0),
    "cell": lambda x: torch.gru_cell(x, ONES, torch.ones(6, 2), torch.ones(6, 2)),
    "cell, cast": lambda x: _cast(torch.gru_cell, x.bfloat16(), ONES, torch.ones(6, 2), torch.ones(6, 2)),
    "attention": lambda x: ATTENTION(x, x, x, key_padding_mask=x[0] > 1)[0],
    "cast": lambda x: _cast(F.linear, x.bfloat16(), ONES),
    "mask": lambda x: torch.where(x > 0, x, 0)[x.long()],
    "classes": lambda x: F.cross_entropy(x, torch.zeros(2, dtype=torch.int64)),
    "promotion": lambda x: (x * x.long() + x.bfloat16()).sum(dtype=torch.float64) // 2,
    "whole": lambda x: (x.long() & 1) << 1,
    "table": lambda x: F.embedding(x.int(), ONES) + F.one_hot(x.long(), 3).sum(),
    "low": lambda x: F.layer_norm(x.bfloat16(), (2,), torch.ones(2), torch.ones(2)),
    "drawn": lambda x: x.bfloat16().bernoulli_(0.5) + torch.rand(2),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_came_before_is_done(name):
    def program(x, seen, calls):
        seen.add_(1)
        calls.append(1)
        return REFUSED[name](x)

    graphs = []
    captured = recorded(program, graphs)
    theirs, mine, calls = torch.zeros(2), torch.zeros(2), []
    for count in (1, 2):
        expected = outcome(program, ONES, theirs, [])
        assert expected[0] == "raised"
        assert outcome(captured, ONES, mine, calls) == expected
        assert torch.equal(mine, theirs) and torch.equal(mine, torch.full((2,), float(count)))
        assert len(calls) == count
    assert graphs, "the write was not captured"


@pytest.mark.parametrize("name", REFUSED)
def test_the_program_catches_it(name):
    def program(x):
        try:
            return REFUSED[name](x * 1)
        except (RuntimeError, NotImplementedError):
            return x + 5

    assert_equal(recorded(program, [])(ONES), program(ONES))


@pytest.mark.parametrize("name", PASSES)
def test_what_passes_is_one_graph(name):
    """No break, and no random number drawn by asking."""
    graphs = []
    captured = recorded(PASSES[name], graphs, fullgraph=True)
    torch.manual_seed(3)
    expected = PASSES[name](ONES)
    torch.manual_seed(3)
    assert_equal(captured(ONES), expected)
    assert len(graphs) == 1


ODD = (
    ONES,
    torch.ones(0, 2),
    torch.ones(()),
    torch.ones(1).expand(2, 2),
    torch.ones(2, 3, dtype=torch.float64).t()[1:2],
)
OPERATORS = {"pos": operator.pos, "truediv": operator.truediv}


@pytest.mark.parametrize("name", sorted(_TOTAL | _TOTAL_OF_TWO))
def test_of_a_total_function_nothing_need_be_asked(name):
    function = OPERATORS.get(name) or getattr(torch, name, None) or getattr(F, name)
    asked = 0
    for operands in [*((x,) for x in ODD), *((x, y) for x in ODD for y in (*ODD, 0, -2.5))]:
        try:
            shape = torch.broadcast_shapes(*(x.shape for x in operands if isinstance(x, torch.Tensor)))
            taken = function(*(torch.ones(2, 2) if isinstance(x, torch.Tensor) else x for x in operands))
        except (RuntimeError, TypeError):
            continue  # sizes that differ, or too many operands, whatever they are like
        if is_total("call_function", function, operands, {}):
            asked += 1
            assert function(*operands).shape == (shape if taken.dim() else ())
    assert asked >= len(ODD)


def test_of_other_operands_it_is_asked():
    whole = torch.ones(2, 2, dtype=torch.int64)
    for operands in ((ONES, whole), (ONES.bfloat16(), 1), (ONES, True), (ONES.to_sparse(), 1)):
        assert not is_total("call_function", torch.add, operands, {})
    assert not is_total("call_function", torch.add, (ONES, 1), {"alpha": 2})
    assert not is_total("call_method", "sum", (ONES, 1), {})
    assert not is_total("call_function", test_of_other_operands_it_is_asked, (ONES,), {})


def test_a_derivative_looks_at_types_too():
    """A call ends the graph where its gradient is refused, and only where one is wanted."""
    mask, x = ONES > 0, torch.ones(2, 2, requires_grad=True)
    for operand, refuses in ((x, True), (ONES, False)):
        assert refused("call_function", torch.logaddexp, (mask, operand), {}) is refuses
    with torch.no_grad():
        assert not refused("call_function", torch.logaddexp, (mask, x), {})
    assert not refused("call_function", torch.maximum, (mask, x), {})
    assert not refused("call_method", "add_", (x, mask), {})
    powers = torch.ones(2, dtype=torch.complex128, requires_grad=True)
    assert not refused("call_function", torch.vander, (powers,), {})
