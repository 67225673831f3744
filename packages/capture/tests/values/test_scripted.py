"""Functions of TorchScript called inside: one node, or a break where they do more than compute."""

from __future__ import annotations

from typing import Optional

import pytest
import torch
from both_ways import assert_equal, eager, outcome

from flambeau_capture import make_region


def _gated(x):
    return x * torch.sigmoid(1.702 * x)


@torch.jit.script
def _doubled(x, n: int = 2):
    for _ in range(n):
        x = x * 2
    return x


@torch.jit.script
def _of_sizes(x, y: Optional[torch.Tensor] = None):  # noqa: UP045 - TorchScript reads it
    z = torch.sigmoid(x)
    if y is not None:
        z = z + y
    if x.size(0) > 2:
        z = z * 3
    return z, x.size(0)


@torch.jit.script
def _written(x):
    return x.add_(1)


@torch.jit.script
def _drawn(x):
    return torch.dropout(x, 0.5, True) + torch.rand_like(x)


@torch.jit.script
def _printed(x):
    print("scripted")
    return x


@torch.jit.script
def _decided(x):
    if bool((x > 0).all()):
        return x * 2
    return x * 3


@torch.jit.script
def _made(x):
    return x.index_select(0, torch.tensor([1]))


@torch.jit.script
def _raised(x, flag: bool):
    if flag:
        raise ValueError("scripted")
    return x


SCRIPTED, TRACED = torch.jit.script(_gated), torch.jit.trace(_gated, torch.ones(3))
ONE_GRAPH = {
    "scripted": lambda x: SCRIPTED(x * 2) + 1,
    "traced": lambda x: TRACED(x * 2) + 1,
    "defaults": lambda x: (_doubled(x), _doubled(x, 3), _doubled(x, n=4), _doubled(n=1, x=x)),
    "sizes": lambda x: (_of_sizes(x), _of_sizes(x, x), _of_sizes(x[:2], y=x[:2])),
    "a size given": lambda x: _doubled(x, x.size(0)),
    "writes": lambda x: (_written(x * 1), _written(x.clone())),
    "draws": lambda x: _drawn(x) * 2,
}
BROKEN = {
    "prints": lambda x: _printed(x) + 1,
    "decides": lambda x: _decided(x) + 1,
    "makes a tensor": lambda x: _made(x) + 1,
    "may raise": lambda x: _raised(x, False) + 1,
    "raises": lambda x: _raised(x, True) + 1,
    "a float for an integer": lambda x: _doubled(x, 2.0),
    "too many": lambda x: SCRIPTED(x, x),
    "an attribute": lambda x: (x + 1, SCRIPTED.name),
}


def _compare(program, **options):
    region = make_region(program, eager, **options)
    for size in (3, 3, 4):
        for requires_grad in (False, True):
            sides = []
            for function in (region, program):
                torch.manual_seed(0)
                x = torch.linspace(0.1, 1, size).requires_grad_(requires_grad)
                kind, found = outcome(function, x)
                sides.append((kind, found if kind == "returned" else found[0], torch.rand(1)))
            assert_equal(*sides)


@pytest.mark.parametrize("program", ONE_GRAPH.values(), ids=ONE_GRAPH)
def test_a_function_that_computes_is_one_node(program):
    """Called for real where the graph runs, with and without gradients, and for another size, of which TorchScript may take no symbol."""
    _compare(program, fullgraph=True, dynamic=False)
    _compare(program)


@pytest.mark.parametrize("program", BROKEN.values(), ids=BROKEN)
def test_a_function_that_does_more_is_left_to_python(program, broken):
    """As are arguments that TorchScript would convert or refuse."""
    _compare(program)
    assert broken(program, torch.ones(2)) <= {"unsupported-call", "unsupported-attribute"}


def test_another_function_is_another_call():
    """Which one it is, is guarded."""
    region = make_region(lambda x, function: function(x), eager)
    for function in (SCRIPTED, _doubled, TRACED, SCRIPTED):
        torch.testing.assert_close(region(torch.ones(2), function), function(torch.ones(2)))
