"""Decoding and encoding give the code back; normalising and writing give code that normalises to the same."""

from __future__ import annotations

import inspect
from types import CodeType

import pytest

from flambeau_capture.bytecode.decode import decode
from flambeau_capture.bytecode.encode import encode, spec_of
from flambeau_capture.bytecode.exception_table import read_exception_table, write_exception_table
from flambeau_capture.bytecode.lower import write_code
from flambeau_capture.bytecode.normalise import UnsupportedCodeError, decode_normalised
from flambeau_capture.bytecode.stack_depth import effect

from .programs import LIBRARY, TORCH, codes_of

SUSPENDS = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR


@pytest.mark.parametrize("module", [*LIBRARY, *TORCH])
def test_raw_round_trip(module):
    """Bytes, positions and exception tables come back as they were."""
    for code in codes_of(module):
        made = encode(decode(code), spec_of(code))
        assert made.co_code == code.co_code, code.co_qualname
        assert list(made.co_positions()) == list(code.co_positions()), code.co_qualname
        assert read_exception_table(made.co_exceptiontable) == read_exception_table(code.co_exceptiontable)
        assert write_exception_table(read_exception_table(code.co_exceptiontable)) == code.co_exceptiontable


def key(instructions):
    return [
        (
            i.name,
            i.arg,
            i.value.co_qualname if isinstance(i.value, CodeType) else i.value,
            i.target,
            i.handler,
            i.position,
        )
        for i in instructions
    ]


@pytest.mark.parametrize("module", [*LIBRARY, *TORCH])
def test_normalised_round_trip(module):
    """What is written from normalised instructions normalises to the same instructions, and every one has a known effect."""
    for code in codes_of(module):
        instructions = decode_normalised(code)
        if code.co_flags & SUSPENDS:
            with pytest.raises(UnsupportedCodeError):
                write_code(instructions, spec_of(code))
            continue
        made = write_code(instructions, spec_of(code))
        assert key(decode_normalised(made)) == key(instructions), code.co_qualname
        for i in instructions:
            effect(i)


def test_targets_and_handlers_are_inside():
    """Every index an instruction mentions is one of an instruction."""
    for code in codes_of("tarfile"):
        instructions = decode_normalised(code)
        for i in instructions:
            assert i.target is None or 0 <= i.target < len(instructions)
            assert i.handler is None or 0 <= i.handler.target < len(instructions)


def test_the_docstring_lists_every_instruction():
    """The set that normalise.py documents is the set it makes."""
    import re

    from flambeau_capture.bytecode import normalise

    documented = set(re.findall(r"\b[A-Z][A-Z_0-9]{2,}\b", normalise.__doc__))
    made = {i.name for module in LIBRARY for code in codes_of(module) for i in decode_normalised(code)}
    assert made <= documented
