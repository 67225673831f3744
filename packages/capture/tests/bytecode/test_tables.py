"""Behaviour facts, exception tables, flow, liveness and stack effects on small cases."""

from __future__ import annotations

import pytest

from flambeau_capture.bytecode.behaviour import behaviour_of
from flambeau_capture.bytecode.encode import EncodingError, encode, spec_of
from flambeau_capture.bytecode.exception_table import read_exception_table, write_exception_table
from flambeau_capture.bytecode.flow import reachable
from flambeau_capture.bytecode.line_table import read_positions, write_line_table
from flambeau_capture.bytecode.liveness import live_locals
from flambeau_capture.bytecode.lower import write_code
from flambeau_capture.bytecode.model import ExceptionEntry, Instruction, Position
from flambeau_capture.bytecode.normalise import decode_normalised
from flambeau_capture.bytecode.stack_depth import exception_slots
from flambeau_capture.errors import UnsupportedPythonError


def test_unknown_pythons_are_refused():
    for version, implementation in (((3, 10), "cpython"), ((3, 14), "cpython"), ((3, 11), "pypy")):
        with pytest.raises(UnsupportedPythonError, match="supported: CPython 3.11, 3.12, 3.13"):
            behaviour_of(version, implementation)


def test_exception_table_with_large_numbers():
    rows = (ExceptionEntry(0, 5, 70, 0, False), ExceptionEntry(70, 5000, 300000, 12, True))
    assert read_exception_table(write_exception_table(rows)) == rows


def test_unknown_opcodes_are_refused():
    def f():
        return 1

    with pytest.raises(EncodingError, match="NO_SUCH"):
        encode((Instruction("NO_SUCH"),), spec_of(f.__code__))


def test_long_jumps_get_extended_arguments():
    """A loop whose body is thousands of code units long still loops."""
    body = "\n".join(f"        x = x + {n} if n != {n} else x" for n in range(900))
    namespace = {}
    exec(f"def f(n):\n    x = 0\n    while n:\n{body}\n        n -= 1\n    return x", namespace)
    f = namespace["f"]
    expected = f(3)
    f.__code__ = write_code(decode_normalised(f.__code__), spec_of(f.__code__))
    assert f(3) == expected


def test_live_locals():
    def f(a, b, c):
        if a:
            c = b
        return c

    instructions = decode_normalised(f.__code__)
    live = live_locals(instructions)
    assert live[0] == {"a", "b", "c"}
    store = next(at for at, i in enumerate(instructions) if i.name == "STORE_FAST")
    assert live[store] == frozenset()
    assert live[store + 1] == {"c"}
    assert live[-1] == frozenset()


def test_handlers_keep_locals_live():
    def f(a, g):
        try:
            a = g()
        except ValueError:
            return a
        return 1

    instructions = decode_normalised(f.__code__)
    call = next(at for at, i in enumerate(instructions) if i.name == "CALL")
    assert "a" in live_locals(instructions)[call]


def test_reachable_leaves_out_what_is_behind():
    def f(a):
        a = a + 1
        return a

    instructions = decode_normalised(f.__code__)
    end = len(instructions) - 1
    assert reachable(instructions, end) == [end]


def test_exception_slots():
    def f(g):
        try:
            g()
        except ValueError as error:
            g(error)

    instructions = decode_normalised(f.__code__)
    slots = exception_slots(f.__code__)
    push = next(at for at, i in enumerate(instructions) if i.name == "PUSH_EXC_INFO")
    assert slots[0] == () and slots[push] == ()
    assert slots[push + 1] == (0,)


def test_positions_cover_every_unit():
    code = test_positions_cover_every_unit.__code__
    positions = read_positions(code)
    assert len(positions) == len(code.co_code) // 2
    assert {p.line for p in positions if p.line} <= set(range(code.co_firstlineno, code.co_firstlineno + 5))


@pytest.mark.parametrize(
    ("position", "entry"),
    [
        (Position(None, None, None, None), [128 | 15 << 3]),
        (Position(7, None, None, None), [128 | 13 << 3, 4]),
        (Position(5, 5, 20, 35), [128 | 2 << 3, 4 << 4 | 15]),
        (Position(5, 5, 20, 36), [128 | 10 << 3, 20, 36]),
        (Position(6, 6, 20, 22), [128 | 11 << 3, 20, 22]),
        (Position(4, 5, 2, 3), [128 | 14 << 3, 3, 1, 3, 4]),
    ],
    ids=["none", "line", "short", "wide", "next line", "long"],
)
def test_each_position_takes_the_shortest_form(position, entry):
    """As CPython writes them: a table is no longer than need be."""
    assert list(write_line_table(5, [(position, 1)])) == entry


@pytest.mark.parametrize(("name", "target"), [("JUMP_FORWARD", 0), ("JUMP_BACKWARD", 3)])
def test_jumps_go_one_way(name, target):
    """Which a jump cannot go is told, before the distance becomes a number below zero."""

    def f():
        return 1

    nothing = Instruction("NOP")
    with pytest.raises(EncodingError, match=f"{name} cannot jump that way"):
        encode((nothing, Instruction(name, target=target), nothing, nothing), spec_of(f.__code__))
