"""Scalar arithmetic of programs, as Python defines it: the table behind ``Compute``, the form kernels receive, and what tells numbers apart."""

from __future__ import annotations

import math
import operator
import struct
from collections.abc import Callable
from typing import Any

Number = int | float | bool

_INT64_MIN, _INT64_MAX = -(1 << 63), (1 << 63) - 1


def _truncdiv(left: Number, right: Number) -> Number:
    """Division rounded towards zero, as C++ and ``torch.div(rounding_mode="trunc")`` do it."""
    if isinstance(left, float) or isinstance(right, float):
        return float(math.trunc(left / right))
    quotient = abs(left) // abs(right)
    return quotient if (left < 0) == (right < 0) else -quotient


OPERATIONS: dict[str, Callable[..., Any]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "floordiv": operator.floordiv,
    "mod": operator.mod,
    "truediv": operator.truediv,
    "truncdiv": _truncdiv,
    "min": min,
    "max": max,
    "pow": operator.pow,
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
    "and": lambda left, right: bool(left) and bool(right),
    "or": lambda left, right: bool(left) or bool(right),
    "xor": operator.xor,
    "bitand": operator.and_,
    "bitor": operator.or_,
    "shl": operator.lshift,
    "shr": operator.rshift,
    "neg": operator.neg,
    "not": operator.not_,
    "abs": abs,
    "floor": math.floor,
    "ceil": math.ceil,
    "trunc": math.trunc,
    "round": round,
    "sqrt": math.sqrt,
    "exp": math.exp,
    "log": math.log,
    "int": int,
    "float": float,
    "bool": bool,
    "move": lambda value: value,
    "select": lambda condition, left, right: left if condition else right,
}


def compute(opcode: str, arguments: list[Number]) -> Number:
    """The result of one ``Compute``. Raises ``ZeroDivisionError``, ``ValueError`` or ``OverflowError`` as Python does;
    an integer outside int64 is an ``OverflowError``."""
    result: Number = OPERATIONS[opcode](*arguments)
    if type(result) is int and not _INT64_MIN <= result <= _INT64_MAX:
        raise OverflowError("integer scalar out of range")
    return result


def number_key(value: Any) -> tuple[type, Any]:
    """What tells numbers apart: type and value; zeros of different sign are different numbers, NaNs are one. Other values are compared as they are."""
    if isinstance(value, complex):
        return type(value), (value.real.hex(), value.imag.hex())
    return type(value), value.hex() if isinstance(value, float) else value


def kernel_scalar(value: Number, kind: str) -> int:
    """The int64 that a kernel receives: ``kind`` is ``i``, ``f``, or empty to follow the value's type."""
    if kind == "f" or (not kind and isinstance(value, float)):
        return int(struct.unpack("<q", struct.pack("<d", float(value)))[0])
    return int(value)
