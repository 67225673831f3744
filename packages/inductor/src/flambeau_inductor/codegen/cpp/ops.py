"""Scalar op -> C++ text, for a register of lanes and for one value alike (support functions are overloaded).

In: an op's name, operand texts, the operand's dtype. Out: an expression. Functions are asked for by ``call``, which knows what a unit needs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from attrs import frozen

from ...effects import DIVISIONS
from ...ops.table import names


@frozen
class Operation:
    """One use of an op on operands of ``dtype``, in ``lanes`` or on one value. ``mask``: the predicate of the lanes where a failure counts, "" for none.
    ``call(function, arguments)`` is the text of a call of a support function."""

    name: str
    args: Sequence[str]
    dtype: torch.dtype
    lanes: bool
    mask: str
    call: Callable[..., str]


Text = Callable[[Operation], str]
_TABLE: dict[str, Text] = {}


def _register(name: str, text: Text) -> None:
    if name in _TABLE:
        raise ValueError(f"C++ text of {name} is registered twice")
    _TABLE[name] = text


def op_text(operation: Operation) -> str:
    """The expression of one use."""
    return _TABLE[operation.name](operation)


def reports_failure(name: str, dtype: torch.dtype) -> bool:
    """Whether op ``name`` on operands of ``dtype`` may end the kernel: those of whole numbers report a division by zero."""
    return name in DIVISIONS and not dtype.is_floating_point


def _template(template: str) -> Text:
    return lambda o: template.format(*o.args)


def _call(function: str) -> Text:
    return lambda o: o.call(function, *o.args)


def _by_kind(floating: Text, integer: Text) -> Text:
    return lambda o: floating(o) if o.dtype.is_floating_point else integer(o)


def _division(function: str, floating: Text) -> Text:
    return _by_kind(floating, lambda o: o.call(function, *o.args, "&failed", *([o.mask] if o.mask else [])))


def _negation(o: Operation) -> str:
    return f"~{o.args[0]}" if o.lanes else f"!{o.args[0]}"


def _inversion(o: Operation) -> str:
    return f"!{o.args[0]}" if o.dtype is torch.bool and not o.lanes else f"~{o.args[0]}"


for _name, _sign in (("add", "+"), ("sub", "-"), ("mul", "*"), ("bitwise_and", "&"), ("bitwise_or", "|"), ("bitwise_xor", "^"),
                     ("logical_and", "&"), ("logical_or", "|"), ("logical_xor", "^")):  # fmt: skip
    _register(_name, _template("{0} " + _sign + " {1}"))
for _name in ("eq", "ne", "lt", "le", "gt", "ge", "maximum", "minimum", "fmax", "fmin", "shift_left", "shift_right", "atan2", "hypot",
              "copysign", "nextafter"):  # fmt: skip
    _register(_name, _call(_name))
for _name in ("abs", "isnan", "isinf", "signbit", "floor", "ceil", "trunc", "exp", "exp2", "expm1", "log", "log2", "log1p", "log10",
              "sqrt", "rsqrt", "reciprocal", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh",
              "erf", "erfc", "erfinv", "lgamma", "digamma", "sigmoid", "relu", "sign"):  # fmt: skip
    _register(_name, _call(_name))
_register("round", _call("round_even"))
_register("neg", _template("-({0})"))
_register("where", _call("select"))
_register("fma", _call("fma"))
_register("truediv", _call("divide"))
_register("floordiv", _division("div_floor", _call("float_div_floor")))
_register("truncdiv", _division("div_trunc", lambda o: o.call("trunc", o.call("divide", *o.args))))
_register("remainder", _division("mod_floor", _call("float_mod_floor")))
_register("fmod", _division("mod_trunc", _call("fmod")))
_register("pow", _by_kind(_call("pow"), _call("ipow")))
_register("logical_not", _negation)
_register("bitwise_not", _inversion)


def _gpu_only(o: Operation) -> str:
    raise NotImplementedError("CUDA's random streams are drawn from by GPU kernels only")


_register("philox_uniform", _gpu_only)

#: Ops that the printer writes itself, with more context than an operand's text.
SPECIAL = ("to_dtype", "bitcast", "check_bounds")

_missing = set(names()) - set(_TABLE) - set(SPECIAL)
if _missing:
    raise AssertionError(f"no C++ text for {', '.join(sorted(_missing))}")
