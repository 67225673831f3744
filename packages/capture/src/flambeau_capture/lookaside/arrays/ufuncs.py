"""NumPy's universal functions, operators of arrays among them.

In: a call of a ufunc. Out: NumPy resolves the dtypes (of the loop, and of the result), operands are converted to those, torch's function of the same meaning
computes, NumPy says how the result is laid out. A ufunc is listed with the kinds of dtypes for which torch's function agrees.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from attrs import frozen

from ...library import operator as op
from ...numpy_classes import DTYPES, numpy
from ...values.ndarrays import ArrayValue
from .calls import Unknown, computes, known, refuse
from .operands import Operand, apply, ask, converted, operand, result, stand_in, watch_errors

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ...values.base import Tracer, Value
    from ...values.tensor import TensorValue

_PLAIN = (
    op.lshift,
    op.rshift,
    op.add,
    op.sub,
    op.mul,
    op.truediv,
    op.lt,
    op.le,
    op.eq,
    op.ne,
    op.gt,
    op.ge,
    op.and_,
    op.or_,
    op.xor,
)
"""Python's operators take a number on either side; torch's functions get a tensor for it, and `**` too: for some numbers torch has a way of its own."""


@frozen(eq=False)
class Loop:
    """How a ufunc is computed in loops over dtypes of these kinds (`dtype.kind`)."""

    function: Callable[..., Any]
    kinds: str


def _sign(t: Tracer, x: TensorValue) -> TensorValue:
    """nan for nan, where torch gives 0."""
    return apply(t, torch.where, apply(t, torch.isnan, x), x, apply(t, torch.sign, x))


def _remainder(t: Tracer, x: TensorValue, divisor: TensorValue) -> TensorValue:
    """A zero has the sign of the divisor."""
    found = apply(t, torch.remainder, x, divisor)
    zero = apply(t, torch.copysign, apply(t, torch.zeros_like, found), divisor)
    return apply(t, torch.where, apply(t, op.eq, found, 0), zero, found)


_COMPOSED = (_sign, _remainder)
"""Functions of several of torch's."""


def _loops(*pairs: tuple[str, Callable[..., Any]]) -> tuple[Loop, ...]:
    return tuple(Loop(function, kinds) for kinds, function in pairs)


_FLOATS: dict[str, Callable[..., Any]] = {
    "exp": torch.exp, "exp2": torch.exp2, "expm1": torch.expm1, "log": torch.log, "log2": torch.log2, "log10": torch.log10,
    "log1p": torch.log1p, "sqrt": torch.sqrt, "sin": torch.sin, "cos": torch.cos, "tan": torch.tan, "arcsin": torch.asin,
    "arccos": torch.acos, "arctan": torch.atan, "arctan2": torch.atan2, "sinh": torch.sinh, "cosh": torch.cosh, "tanh": torch.tanh,
    "arcsinh": torch.asinh, "arccosh": torch.acosh, "arctanh": torch.atanh, "hypot": torch.hypot, "rint": torch.round, "deg2rad": torch.deg2rad, "rad2deg": torch.rad2deg, "radians": torch.deg2rad,
    "degrees": torch.rad2deg, "reciprocal": torch.reciprocal, "fabs": torch.abs, "logaddexp": torch.logaddexp, "logaddexp2": torch.logaddexp2,
    "copysign": torch.copysign, "signbit": torch.signbit, "float_power": op.pow, "fmod": torch.fmod,
}  # fmt: skip
_RULES: dict[Any, tuple[Loop, ...]] = {
    **{getattr(numpy, name): _loops(("f", function)) for name, function in _FLOATS.items()},
    numpy.add: _loops(("iufc", op.add), ("b", torch.logical_or)),
    numpy.subtract: _loops(("iufc", op.sub)),
    numpy.multiply: _loops(("iufc", op.mul), ("b", torch.logical_and)),
    numpy.true_divide: _loops(("f", op.truediv)),
    numpy.floor_divide: _loops(("fiu", torch.floor_divide)),
    numpy.remainder: _loops(("f", _remainder), ("iu", torch.remainder)),
    numpy.power: _loops(("iuf", op.pow)),
    numpy.square: _loops(("iufc", torch.square)),
    numpy.negative: _loops(("iufc", torch.neg)),
    numpy.positive: _loops(("iufc", torch.clone)),
    numpy.absolute: _loops(("iufc", torch.abs), ("b", torch.clone)),
    numpy.sign: _loops(("iu", torch.sign), ("f", _sign)),
    numpy.floor: _loops(("f", torch.floor), ("biu", torch.clone)),
    numpy.ceil: _loops(("f", torch.ceil), ("biu", torch.clone)),
    numpy.trunc: _loops(("f", torch.trunc), ("biu", torch.clone)),
    numpy.fmax: _loops(("f", torch.fmax), ("iu", torch.maximum), ("b", torch.logical_or)),
    numpy.fmin: _loops(("f", torch.fmin), ("iu", torch.minimum), ("b", torch.logical_and)),
    numpy.conjugate: _loops(("iuf", torch.clone), ("c", torch.conj_physical)),
    numpy.maximum: _loops(("iuf", torch.maximum), ("b", torch.logical_or)),
    numpy.minimum: _loops(("iuf", torch.minimum), ("b", torch.logical_and)),
    numpy.isnan: _loops(("biufc", torch.isnan)),
    numpy.isinf: _loops(("biufc", torch.isinf)),
    numpy.isfinite: _loops(("biufc", torch.isfinite)),
    numpy.equal: _loops(("biufc", op.eq)),
    numpy.not_equal: _loops(("biufc", op.ne)),
    **{
        function: _loops(("biuf", compare))
        for function, compare in (
            (numpy.less, op.lt),
            (numpy.less_equal, op.le),
            (numpy.greater, op.gt),
            (numpy.greater_equal, op.ge),
        )
    },
    numpy.logical_and: _loops(("biufc", torch.logical_and)),
    numpy.logical_or: _loops(("biufc", torch.logical_or)),
    numpy.logical_xor: _loops(("biufc", torch.logical_xor)),
    numpy.logical_not: _loops(("biufc", torch.logical_not)),
    numpy.bitwise_and: _loops(("biu", op.and_)),
    numpy.bitwise_or: _loops(("biu", op.or_)),
    numpy.bitwise_xor: _loops(("biu", op.xor)),
    numpy.invert: _loops(("biu", torch.bitwise_not)),
    numpy.left_shift: _loops(("iu", op.lshift)),
    numpy.right_shift: _loops(("iu", op.rshift)),
}
with numpy.errstate(all="ignore"):
    _ROOTS = bool(numpy.isnan(numpy.power(numpy.array([-numpy.inf, 1.0]), 0.5)[0]))
"""Whether `numpy.power` takes a root for the exponent 1/2, as the operator does, which differs for infinities and signs of zeros."""
_REFUSED = {
    numpy.power: (0, "to exponents that may be negative"),
    numpy.floor_divide: (1, "by what may be zero"),
    numpy.remainder: (1, "by what may be zero"),
    numpy.left_shift: (0, "by what may be negative"),
    numpy.right_shift: (0, "by what may be negative"),
}
"""Loops over integers that raise, warn or differ for some second operands: from which on they do not, and why they are left to NumPy."""
_SHIFTS = (numpy.left_shift, numpy.right_shift)


def _ufunc(ufunc: Any) -> None:
    loops = _RULES[ufunc]

    @computes(ufunc)
    def rule(t: Tracer, *args: Value, out: Value | None = None, dtype: Value | None = None) -> Value:
        target = _target(t, ufunc, args, out)
        wanted = None if dtype is None else _dtype(t, dtype, ufunc)
        operands = [operand(t, value, ufunc) for value in args[: ufunc.nin]]
        return call(t, ufunc, loops, operands, target, wanted)


def _target(t: Tracer, ufunc: Any, args: Sequence[Value], out: Value | None) -> ArrayValue | None:
    if len(args) not in (ufunc.nin, ufunc.nin + 1) or (len(args) > ufunc.nin and out is not None):
        refuse(ufunc, "of so many arguments")
    found = args[ufunc.nin] if len(args) > ufunc.nin else out
    if found is None or (found.is_constant() and found.constant() is None):
        return None
    if not isinstance(found, ArrayValue) or found.is_scalar:
        refuse(ufunc, f"to {found.describe()}")
    return found


def _dtype(t: Tracer, value: Value, function: Any) -> Any:
    try:
        found = known(t, value)
        return None if found is None else numpy.dtype(found)
    except (Unknown, TypeError):
        refuse(function, "with this dtype")


def call(
    t: Tracer, ufunc: Any, loops: Sequence[Loop], operands: Sequence[Operand], out: ArrayValue | None, dtype: Any
) -> ArrayValue:
    """The ufunc of operands, one of which at least is an array of the graph or is about to be."""
    models = [stand_in(t, each) for each in operands]
    asked = ask(ufunc, models, {} if dtype is None else {"dtype": dtype})
    kinds = [each.kind() for each in operands]
    target = None if out is None else out.dtype()
    signature = None if dtype is None else (*[None] * ufunc.nin, dtype)
    *given, made = ask(ufunc.resolve_dtypes, [(*kinds, target)], {} if signature is None else {"signature": signature})
    if len(set(given)) != 1 or given[0] not in DTYPES or made not in DTYPES:
        refuse(ufunc, f"in a loop over {', '.join(map(str, given))}")
    loop = next((each.function for each in loops if given[0].kind in each.kinds), None)
    if loop is None:
        refuse(ufunc, f"of {given[0]}")
    if given[0].kind in "iu" and ufunc in _REFUSED:
        least, why = _REFUSED[ufunc]
        most = 8 * given[0].itemsize - 1 if ufunc in _SHIFTS else numpy.inf
        if operands[1].array is not None or not least <= operands[1].number <= most:
            refuse(ufunc, f"of integers, {why}")
    if given[0].kind == "f" and _takes_a_root(ufunc, operands):
        return call(t, numpy.sqrt, _RULES[numpy.sqrt], operands[:1], out, dtype or made)
    watch_errors(t)
    is_plain = loop in _PLAIN and any(each.array is not None for each in operands)
    parts = [each.in_loop(t, given[0], as_tensor=not is_plain) for each in operands]
    computed = loop(t, *parts) if loop in _COMPOSED else apply(t, loop, *parts)
    tensor = converted(t, computed, made)
    if out is None:
        return result(t, tensor, asked)
    _refuse_other_shape(ufunc, tensor, out, t)
    return result(t, converted(t, tensor, out.dtype()), _Written(out.dtype()), out)


def _takes_a_root(ufunc: Any, operands: Sequence[Operand]) -> bool:
    return _ROOTS and ufunc is numpy.power and operands[1].array is None and operands[1].number == 0.5


@frozen
class _Written:
    """What NumPy would say of a result that is written to an array."""

    dtype: Any


def _refuse_other_shape(ufunc: Any, tensor: Any, out: ArrayValue, t: Tracer) -> None:
    if tuple(tensor.fake.shape) != tuple(out.tensor(t).fake.shape):
        refuse(ufunc, "to an array of another shape")


for _each in _RULES:
    _ufunc(_each)
