"""Rewritten code as statements, for the bytecode log.

In: the code that runs in place of a frame. Out: text in the form of Python: what it calls, keeps and returns, with the line of the user's that each statement belongs
to, and its parts (resume functions) below it. Where an instruction has no such form, the rest of its stretch is listed as it is, as a comment.
"""

from __future__ import annotations

from types import CodeType
from typing import Any

from ..bytecode.model import Instruction
from ..bytecode.normalise import decode_normalised
from .listing import shown

_PAIRS = {"BUILD_TUPLE": ("(", ")"), "BUILD_LIST": ("[", "]"), "BUILD_SET": ("{", "}")}
_LOADS = ("LOAD_FAST", "LOAD_FAST_CHECK", "LOAD_GLOBAL", "LOAD_DEREF", "LOAD_NAME", "LOAD_CLOSURE")
_STORES = ("STORE_FAST", "STORE_GLOBAL", "STORE_DEREF", "STORE_NAME")
_DELETES = ("DELETE_FAST", "DELETE_GLOBAL", "DELETE_DEREF", "DELETE_NAME")
_NULL = "NULL"
_BOUND = "BOUND"
"""Stands above a method for the object that it is a method of."""


class _Unwritten(Exception):
    """An instruction that is no statement or expression."""


def source_text(code: CodeType) -> str:
    """The statements of `code`, and of the functions that it makes."""
    parts, waiting = [], [code]
    while waiting:
        item = waiting.pop(0)
        waiting += [constant for constant in item.co_consts if isinstance(constant, CodeType)]
        parts.append(_function(item))
    return "\n\n".join(parts)


def _function(code: CodeType) -> str:
    instructions = decode_normalised(code)
    labels = {i.target for i in instructions if i.target is not None}
    handlers = {i.handler.target: i.handler.depth for i in instructions if i.handler is not None}
    writer = _Writer(code)
    failed = False
    for at, instruction in enumerate(instructions):
        if at in labels or at in handlers:
            writer.stack, failed = ["the_exception"] if handlers.get(at) == 0 else [], False
            writer.lines.append(f"  at_{at}:{'  # where what stands above may raise' if at in handlers else ''}")
        if not failed:
            try:
                writer.write(instruction)
            except (_Unwritten, IndexError):
                failed = True
        if failed:
            target = "" if instruction.target is None else f" to at_{instruction.target}"
            value = "" if instruction.value is None else f" {_shown(instruction.value)}"
            writer.lines.append(f"    # {instruction.name}{value}{target}")
    names = ", ".join(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount])
    return "\n".join((f"def {code.co_qualname}({names}):  # {code.co_filename}:{code.co_firstlineno}", *writer.lines))


class _Writer:
    """Statements in the making: `stack` holds expressions that no statement has yet."""

    def __init__(self, code: CodeType) -> None:
        self.lines: list[str] = []
        self.stack: list[str] = []
        self._deleted: list[str] = []
        self._line: int | None = code.co_firstlineno

    def write(self, i: Instruction) -> None:
        """One instruction. Raises _Unwritten, or IndexError where what it takes was left by one that is not written."""
        stack = self.stack
        if i.name in _LOADS:
            stack.append(str(i.value))
        elif i.name == "LOAD_CONST":
            stack.append(_shown(i.value))
        elif i.name == "PUSH_NULL":
            stack.append(_NULL)
        elif i.name in _PAIRS:
            opening, closing = _PAIRS[i.name]
            items = self._take(i.arg)
            stack.append(f"{opening}{', '.join(items)}{',' if len(items) == 1 and opening == '(' else ''}{closing}")
        elif i.name == "LOAD_ATTR":
            stack.append(f"{stack.pop()}.{i.value}")
        elif i.name == "LOAD_METHOD":
            stack += [f"{stack.pop()}.{i.value}", _BOUND]
        elif i.name == "BINARY_SUBSCR":
            key = stack.pop()
            stack.append(f"{stack.pop()}[{key}]")
        elif i.name in ("BINARY_OP", "COMPARE_OP"):
            right, left, symbol = stack.pop(), stack.pop(), str(i.value)
            in_place = i.name == "BINARY_OP" and symbol.endswith("=")
            stack.append(f"in_place({left} {symbol[:-1]} {right})" if in_place else f"({left} {symbol} {right})")
        elif i.name in ("CALL", "CALL_KW"):
            self._call(i)
        elif i.name == "MAKE_FUNCTION":
            made = stack.pop()
            self._take(bin(i.arg or 0).count("1"))
            stack.append(made)
        elif i.name == "UNPACK_SEQUENCE":
            value, names = stack.pop(), [f"item_{len(self.lines)}_{n}" for n in range(i.arg or 0)]
            self._statement(f"{', '.join(names)}{',' if len(names) == 1 else ''} = {value}", i)
            stack += reversed(names)
        else:
            self._store(i)

    def _store(self, i: Instruction) -> None:
        stack = self.stack
        if i.name in _STORES:
            self._statement(f"{i.value} = {stack.pop()}", i)
        elif i.name in _DELETES:
            self._deleted.append(str(i.value))
            if not stack:
                self._flush(i)
        elif i.name == "POP_TOP":
            self._statement(stack.pop(), i)
        elif i.name == "RETURN_VALUE":
            self._statement(f"return {stack.pop()}", i)
        elif i.name == "STORE_ATTR":
            owner = stack.pop()
            self._statement(f"{owner}.{i.value} = {stack.pop()}", i)
        elif i.name == "STORE_SUBSCR":
            key, owner = stack.pop(), stack.pop()
            self._statement(f"{owner}[{key}] = {stack.pop()}", i)
        elif i.name == "COPY" and i.arg == 1:
            stack.append(stack[-1])
        elif i.name == "SWAP" and i.arg is not None and i.arg <= len(stack):
            stack[-1], stack[-i.arg] = stack[-i.arg], stack[-1]
        else:
            raise _Unwritten

    def _call(self, i: Instruction) -> None:
        args = self._take(i.arg)
        names = i.value if i.name == "CALL_KW" else ()
        plain = len(args) - len(names)
        args[plain:] = [f"{name}={value}" for name, value in zip(names, args[plain:], strict=True)]
        upper, lower = self.stack.pop(), self.stack.pop()
        called = lower if upper == _NULL else upper
        if upper == _BOUND:
            called = lower
        elif _NULL not in (upper, lower):
            called, args = lower, [upper, *args]
        self.stack.append(f"{called}({', '.join(args)})")

    def _take(self, count: int | None) -> list[str]:
        if (count or 0) > len(self.stack):
            raise _Unwritten
        taken = self.stack[len(self.stack) - (count or 0) :]
        del self.stack[len(self.stack) - (count or 0) :]
        return taken

    def _statement(self, text: str, i: Instruction) -> None:
        line = i.position.line
        shown = f"  # line {line}" if line is not None and line != self._line else ""
        self._line = line if line is not None else self._line
        self.lines.append(f"    {text}{shown}")
        if not self.stack:
            self._flush(i)

    def _flush(self, i: Instruction) -> None:
        """`del` of what expressions do not read any more."""
        if self._deleted:
            self.lines.append(f"    del {', '.join(self._deleted)}")
            self._deleted = []


def _shown(value: Any) -> str:
    if isinstance(value, CodeType):
        return value.co_qualname
    return repr(shown(value))
