"""The scalar ops: one record per op, with its arity, dtype rule and meaning.

In: an op's name. Out: its ``ScalarOp`` record. Code generators hold a table name → text and are checked for
completeness against ``names()``; the IR interpreter runs ``reference`` (a function of torch tensors, elementwise, the
definition of the op).

Conventions: operands of arithmetic have one dtype (lowering promotes). float16/bfloat16 never reach arithmetic (see
``ir/scalar.py``). Integer arithmetic wraps around in its dtype. Comparisons and ``logical_*`` give bool. ``div`` on
integers does not exist (``truediv`` converts first: lowering inserts ``to_dtype``); ``floordiv``/``remainder`` follow
Python's signs, ``truncdiv``/``fmod`` C's; integer division by zero is an error in eager, which lowering keeps by
calling the library unless the divisor is a non-zero constant.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from attrs import field, frozen

Dtypes = Sequence[torch.dtype]
DtypeRule = Callable[[Dtypes, "torch.dtype | None"], torch.dtype]


def _same(operands: Dtypes, given: torch.dtype | None) -> torch.dtype:
    if any(d is not operands[0] for d in operands[1:]):
        raise TypeError(f"operands of different dtypes: {', '.join(map(str, operands))}")
    return operands[0]


def _boolean(operands: Dtypes, given: torch.dtype | None) -> torch.dtype:
    _same(operands, given)
    return torch.bool


def _given(operands: Dtypes, given: torch.dtype | None) -> torch.dtype:
    if given is None:
        raise TypeError("this op needs a dtype")
    return given


def _select(operands: Dtypes, given: torch.dtype | None) -> torch.dtype:
    if operands[0] is not torch.bool:
        raise TypeError(f"a condition is bool, not {operands[0]}")
    return _same(operands[1:], given)


def _first(operands: Dtypes, given: torch.dtype | None) -> torch.dtype:
    return operands[0]


@frozen
class ScalarOp:
    """One op. ``reference(*operands, dtype)`` computes it on torch tensors of the operands' dtypes.

    ``domain``: which operand dtypes it takes ("float", "integer", "number" = both, "bool", "any").
    ``commutative``: the first two operands may be swapped without any difference in the result.
    """

    name: str
    arity: int
    result: DtypeRule = field(repr=False)
    reference: Callable[..., Any] = field(repr=False)
    domain: str = "number"
    commutative: bool = False


_TABLE: dict[str, ScalarOp] = {}


def register(op: ScalarOp) -> None:
    """Add an op; a name is registered once."""
    if op.name in _TABLE:
        raise ValueError(f"scalar op {op.name} is registered twice")
    _TABLE[op.name] = op


def scalar_op(name: str) -> ScalarOp:
    """The record of ``name``; ValueError when there is none."""
    found = _TABLE.get(name)
    if found is None:
        raise ValueError(f"no scalar op is called {name!r}")
    return found


def names() -> tuple[str, ...]:
    """All op names, in registration order."""
    return tuple(_TABLE)


def _keep(function: Callable[..., Any]) -> Callable[..., Any]:
    """A reference that ignores the result dtype (torch's own op has the right one)."""

    def reference(*operands: Any, dtype: torch.dtype) -> Any:
        return function(*operands)

    return reference


def _define(
    name: str,
    arity: int,
    function: Callable[..., Any],
    domain: str = "number",
    rule: DtypeRule = _same,
    *,
    commutative: bool = False,
) -> None:
    register(ScalarOp(name, arity, rule, _keep(function), domain, commutative))


# Arithmetic. Floating point follows IEEE 754 in the operand's precision, no contraction; integers wrap.
_define("add", 2, torch.add, commutative=True)
_define("sub", 2, torch.sub)
_define("mul", 2, torch.mul, commutative=True)
_define("truediv", 2, torch.div, "float")
_define("floordiv", 2, lambda a, b: torch.div(a, b, rounding_mode="floor"))
_define("truncdiv", 2, lambda a, b: torch.div(a, b, rounding_mode="trunc"))
_define("remainder", 2, torch.remainder)
_define("fmod", 2, torch.fmod)
_define("neg", 1, torch.neg)
_define("abs", 1, torch.abs)
_define("sign", 1, torch.sign)
_define("maximum", 2, torch.maximum, commutative=True)  # NaN wins
_define("minimum", 2, torch.minimum, commutative=True)  # NaN wins
_define("fmax", 2, torch.fmax, "float")  # NaN loses
_define("fmin", 2, torch.fmin, "float")
_define("relu", 1, torch.relu)
_define("fma", 3, lambda a, b, c: (a.double() * b.double() + c.double()).to(a.dtype), "float")  # one rounding

# Comparison and logic.
for _name in ("eq", "ne"):
    _define(_name, 2, getattr(torch, _name), "any", _boolean, commutative=True)
for _name in ("lt", "le", "gt", "ge"):
    _define(_name, 2, getattr(torch, _name), "any", _boolean)
for _name in ("logical_and", "logical_or", "logical_xor"):
    _define(_name, 2, getattr(torch, _name), "bool", _boolean, commutative=True)
_define("logical_not", 1, torch.logical_not, "bool", _boolean)
for _name in ("bitwise_and", "bitwise_or", "bitwise_xor"):
    _define(_name, 2, getattr(torch, _name), "integer", commutative=True)
_define("bitwise_not", 1, torch.bitwise_not, "integer")
# A shift by a negative amount or by the width and more gives 0 (or -1 for a negative value shifted right), as in eager.
_define("shift_left", 2, torch.bitwise_left_shift, "integer")
_define("shift_right", 2, torch.bitwise_right_shift, "integer")
_define("isnan", 1, torch.isnan, "float", _boolean)
_define("isinf", 1, torch.isinf, "float", _boolean)
_define("signbit", 1, torch.signbit, "number", _boolean)
_define("where", 3, torch.where, "any", _select)

# Rounding.
for _name in ("floor", "ceil", "trunc", "round"):  # round: half to even
    _define(_name, 1, getattr(torch, _name), "float")

# Transcendentals, to within the accuracy of eager's own implementation.
for _name in (
    "exp", "exp2", "expm1", "log", "log2", "log1p", "log10", "sqrt", "rsqrt", "reciprocal", "sin", "cos", "tan",
    "asin", "acos",
    "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "erf", "erfc", "erfinv", "lgamma", "digamma", "sigmoid",
):  # fmt: skip
    _define(_name, 1, getattr(torch, _name), "float")
for _name in ("atan2", "hypot", "copysign", "nextafter"):
    _define(_name, 2, getattr(torch, _name), "float")
_define("pow", 2, torch.pow, "number")


def _philox_uniform(seed: Any, offset: Any, base: Any, call: Any, thread: Any, lane: Any) -> Any:
    """The reference knows values only (base -1): addresses exist on a device."""
    counter = (offset.long() >> 2) + call.long()
    words = [counter & _LOW, (counter >> 32) & _LOW, thread.long() & _LOW, thread.long() >> 32 & _LOW]
    low, high = seed.long() & _LOW, (seed.long() >> 32) & _LOW
    for _ in range(10):
        first, second = _wide_product(words[0], 0xD2511F53), _wide_product(words[2], 0xCD9E8D57)
        words = [second[0] ^ words[1] ^ low, second[1], first[0] ^ words[3] ^ high, first[1]]
        low, high = (low + 0x9E3779B9) & _LOW, (high + 0xBB67AE85) & _LOW
    word = torch.stack(torch.broadcast_tensors(*words)).gather(0, (lane.long() + words[0] * 0).unsqueeze(0) & 3)[0]
    return word.float() * 2.0**-32 + 2.0**-33


_LOW = 0xFFFFFFFF


def _wide_product(a: Any, factor: int) -> tuple[Any, Any]:
    """High and low 32 bits of a product of unsigned 32-bit numbers held in int64."""
    lower, upper = (a & 0xFFFF) * factor, (a >> 16) * factor
    middle = (lower >> 16) + (upper & 0xFFFF)
    return (upper >> 16) + (middle >> 16), ((middle & 0xFFFF) << 16) | (lower & 0xFFFF)


def _float32(operands: Dtypes, given: torch.dtype | None) -> torch.dtype:
    return torch.float32


# philox_uniform(seed, offset, base, call, thread, lane): word `lane` of the `call`-th draw of four that thread `thread` of an
# eager CUDA kernel takes from the stream `seed`, started at `offset`, as a float in (0, 1]. Where base is not -1 the first two
# are device addresses of int64, and base is added to the offset found there. All operands are int64. GPU only.
register(ScalarOp("philox_uniform", 6, _float32, _keep(_philox_uniform), "philox"))


# Conversion: float to integer truncates, anything to bool is "!= 0", to float16/bfloat16 rounds half to even.
def _to_dtype(a: Any, *, dtype: torch.dtype) -> Any:
    return a.to(dtype)


def _bitcast(a: Any, *, dtype: torch.dtype) -> Any:
    return a.view(dtype)


register(ScalarOp("to_dtype", 1, _given, _to_dtype, "any"))
register(ScalarOp("bitcast", 1, _given, _bitcast, "any"))


def _check_bounds(position: Any, size: Any) -> Any:
    if bool(((position < 0) | (position >= size)).any()):
        raise IndexError("index out of range")
    return position


# check_bounds(position, size): position, after asserting 0 <= position < size at run time.
register(ScalarOp("check_bounds", 2, _first, _keep(_check_bounds), "integer"))
