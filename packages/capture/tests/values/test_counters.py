"""An `itertools.count` that a program keeps: its numbers, its state after each call, and which object it is."""

from __future__ import annotations

import itertools
from fractions import Fraction

import pytest
import torch
from both_ways import assert_equal, eager, outcome

from flambeau_capture import make_region


def _once(x, counter, other):
    return x * next(counter)


def _often(x, counter, other):
    return [part * number for number, part in zip(counter, x, strict=False)], next(counter)


def _both(x, counter, other):
    return x + next(counter) * 10 - next(other)


def _in_a_loop(x, counter, other):
    return [i for i in itertools.takewhile(lambda number: number % 4 < 2, counter)], x + 1


def _behind_a_check(x, counter, other):
    number = next(counter)
    if (x < 0).any():
        raise ValueError(number)
    return x + number


def _looked_at(x, counter, other):
    return x + 1, counter is other, type(counter) is itertools.count, bool(counter)


def _compare(program, counters, graphs=True):
    """Calls with counters that `counters` makes anew for each of both ways, in order; `graphs`: in one graph each."""
    region = make_region(program, eager, fullgraph=graphs)
    sides = []
    for function in (region, program):
        found = []
        for counter, other, x in counters():
            found.append((outcome(function, x, counter, other), repr(counter), repr(other)))
        sides.append(found)
    assert_equal(*sides)


@pytest.mark.parametrize(
    "program", [_once, _often, _both, _in_a_loop, _behind_a_check, _looked_at], ids=lambda program: program.__name__
)
@pytest.mark.parametrize(("start", "step"), [(1, 1), (0, 3), (0.5, 0.25), (True, 1), (-4, 2)])
def test_it_goes_on_from_call_to_call(program, start, step):
    """As far as the program took it, also where the frame raises."""

    def counters():
        counter, other = itertools.count(start, step), itertools.count(7)
        for x in (torch.ones(3), torch.ones(3), -torch.ones(3), torch.ones(3)):
            yield counter, other, x

    _compare(program, counters)


@pytest.mark.parametrize("program", [_once, _both], ids=lambda program: program.__name__)
def test_another_object_at_another_call(program):
    """Other numbers, another step, and the two that were two are one."""

    def counters():
        one, two, x = itertools.count(1), itertools.count(5), torch.ones(2)
        yield from ((one, two, x), (two, one, x), (one, one, x), (one, one, x), (itertools.count(0.5), one, x))
        yield from ((itertools.count(2, 5), one, x), (itertools.count(9, 5), two, x))

    _compare(program, counters)


def test_other_numbers_and_other_iterators_are_left_to_python():
    """Whose steps are not told by what they look like."""

    def counters():
        for counter in (itertools.count(Fraction(1, 2)), itertools.count(float("nan")), itertools.repeat(3)):
            yield counter, None, torch.ones(2)

    _compare(lambda x, counter, other: (x + 1, float(next(counter)) > 1), counters, graphs=False)


def test_a_break_between_two_steps_sees_the_first():
    """Steps that the graph stands for are taken before what follows the break."""

    def program(x, counter, other):
        first = next(counter)
        print(end="")
        return x * first, repr(counter), next(counter)

    def counters():
        counter = itertools.count(3)
        for _ in range(3):
            yield counter, None, torch.ones(2)

    _compare(program, counters, graphs=False)
