"""Scalar op -> Triton text, with eager's semantics.

In: an op's name, its operands as texts (names of blocks), their dtypes and the result's. Out: one expression. Ops whose text is
longer than a line are calls of ``helpers.py``; transcendental functions are ``libdevice``'s or, as accurate, ``elementary.py``'s.
The table is checked against ``ops/table.py`` in the tests: an op without text cannot be forgotten.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from attrs import frozen

from ...ops.dtypes import EIGHTHS, NARROW, saturates
from ..errors import UnsupportedKernel
from .types import UNSIGNED, bits, literal, type_text


@frozen
class Operation:
    """One use of an op: operand texts and dtypes, result dtype, and ``need(helper)``, which asks for a helper function."""

    name: str
    args: Sequence[str]
    dtypes: Sequence[torch.dtype]
    dtype: torch.dtype
    need: Callable[[str], str]

    @property
    def floating(self) -> bool:
        return self.dtypes[0].is_floating_point


#: Of float8_e4m3fn: beyond this a number is nearer to what would come after 448.
_ROUNDED_TO_LARGEST = 464.0
Text = Callable[[Operation], str]
_TEXTS: dict[str, Text] = {}


def register(name: str, text: Text) -> None:
    """Give an op its text; each once."""
    if name in _TEXTS:
        raise ValueError(f"op {name} has two Triton texts")
    _TEXTS[name] = text


def op_names() -> frozenset[str]:
    """The ops that have a text."""
    return frozenset(_TEXTS)


def op_text(operation: Operation) -> str:
    """The expression of one use. Raises UnsupportedKernel for an op without text."""
    text = _TEXTS.get(operation.name)
    if text is None:
        raise UnsupportedKernel(f"no Triton text for op {operation.name}")
    return text(operation)


def cast_text(text: str, source: torch.dtype, target: torch.dtype) -> str:
    """``text`` converted as ``Tensor.to`` does."""
    if source is target:
        return text
    if target is torch.bool:
        return f"({text} != 0)"
    if target in NARROW and source is not torch.float32 and source not in NARROW:
        # Eager goes through float32.
        return cast_text(f"{text}.to(tl.float32)", torch.float32, target)
    if source in NARROW and (target in NARROW or target is torch.float64 or not target.is_floating_point):
        return cast_text(f"{text}.to(tl.float32)", torch.float32, target)
    if target in EIGHTHS and not saturates(target):
        # The instruction gives the largest number for what is beyond it; eager gives NaN.
        return f"tl.where(tl.abs({text}) <= {_ROUNDED_TO_LARGEST}, {text}, float('nan')).to({type_text(target)})"
    if source.is_floating_point and target in UNSIGNED:
        # A negative value wraps around, as in eager, instead of being clamped.
        return f"{text}.to(tl.int64).to({type_text(target)})"
    return f"{text}.to({type_text(target)})"


def _infix(symbol: str) -> Text:
    return lambda o: f"({o.args[0]} {symbol} {o.args[1]})"


def _library(name: str) -> Text:
    return lambda o: f"libdevice.{name}({', '.join(o.args)})"


def _call(helper: str) -> Text:
    return lambda o: f"{o.need(helper)}({', '.join(o.args)})"


def _by_kind(floating: Text, integer: Text) -> Text:
    return lambda o: floating(o) if o.floating else integer(o)


def _signed(signed: Text, unsigned: Text) -> Text:
    return lambda o: unsigned(o) if o.dtypes[0] in UNSIGNED else signed(o)


def _with_width(helper: str) -> Text:
    return lambda o: f"{o.need(helper)}({', '.join(o.args)}, {bits(o.dtypes[0])})"


for _name, _symbol in {
    "add": "+", "sub": "-", "mul": "*", "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=",
    "logical_and": "&", "logical_or": "|", "logical_xor": "^", "bitwise_and": "&", "bitwise_or": "|", "bitwise_xor": "^",
}.items():  # fmt: skip
    register(_name, _infix(_symbol))

for _name in (
    "exp", "exp2", "expm1", "log", "log2", "log10", "rsqrt", "sin", "cos", "tan", "asin", "acos", "atan", "sinh",
    "cosh", "asinh", "acosh", "atanh", "erf", "erfc", "erfinv", "lgamma", "atan2", "hypot", "copysign", "nextafter",
):  # fmt: skip
    register(_name, _library(_name))

register("tanh", lambda o: (_call("tanh_float") if o.dtype is torch.float32 else _library("tanh"))(o))
register("log1p", lambda o: (_call("log1p_float") if o.dtype is torch.float32 else _library("log1p"))(o))
register("truediv", _call("divide"))
register("reciprocal", lambda o: f"{o.need('divide')}({literal(1.0, o.dtype)}, {o.args[0]})")
register("floordiv", _by_kind(_call("floordiv_float"), _signed(_call("floordiv_int"), _infix("//"))))
register(
    "truncdiv",
    _by_kind(lambda o: f"{o.need('truncate')}({o.need('divide')}({o.args[0]}, {o.args[1]}))", _infix("//")),
)
register("remainder", _by_kind(_call("remainder_float"), _signed(_call("remainder_int"), _infix("%"))))
register("fmod", _by_kind(_library("fmod"), _infix("%")))
# 0 - x, which Triton writes for -x, would turn -0.0 round.
register("neg", _by_kind(lambda o: f"({o.args[0]} * -1.0)", lambda o: f"(0 - {o.args[0]})"))
register("abs", _signed(lambda o: f"tl.abs({o.args[0]})", lambda o: o.args[0]))
register(
    "sign",
    lambda o: f"(({o.args[0]} > 0).to({type_text(o.dtype)}) - ({o.args[0]} < 0).to({type_text(o.dtype)}))",
)
register("maximum", _by_kind(_call("maximum"), lambda o: f"tl.maximum({o.args[0]}, {o.args[1]})"))
register("minimum", _by_kind(_call("minimum"), lambda o: f"tl.minimum({o.args[0]}, {o.args[1]})"))
# Which of the operands tl.maximum drops when one is NaN differs between Triton's versions.
register(
    "fmax", lambda o: f"tl.where(({o.args[0]} > {o.args[1]}) | ({o.args[1]} != {o.args[1]}), {o.args[0]}, {o.args[1]})"
)
register(
    "fmin", lambda o: f"tl.where(({o.args[0]} < {o.args[1]}) | ({o.args[1]} != {o.args[1]}), {o.args[0]}, {o.args[1]})"
)
register("relu", lambda o: f"tl.where({o.args[0]} < 0, {literal(0, o.dtype)}, {o.args[0]})")
register("fma", lambda o: f"tl.fma({', '.join(o.args)})")
register("logical_not", lambda o: f"({o.args[0]} == 0)")
register("bitwise_not", _signed(lambda o: f"(~{o.args[0]})", lambda o: f"({o.args[0]} ^ {2 ** bits(o.dtype) - 1})"))
register("shift_left", _with_width("shift_left"))
register("shift_right", _signed(_with_width("shift_right_signed"), _with_width("shift_right_unsigned")))
register("isnan", lambda o: f"({o.args[0]} != {o.args[0]})")
register("isinf", lambda o: f"(tl.abs({o.args[0]}) == float('inf'))")


def _signbit(o: Operation) -> str:
    if not o.floating:
        return f"({o.args[0]} < 0)"
    return f"({o.args[0]}.to(tl.int{bits(o.dtypes[0])}, bitcast=True) < 0)"


register("signbit", _signbit)
register("where", lambda o: f"tl.where({', '.join(o.args)})")
register("floor", lambda o: f"tl.floor({o.args[0]})")
register("ceil", lambda o: f"tl.ceil({o.args[0]})")
register("trunc", _call("truncate"))
register("round", _library("rint"))
register("sqrt", lambda o: f"tl.sqrt{'' if o.dtype is torch.float64 else '_rn'}({o.args[0]})")
register("sigmoid", _call("sigmoid"))
register("digamma", _call("digamma"))
register("pow", _by_kind(_library("pow"), _signed(_with_width("power_int"), _with_width("power_unsigned"))))
register("philox_uniform", _call("philox_uniform"))
register("to_dtype", lambda o: cast_text(o.args[0], o.dtypes[0], o.dtype))
register("bitcast", lambda o: f"{o.args[0]}.to({type_text(o.dtype)}, bitcast=True)")
