"""`sys.exc_info` and `sys.exception`, which `contextlib.ExitStack` asks."""

from __future__ import annotations

import contextlib
import sys

import pytest
import torch
from both_ways import assert_equal, eager, outcome

from flambeau_capture import make_region


def test_the_innermost_handler_decides(check):
    """Inside of handlers and outside of them."""

    def program(x):
        before = sys.exc_info()
        try:
            raise ValueError(3)
        except ValueError as error:
            kind, same = sys.exc_info()[0], sys.exception() is error
            try:
                raise KeyError
            except KeyError:
                inner = sys.exc_info()[0]
            after = sys.exception() is error
        return x + 1, before, kind, same, inner, after, sys.exception()

    check(program)


def test_what_a_caller_handles_is_seen():
    """An entry that was made outside of any handler does not serve a call inside of one."""
    region = make_region(lambda x: (x + 1, sys.exc_info()[0]), eager)
    for _ in range(2):
        assert region(torch.ones(1))[1] is None
        try:
            raise KeyError
        except KeyError:
            assert region(torch.ones(1))[1] is KeyError


@pytest.mark.parametrize("how", ["plain", "raises", "suppressed"])
def test_a_stack_of_contexts_is_one_graph(how):
    """Callbacks, exits in the reverse order, a mode, and an exception that one of them takes."""

    def program(x, notes):
        with contextlib.ExitStack() as stack:
            stack.callback(notes.append, "callback")
            stack.push(lambda *raised: notes.append(raised[0]) or how == "suppressed")
            stack.enter_context(torch.autocast("cpu", dtype=torch.bfloat16))
            stack.enter_context(torch.no_grad())
            if how != "plain":
                raise ValueError(how)
            return x @ x.T, torch.is_grad_enabled()
        return x * 5, torch.is_grad_enabled()

    sides = []
    for function in (make_region(program, eager, fullgraph=how != "raises"), program):
        notes = []
        x = torch.ones(2, 2, requires_grad=True)
        sides.append(([outcome(function, x, notes) for _ in range(2)], notes, torch.is_autocast_enabled("cpu")))
    assert_equal(*sides)


def test_what_a_stack_gives_away_is_closed_later(check):
    """`pop_all`, and `close` of what it gives."""

    def program(x):
        with contextlib.ExitStack() as stack:
            stack.enter_context(torch.autocast("cpu", dtype=torch.bfloat16))
            kept = stack.pop_all()
        y = x @ x.T
        kept.close()
        return y, x @ x.T

    check(program)
