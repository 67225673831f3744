"""Loops whose rounds became calls: what can be seen of a program stays the same, and what cannot be a function is refused."""

from __future__ import annotations

import contextlib

import pytest

from flambeau_capture.bytecode.normalise import decode_normalised
from flambeau_capture.rewrite.resume import CannotResume
from flambeau_capture.rewrite.rounds import separate_rounds

from .cutting import with_code
from .observing import outcome
from .programs import PROGRAMS


def heads(function):
    """Where the `for` loops of a function begin."""
    return [at for at, i in enumerate(decode_normalised(function.__code__)) if i.name == "FOR_ITER"]


def sums(xs):
    total = 0
    for x in xs:
        total = total + x
    return total


def skips(xs):
    kept = []
    for x in xs:
        if x % 2:
            continue
        kept.append(x)
    else:
        kept.append("end")
    return kept


def pairs(xs):
    last = None
    for number, (first, *rest) in enumerate(xs):
        last = number, first, rest
        print(last)
    return last


def nested(n):
    out = []
    for i in range(n):
        for j in range(i):
            out.append(i * j)
        out.append("row")
    return out


def catches(xs):
    seen = []
    for x in xs:
        try:
            seen.append(1 / x)
        except ZeroDivisionError as error:
            seen.append(type(error).__name__)
        finally:
            seen.append("done")
    return seen


def inside_of_a_block(xs):
    with contextlib.suppress(KeyError):
        for x in xs:
            print({1: 2}[x])
    return "after"


def inside_of_try(xs):
    try:
        for x in xs:
            print(x + 1)
    except TypeError as error:
        return str(error)
    return "fine"


def closes_over(xs):
    total = 0

    def add(x):
        nonlocal total
        total += x

    for x in xs:
        add(x)
    return total, (lambda: total)()


def deletes(xs):
    n = 0
    for x in xs:
        y = x * 2
        n = n + y
        del y
    return n


def uses_the_item_afterwards(xs):
    item = "none"
    for item in xs:
        print(item)
    return item


def sets_on_some_ways(xs):
    last = "none"
    for x in xs:
        if x > 1:
            last = x
    return last


def raises(xs):
    for x in xs:
        print(x)
        if x > 1:
            raise ValueError(x)


def variadic(*xs, scale=2, **names):
    out = {}
    for x in xs:
        out[x] = x * scale
    return out, names


SAME = [
    (sums, ([1, 2, 3],)),
    (sums, ([],)),
    (skips, ([1, 2, 3, 4],)),
    (pairs, ([(1, 2, 3), "ab"],)),
    (pairs, ([],)),
    (nested, (4,)),
    (catches, ([1, 0, 2],)),
    (catches, (["a"],)),
    (inside_of_a_block, ([1, 5, 1],)),
    (inside_of_try, ([1, "a"],)),
    (closes_over, ([1, 2],)),
    (deletes, ([1, 2],)),
    (uses_the_item_afterwards, ([1, 2],)),
    (uses_the_item_afterwards, ([],)),
    (sets_on_some_ways, ([1, 2, 1],)),
    (raises, ([1, 2, 3],)),
    (variadic, (1, 2)),
]


@pytest.mark.parametrize(("function", "args"), SAME, ids=lambda v: getattr(v, "__name__", None))
def test_rounds_are_calls(function, args):
    """Every loop of a function, one at a time."""
    expected = outcome(function, args)
    assert heads(function)
    for head in heads(function):
        code = separate_rounds(function.__code__, head)
        assert any(
            f"{function.__name__}.round_at_" in getattr(constant, "co_qualname", "") for constant in code.co_consts
        )
        assert outcome(with_code(function, code), args) == expected


@pytest.mark.parametrize(("function", "args"), PROGRAMS, ids=lambda v: getattr(v, "__name__", None))
def test_small_programs(function, args):
    """Whichever of their loops can be treated."""
    expected = outcome(function, args)
    for head in heads(function):
        with contextlib.suppress(CannotResume):
            assert outcome(with_code(function, separate_rounds(function.__code__, head)), args) == expected


def leaves_early(xs):
    for x in xs:
        if x:
            break
    return x


def returns_early(xs):
    for x in xs:
        if x:
            return x
    return None


def may_leave_unbound(xs):
    for x in xs:
        if x:
            found = x
    return found


def may_find_unbound(xs, flag):
    if flag:
        start = 1
    for x in xs:
        print(start, x)


def handler_reads(xs):
    done = 0
    try:
        for x in xs:
            done = x
            print(1 / x)
    except ZeroDivisionError:
        return done


def sees_variables(xs):
    for x in xs:
        print(locals())


def waits(xs):
    n = 0
    while n < 3:
        n += 1
    return n


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (leaves_early, "below its own part of the stack|elsewhere"),
        (returns_early, "below its own part of the stack|RETURN"),
        (may_leave_unbound, "unbound"),
        (may_find_unbound, "start unbound"),
        (handler_reads, "a handler outside of the loop"),
        (sees_variables, "its own variables"),
    ],
)
def test_what_cannot_be_a_call_is_refused(function, reason):
    """The loop stays in plain Python."""
    (head,) = heads(function)
    with pytest.raises(CannotResume, match=reason):
        separate_rounds(function.__code__, head)


def test_a_loop_that_is_never_reached():
    """CPython keeps the code of a handler that nothing can raise into."""

    def f(xs):
        try:
            return 1
        except ValueError:
            for x in xs:
                print(x)

    (head,) = heads(f)
    with pytest.raises(CannotResume, match="control never comes"):
        separate_rounds(f.__code__, head)


def test_only_for_loops():
    with pytest.raises(CannotResume, match="not a for loop"):
        separate_rounds(waits.__code__, 0)
