"""Named facts about the running CPython's bytecode.

In: `sys.version_info`. Out: `BEHAVIOUR`, one frozen record of facts; the rest of the package asks for a fact, never for a version.
Importing this module on a CPython whose bytecode is unknown raises `UnsupportedPythonError`.
"""

from __future__ import annotations

import opcode
import sys
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from attrs import frozen

from ..errors import UnsupportedPythonError
from ..library import dis

_INTRINSICS_1 = ("INTRINSIC_UNARY_POSITIVE", "INTRINSIC_LIST_TO_TUPLE", "INTRINSIC_IMPORT_STAR", "INTRINSIC_PRINT")


@frozen
class Behaviour:
    """What differs between the supported CPythons, as facts."""

    version: tuple[int, int]
    null_below_callable: bool
    """The NULL beside a callable is pushed before it (else after it)."""
    precall: bool
    """CALL is preceded by PRECALL, and method loads and direction of jumps have opcodes of their own."""
    keyword_names_on_stack: bool
    """CALL_KW takes the names from the stack (else KW_NAMES names a constant)."""
    load_fast_is_checked: bool
    """LOAD_FAST raises for an unbound local (else only LOAD_FAST_CHECK does)."""
    end_for_length: int
    """How many instructions at the end of a for loop FOR_ITER itself jumps over."""
    tests_need_bool: bool
    """Conditional jumps and UNARY_NOT take exact bools only, after TO_BOOL."""
    compare_shift: int
    """How far the comparison's number is shifted in COMPARE_OP's argument."""
    compare_bool_bit: int
    """The bit of COMPARE_OP's argument that asks for an exact bool; 0 where there is none."""
    intrinsics: bool
    """Rare unary operations are arguments of CALL_INTRINSIC_1."""
    function_attributes_separate: bool
    """MAKE_FUNCTION takes only the code; SET_FUNCTION_ATTRIBUTE adds the rest."""
    format_value: bool
    """FORMAT_VALUE converts and formats in one instruction."""
    closure_by_load_fast: bool
    """A cell itself is loaded with LOAD_FAST (else LOAD_CLOSURE)."""
    load_and_clear: bool
    """LOAD_FAST_AND_CLEAR exists (comprehensions are inlined)."""


_KNOWN: Mapping[tuple[int, int], Behaviour] = MappingProxyType(
    {
        (3, 11): Behaviour(
            version=(3, 11),
            null_below_callable=True,
            precall=True,
            keyword_names_on_stack=False,
            load_fast_is_checked=True,
            end_for_length=0,
            tests_need_bool=False,
            compare_shift=0,
            compare_bool_bit=0,
            intrinsics=False,
            function_attributes_separate=False,
            format_value=True,
            closure_by_load_fast=False,
            load_and_clear=False,
        ),
        (3, 12): Behaviour(
            version=(3, 12),
            null_below_callable=True,
            precall=False,
            keyword_names_on_stack=False,
            load_fast_is_checked=False,
            end_for_length=1,
            tests_need_bool=False,
            compare_shift=4,
            compare_bool_bit=0,
            intrinsics=True,
            function_attributes_separate=False,
            format_value=True,
            closure_by_load_fast=False,
            load_and_clear=True,
        ),
        (3, 13): Behaviour(
            version=(3, 13),
            null_below_callable=False,
            precall=False,
            keyword_names_on_stack=True,
            load_fast_is_checked=False,
            end_for_length=2,
            tests_need_bool=True,
            compare_shift=5,
            compare_bool_bit=16,
            intrinsics=True,
            function_attributes_separate=True,
            format_value=False,
            closure_by_load_fast=True,
            load_and_clear=True,
        ),
    }
)


def behaviour_of(version: tuple[int, int], implementation: str = "cpython") -> Behaviour:
    """The facts of one CPython; `UnsupportedPythonError` for any other interpreter."""
    known = _KNOWN.get(version) if implementation == "cpython" else None
    if known is None:
        supported = ", ".join(f"{major}.{minor}" for major, minor in _KNOWN)
        name = implementation.replace("cpython", "CPython")
        raise UnsupportedPythonError(
            f"the bytecode of {name} {version[0]}.{version[1]} is not known (supported: CPython {supported})"
        )
    return known


def _cache_sizes() -> tuple[int, ...]:
    entries: Any = opcode._inline_cache_entries  # type: ignore[attr-defined]
    if isinstance(entries, dict):
        return tuple(entries.get(name, 0) for name in OPCODE_NAMES)
    return tuple(entries[:256])


def _compare_operators() -> tuple[str, ...]:
    return tuple(dis.cmp_op)


def _intrinsic_numbers() -> dict[str, int]:
    names: Any = getattr(opcode, "_intrinsic_1_descs", ())
    return {name: names.index(name) for name in _INTRINSICS_1 if name in names}


BEHAVIOUR = behaviour_of(sys.version_info[:2], sys.implementation.name)
OPCODE_NAMES: tuple[str, ...] = tuple(dis.opname[:256])
OPCODES: Mapping[str, int] = MappingProxyType({name: number for name, number in dis.opmap.items() if number < 256})
CACHE_SIZES: tuple[int, ...] = _cache_sizes()
"""Code units of inline cache behind each opcode."""
COMPARE_OPERATORS = _compare_operators()
BINARY_OPERATORS: tuple[str, ...] = tuple(symbol for _, symbol in opcode._nb_ops)  # type: ignore[attr-defined]
INTRINSICS_1: Mapping[str, int] = MappingProxyType(_intrinsic_numbers())
