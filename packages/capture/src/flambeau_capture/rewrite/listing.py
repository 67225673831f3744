"""Code objects as text, for the bytecode log.

In: a code object. Out: its instructions as `dis` prints them, then those of the code nested in it. Constants that are objects of the program
appear by their type or name: no `__repr__` of a user is run.
"""

from __future__ import annotations

from types import BuiltinFunctionType, CodeType, FunctionType, MethodDescriptorType, WrapperDescriptorType
from typing import Any

from ..class_names import class_qualname
from ..constant_objects import is_constant_object
from ..library import dis

_CALLED_BY_NAME = (type, FunctionType, BuiltinFunctionType, MethodDescriptorType, WrapperDescriptorType)


class _Named:
    """Stands for an object in a listing."""

    def __init__(self, obj: Any) -> None:
        kind = type(obj)
        self.text = f"<{class_qualname(kind)} {obj.__qualname__ if kind in _CALLED_BY_NAME else hex(id(obj))}>"

    def __repr__(self) -> str:
        return self.text


def listing(code: CodeType) -> str:
    """The instructions of `code` and of the functions that it makes."""
    parts: list[str] = []
    waiting = [code]
    while waiting:
        item = waiting.pop(0)
        waiting += [constant for constant in item.co_consts if isinstance(constant, CodeType)]
        quiet = item.replace(co_consts=tuple(map(shown, item.co_consts)))
        title = f"{item.co_qualname}({', '.join(item.co_varnames[: item.co_argcount + item.co_kwonlyargcount])})"
        parts.append(f"{title}, line {item.co_firstlineno}\n{dis.Bytecode(quiet).dis().rstrip()}")
    return "\n".join(parts)


def shown(constant: Any) -> Any:
    """What stands for a constant in a listing: itself, or an object whose text names it."""
    return constant if isinstance(constant, CodeType) or is_constant_object(constant) else _Named(constant)
