"""Which instructions a `try` of the program covers.

In: a code object. Out: the indices of its instructions whose exceptions go to an `except` or a `finally`. What `with` and CPython itself
put around instructions is left out: it runs in any case and lets the exception pass.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from ..bytecode.normalise import decode_normalised

if TYPE_CHECKING:
    from types import CodeType


@lru_cache(maxsize=1024)
def tried_instructions(code: CodeType) -> frozenset[int]:
    """See the module."""
    instructions = decode_normalised(code)
    found = set()
    for index, instruction in enumerate(instructions):
        handler = instruction.handler
        if handler is None or instructions[handler.target].name != "PUSH_EXC_INFO":
            continue
        if instructions[handler.target + 1].name != "WITH_EXCEPT_START":
            found.add(index)
    return frozenset(found)
