"""Scalar op -> C++ text, for a register of lanes and for one value alike (``fb::`` functions are overloaded).

In: an op's name, operand texts, the operand's dtype. Out: an expression. ``{t}`` is the lane predicate, present in vector code only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from ...effects import DIVISIONS
from ...ops.table import names

Text = Callable[[Sequence[str], torch.dtype, "str | None"], str]
_TABLE: dict[str, Text] = {}


def _register(name: str, text: Text) -> None:
    if name in _TABLE:
        raise ValueError(f"C++ text of {name} is registered twice")
    _TABLE[name] = text


def op_text(name: str, args: Sequence[str], dtype: torch.dtype, predicate: str | None) -> str:
    """The expression for op ``name`` on operands of ``dtype``; ``predicate`` is None for scalars."""
    return _TABLE[name](args, dtype, predicate)


def reports_failure(name: str, dtype: torch.dtype) -> bool:
    """Whether op ``name`` on operands of ``dtype`` may end the kernel: those of whole numbers report a division by zero."""
    return name in DIVISIONS and not dtype.is_floating_point


def _template(template: str) -> Text:
    def text(args: Sequence[str], dtype: torch.dtype, predicate: str | None) -> str:
        return template.format(*args)

    return text


def _by_kind(floating: str, integer: str) -> Text:
    def text(args: Sequence[str], dtype: torch.dtype, predicate: str | None) -> str:
        return (floating if dtype.is_floating_point else integer).format(*args)

    return text


def _division(function: str, floating: str) -> Text:
    def text(args: Sequence[str], dtype: torch.dtype, predicate: str | None) -> str:
        if dtype.is_floating_point:
            return floating.format(*args)
        lanes = "" if predicate is None else f", {predicate}"
        return f"fb::{function}({args[0]}, {args[1]}, &failed{lanes})"

    return text


def _negation(args: Sequence[str], dtype: torch.dtype, predicate: str | None) -> str:
    return f"~{args[0]}" if predicate is not None else f"!{args[0]}"


def _inversion(args: Sequence[str], dtype: torch.dtype, predicate: str | None) -> str:
    return f"!{args[0]}" if dtype is torch.bool and predicate is None else f"~{args[0]}"


for _name, _sign in (("add", "+"), ("sub", "-"), ("mul", "*"), ("bitwise_and", "&"), ("bitwise_or", "|"), ("bitwise_xor", "^"),
                     ("logical_and", "&"), ("logical_or", "|"), ("logical_xor", "^")):  # fmt: skip
    _register(_name, _template("{0} " + _sign + " {1}"))
for _name in ("eq", "ne", "lt", "le", "gt", "ge", "maximum", "minimum", "fmax", "fmin", "shift_left", "shift_right", "atan2", "hypot",
              "copysign", "nextafter"):  # fmt: skip
    _register(_name, _template(f"fb::{_name}({{0}}, {{1}})"))
for _name in ("abs", "isnan", "isinf", "signbit", "floor", "ceil", "trunc", "exp", "exp2", "expm1", "log", "log2", "log1p", "log10",
              "sqrt", "rsqrt", "reciprocal", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh",
              "erf", "erfc", "erfinv", "lgamma", "digamma", "sigmoid", "relu", "sign"):  # fmt: skip
    _register(_name, _template(f"fb::{_name}({{0}})"))
_register("round", _template("fb::round_even({0})"))
_register("neg", _template("-({0})"))
_register("where", _template("fb::select({0}, {1}, {2})"))
_register("fma", _template("fb::fma({0}, {1}, {2})"))
_register("truediv", _template("fb::divide({0}, {1})"))
_register("floordiv", _division("div_floor", "fb::float_div_floor({0}, {1})"))
_register("truncdiv", _division("div_trunc", "fb::trunc(fb::divide({0}, {1}))"))
_register("remainder", _division("mod_floor", "fb::float_mod_floor({0}, {1})"))
_register("fmod", _division("mod_trunc", "fb::fmod({0}, {1})"))
_register("pow", _by_kind("fb::pow({0}, {1})", "fb::ipow({0}, {1})"))
_register("logical_not", _negation)
_register("bitwise_not", _inversion)


def _gpu_only(args: Sequence[str], dtype: torch.dtype, predicate: str | None) -> str:
    raise NotImplementedError("CUDA's random streams are drawn from by GPU kernels only")


_register("philox_uniform", _gpu_only)

#: Ops that the emitter writes itself, with more context than an operand's text.
SPECIAL = ("to_dtype", "bitcast", "check_bounds")

_missing = set(names()) - set(_TABLE) - set(SPECIAL)
if _missing:
    raise AssertionError(f"no C++ text for {', '.join(sorted(_missing))}")
