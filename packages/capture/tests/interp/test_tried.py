"""Which operations a handler of the program covers: only their graphs may have to be left for Python's own run of the frame."""

from __future__ import annotations

import contextlib

import pytest
import torch
from both_ways import assert_equal, recorded


class Manager:
    """A manager of the program, which sees exceptions."""

    def __enter__(self):
        return self

    def __exit__(self, *error):
        return False


def _plain(x):
    return x + 1


def _tried(x):
    try:
        return x + 1
    except ValueError:
        return x


def _finally(x):
    try:
        y = x + 1
    finally:
        z = 3
    return y, z


def _beside_a_try(x):
    try:
        n = int("3")
    except ValueError:
        n = 2
    return x + n


def _called_in_a_try(x):
    try:
        return [_plain(x), 1]
    except ValueError:
        return x


def _without_gradients(x):
    with torch.no_grad():
        return x + 1


def _without_gradients_deep_in_the_stack(x):
    found = []
    for manager in (torch.no_grad(), contextlib.nullcontext()):
        for n in (1, 2):
            with manager:
                found.append(x + n)
    return found


def _own_manager(x):
    with Manager():
        return x + 1


def _own_manager_outside(x):
    with Manager(), torch.no_grad():
        return x + 1


def _own_manager_inside(x):
    with torch.no_grad(), Manager():
        return x + 1


def _own_manager_deep_in_the_stack(x):
    found = []
    for n in (1, 2):
        for manager in (Manager(), Manager()):
            with torch.enable_grad(), manager:
                found.append(x + n)
    return found


def _own_manager_before(x):
    with Manager():
        n = 1
    with torch.no_grad():
        return x + n


COVERED = (
    _tried,
    _finally,
    _called_in_a_try,
    _own_manager,
    _own_manager_outside,
    _own_manager_inside,
    _own_manager_deep_in_the_stack,
)
FREE = (_plain, _beside_a_try, _without_gradients, _without_gradients_deep_in_the_stack, _own_manager_before)


@pytest.mark.parametrize("program", [*COVERED, *FREE], ids=lambda program: program.__name__)
def test_what_a_handler_covers(program):
    graphs = []
    x = torch.randn(3)
    assert_equal(recorded(program, graphs)(x), program(x))
    (graph,) = graphs
    assert graph.meta["starts_anew"] == (program in COVERED)
