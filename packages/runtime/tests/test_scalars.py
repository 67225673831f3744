"""Scalar arithmetic: the native executor and the table agree with Python."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flambeau_runtime import artifact as a
from flambeau_runtime import load
from flambeau_runtime.scalars import compute

NUMBERS = st.one_of(
    st.integers(-(2**63), 2**63 - 1), st.integers(-20, 20), st.booleans(),
    st.floats(allow_nan=False, width=64), st.sampled_from([0.0, -0.0, 1.5, -2.5, 0.5]),
)  # fmt: skip
ERRORS = (ZeroDivisionError, OverflowError, ValueError, TypeError)


def outcome(function: Any, *arguments: Any) -> Any:
    try:
        result = function(*arguments)
    except ERRORS as error:
        return type(error)
    return (type(result), repr(result))


def native(opcode: str) -> Any:
    arity = a.OPCODES[opcode]
    program = a.Program(
        [a.Compute(arity, opcode, tuple(a.Scalar(i) for i in range(arity)))],
        0, arity + 1, [a.InputSpec("scalar", i) for i in range(arity)], [a.OutputSpec("scalar", a.Scalar(arity))],
    )  # fmt: skip
    run = load(a.Artifact(program))
    return lambda *values: run(*values)[0]


@pytest.mark.parametrize("opcode", sorted(a.OPCODES))
def test_native_arithmetic_is_pythons(opcode: str) -> None:
    """Same value, same type, or the same exception."""
    run = native(opcode)

    @settings(max_examples=60, deadline=None, database=None, derandomize=True)
    @given(st.lists(NUMBERS, min_size=a.OPCODES[opcode], max_size=a.OPCODES[opcode]))
    def check(values: list[Any]) -> None:
        if opcode == "shl" and not (isinstance(values[1], int) and abs(values[1]) < 100):
            return
        if opcode == "pow" and any(isinstance(v, int) and abs(v) > 64 for v in values):
            return
        wanted = outcome(compute, opcode, values)
        got = outcome(run, *values)
        if opcode == "pow" and wanted == (complex, wanted[1] if isinstance(wanted, tuple) else ""):
            assert got is TypeError
            return
        if opcode in ("pow", "exp", "log", "truediv") and isinstance(wanted, tuple) and isinstance(got, tuple):
            assert wanted[0] == got[0] and math.isclose(float(wanted[1]), float(got[1]), rel_tol=1e-14)
            return
        assert got == wanted, (opcode, values)

    check()


def test_every_opcode_is_in_both_tables() -> None:
    from flambeau_runtime.scalars import OPERATIONS

    assert set(OPERATIONS) == set(a.OPCODES)
