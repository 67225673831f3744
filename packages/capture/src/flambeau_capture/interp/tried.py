"""Where an exception that an instruction raises may stop.

In: a code object, the stack of a frame of it. Out: `may_catch`. An `except` and a `finally` count, and a `with` whose manager is the program's, or was entered before the trace:
its `__exit__` sees the exception, and may keep it. What CPython itself puts around instructions lets the exception pass.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import torch

from ..bytecode.normalise import decode_normalised
from ..class_names import class_module
from ..library import contextlib
from ..values.base import MISSING

if TYPE_CHECKING:
    from types import CodeType

    from ..values.base import Value

_ALWAYS = -1
_SET_AS_ENTERED = (torch.no_grad, torch.enable_grad, torch.inference_mode, torch.autocast, torch.device)
"""Others may have set something when they were made."""


def may_catch(code: CodeType, index: int, stack: Sequence[Value], entered: Sequence[Value]) -> bool:
    """Whether something of the program around an instruction is told of its exceptions; `entered`: the `__exit__`s of what the trace itself has entered.
    What was entered before, for real, is left for real too: it is not known what there is to put back."""
    return any(
        place == _ALWAYS
        or not any(stack[place] is leave for leave in entered)
        or not _lets_pass(getattr(stack[place], "owner", None))
        for place in _handlers(code).get(index, ())
    )


def _lets_pass(manager: Any) -> bool:
    """Whether leaving a manager only puts something of torch back, or nothing."""
    if manager is None:
        return False
    cls: type = manager.python_type()
    if cls is contextlib.nullcontext or issubclass(cls, _SET_AS_ENTERED):
        return True
    return manager.real() is MISSING and class_module(cls).partition(".")[0] == "torch"


@lru_cache(maxsize=1024)
def _handlers(code: CodeType) -> Mapping[int, tuple[int, ...]]:
    """Instruction -> for each handler around it, innermost first, where on the stack the `__exit__` of its `with` lies, or `_ALWAYS`."""
    instructions = decode_normalised(code)
    found = {}
    for index, instruction in enumerate(instructions):
        places, handler = [], instruction.handler
        while handler is not None:
            first, second = instructions[handler.target : handler.target + 2]
            if first.name == "PUSH_EXC_INFO":
                places.append(handler.depth - 1 if second.name == "WITH_EXCEPT_START" else _ALWAYS)
            handler = first.handler
        if places:
            found[index] = tuple(places)
    return found
