"""Which locals certainly have a value."""

from __future__ import annotations

from flambeau_capture.bytecode.binding import bound_locals
from flambeau_capture.bytecode.normalise import decode_normalised


def at_return(function, bound):
    """What is bound before each return, in order of the code."""
    instructions = decode_normalised(function.__code__)
    found = bound_locals(instructions, bound)
    return [set(found[at]) for at, i in enumerate(instructions) if i.name == "RETURN_VALUE"]


def test_ways_that_meet():
    def f(a, b):
        if a:
            d = 1
        else:
            d = 2
        del b
        return d

    found = at_return(f, {"a", "b"})  # a compiler may write the end twice
    assert found and all(names == {"a", "d"} for names in found)


def test_a_loop_may_not_run():
    def f(xs):
        for _ in xs:
            pass
        return xs

    assert at_return(f, {"xs"}) == [{"xs"}]


def test_handlers_know_what_was_bound_before():
    def f(a):
        try:
            b = a()
            c = b
        except ValueError:
            return a
        return c

    handled, plain = sorted(at_return(f, {"a"}), key=len)
    assert handled == {"a"}
    assert plain == {"a", "b", "c"}


def test_ways_end_where_asked():
    def f(xs):
        for x in xs:
            y = x
        return y

    instructions = decode_normalised(f.__code__)
    (head,) = (at for at, i in enumerate(instructions) if i.name == "FOR_ITER")
    assert bound_locals(instructions, {"xs"}, head + 1, head)[head] == {"xs", "x", "y"}
