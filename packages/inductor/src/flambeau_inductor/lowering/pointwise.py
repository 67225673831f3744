"""Elementwise ops: tables first, special cases after.

In: tensors and numbers. Out: lazy tensors. Half types are widened to float32 for each op and rounded after it, as eager does;
a number operand is not rounded to the half type first where eager's kernels keep it in float32: the second of a product or quotient.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..devices import Eager, device_of
from ..expr import Expr
from ..ir import scalar as sc
from ..ir.layout import Sizes
from ..ir.scalar import Scalar
from ..ops.dtypes import HALVES
from .builder import Builder
from .registry import Decline, lowers
from .values import TensorValue, broadcast_sizes, compute_dtype, promote

Number = Any


def elementwise(
    g: Builder,
    function: Callable[..., Scalar],
    *operands: Any,
    common: torch.dtype | None = None,
    dtype: torch.dtype | None = None,
    round_numbers: bool = False,
) -> TensorValue:
    """``function`` over broadcast operands in the arithmetic type of ``common`` (default: their promotion).

    The result has dtype ``dtype`` (default: ``common``). ``round_numbers``: a number is rounded to a half type first.
    """
    tensors = [o for o in operands if isinstance(o, TensorValue)]
    joined = common or promote(*operands)
    compute = compute_dtype(joined)
    parts = [o if isinstance(o, TensorValue) else _number(g, o, joined, compute, round_numbers) for o in operands]
    device = _common_device(tensors)
    if any(t.device != device and not t.is_number for t in tensors):
        raise Decline("operands on different devices")
    sizes: Sizes = broadcast_sizes(*(t.sizes for t in tensors))
    return g.pointwise(
        function, *parts, sizes=sizes, dtype=dtype or joined, device=device, compute=compute, through=joined
    )


def _common_device(tensors: Sequence[TensorValue]) -> torch.device:
    """Where a result lives: a number in the host's memory may meet tensors of any device, and the others decide."""
    return next((t.device for t in tensors if t.rank or not device_of(t.device).is_host), tensors[0].device)


def _number(g: Builder, value: Any, joined: torch.dtype, compute: torch.dtype, rounded: bool) -> Scalar:
    if rounded and joined is not compute:
        return g.convert(g.constant(value, joined), compute)
    return g.constant(value, compute)


def _as_stored(g: Builder, value: Scalar, dtype: torch.dtype) -> Scalar:
    """A value rounded to ``dtype`` in the midst of a formula, where eager's kernel computes in a half type."""
    return g.convert(g.convert(value, dtype), value.dtype)


def _is_first(a: Any, b: Any) -> bool:
    """True for a number in front of a tensor whose kernels make an operand of it (the CPU's do): rounded to the half type."""
    return not isinstance(a, TensorValue) and isinstance(b, TensorValue) and device_of(b.device).eager.rounds_numbers


def _scaled(g: Builder, function: Callable[..., Scalar], a: Any, b: Any, joined: torch.dtype) -> TensorValue:
    """A product or quotient: eager's CPU kernels read a second operand of no dimensions as a number, which is not rounded to a half type."""
    if _is_read_as_number(a, b, joined):
        return elementwise(g, lambda x: function(x, g.convert(b.at(()), x.dtype)), a, common=joined)
    return elementwise(g, function, a, b, common=joined, round_numbers=_is_first(a, b))


def _is_read_as_number(a: Any, b: Any, joined: torch.dtype) -> bool:
    tensors = isinstance(a, TensorValue) and isinstance(b, TensorValue)
    return (
        tensors
        and not b.rank
        and joined in HALVES
        and a.device.type == b.device.type
        and device_of(b.device).eager.reads_second_as_number
    )


def _op(name: str) -> Callable[..., Scalar]:
    return lambda *parts: sc.op(name, *parts)


def _float_of(*operands: Any) -> torch.dtype:
    joined = promote(*operands)
    return joined if joined.is_floating_point else torch.get_default_dtype()


# Unary ops whose result is floating point (integers are converted to the default dtype first).
_UNARY_FLOAT = {
    "exp": "exp", "exp2": "exp2", "expm1": "expm1", "log": "log", "log2": "log2", "log1p": "log1p", "log10": "log10",
    "sqrt": "sqrt", "rsqrt": "rsqrt", "reciprocal": "reciprocal", "sin": "sin", "cos": "cos", "tan": "tan", "asin": "asin",
    "acos": "acos", "atan": "atan", "sinh": "sinh", "cosh": "cosh", "tanh": "tanh", "asinh": "asinh", "acosh": "acosh",
    "atanh": "atanh", "erf": "erf", "erfc": "erfc", "erfinv": "erfinv", "lgamma": "lgamma", "digamma": "digamma",
    "sigmoid": "sigmoid",
}  # fmt: skip
_UNARY_SAME = {"neg": "neg", "abs": "abs", "sign": "sign", "relu": "relu", "bitwise_not": "bitwise_not"}
_ROUNDING = ("floor", "ceil", "trunc", "round")
_BINARY_SAME = {
    "mul.Tensor": "mul", "mul.Scalar": "mul", "maximum": "maximum", "minimum": "minimum", "bitwise_and.Tensor": "bitwise_and",
    "bitwise_and.Scalar": "bitwise_and", "bitwise_or.Tensor": "bitwise_or", "bitwise_or.Scalar": "bitwise_or",
    "bitwise_xor.Tensor": "bitwise_xor", "bitwise_xor.Scalar": "bitwise_xor", "bitwise_left_shift.Tensor": "shift_left",
    "bitwise_left_shift.Tensor_Scalar": "shift_left", "bitwise_right_shift.Tensor": "shift_right",
    "bitwise_right_shift.Tensor_Scalar": "shift_right",
}  # fmt: skip
_BINARY_FLOAT = {
    "atan2": "atan2",
    "hypot": "hypot",
    "copysign.Tensor": "copysign",
    "copysign.Scalar": "copysign",
    "nextafter": "nextafter",
}
#: The kinds of the loop IR's scans that combine elements by these.
_SCANS = {"mul.Tensor": "prod", "maximum": "max", "minimum": "min", "logaddexp": "logaddexp"}
_COMPARE = ("eq", "ne", "lt", "le", "gt", "ge")
_LOGICAL = ("logical_and", "logical_or", "logical_xor")


def _register_unary_float(name: str, op: str) -> None:
    @lowers(name)
    def rule(g: Builder, a: TensorValue) -> TensorValue:
        return elementwise(g, _op(op), a, common=_float_of(a))


def _register_unary_same(name: str, op: str) -> None:
    @lowers(name)
    def rule(g: Builder, a: TensorValue) -> TensorValue:
        if a.dtype is torch.bool:
            if op == "bitwise_not":
                return elementwise(g, _op("logical_not"), a)
            if op == "sign":
                return a
            raise Decline("bool")
        if op == "bitwise_not" and a.dtype.is_floating_point:
            raise Decline("float")
        return elementwise(g, _op(op), a)


def _register_rounding(name: str) -> None:
    @lowers(name)
    def rule(g: Builder, a: TensorValue) -> TensorValue:
        if a.dtype is torch.bool:
            raise Decline("bool")
        return elementwise(g, _op(name), a) if a.dtype.is_floating_point else a


_BOOL_BINARY = {
    "mul": "logical_and", "maximum": "logical_or", "minimum": "logical_and", "bitwise_and": "logical_and",
    "bitwise_or": "logical_or", "bitwise_xor": "logical_xor",
}  # fmt: skip


def _register_binary_same(name: str, op: str) -> None:
    @lowers(name, scan=_SCANS.get(name, ""))
    def rule(g: Builder, a: Any, b: Any) -> TensorValue:
        joined = promote(a, b)
        if joined is torch.bool:
            if op not in _BOOL_BINARY:
                raise Decline("bool")
            return elementwise(g, _op(_BOOL_BINARY[op]), a, b)
        if op.startswith(("bitwise", "shift")) and joined.is_floating_point:
            raise Decline("float")
        return _scaled(g, _op(op), a, b, joined) if op == "mul" else elementwise(g, _op(op), a, b)


def _register_binary_float(name: str, op: str) -> None:
    @lowers(name)
    def rule(g: Builder, a: Any, b: Any) -> TensorValue:
        joined = _float_of(a, b)
        if op == "nextafter" and compute_dtype(joined) is not joined:
            raise Decline("half precision")
        return elementwise(g, _op(op), a, b, common=joined)


def _register_compare(name: str, op: str) -> None:
    @lowers(name)
    def rule(g: Builder, a: Any, b: Any) -> TensorValue:
        joined = promote(a, b)
        if joined is torch.bool:
            # bool < bool compares 0 and 1.
            return elementwise(g, _op(op), a, b, common=torch.uint8, dtype=torch.bool)
        parts = [_rounded(g, o, joined) for o in (a, b)]
        return elementwise(g, _op(op), *parts, common=joined, dtype=torch.bool)


def _rounded(g: Builder, operand: Any, dtype: torch.dtype) -> Any:
    """A number becomes what a tensor's type makes of it first: rounded to half precision, wrapped around in a short integer."""
    exact = dtype.is_floating_point or dtype.is_complex
    if isinstance(operand, TensorValue) or (exact and compute_dtype(dtype) is dtype):
        return operand
    if exact:
        return g.constant(operand, dtype)
    if isinstance(operand, int):
        limits = torch.iinfo(dtype)
        return (operand - limits.min) % (1 << limits.bits) + limits.min
    return g.convert(g.constant(operand, torch.int64), dtype)


def _register_logical(name: str) -> None:
    @lowers(name)
    def rule(g: Builder, a: TensorValue, b: TensorValue) -> TensorValue:
        return elementwise(g, _op(name), a, b, common=torch.bool)


for _name, _target in _UNARY_FLOAT.items():
    _register_unary_float(_name, _target)
for _name, _target in _UNARY_SAME.items():
    _register_unary_same(_name, _target)
for _name in _ROUNDING:
    _register_rounding(_name)
for _name, _target in _BINARY_SAME.items():
    _register_binary_same(_name, _target)
for _name, _target in _BINARY_FLOAT.items():
    _register_binary_float(_name, _target)
for _name in _COMPARE:
    _register_compare(f"{_name}.Tensor", _name)
    _register_compare(f"{_name}.Scalar", _name)
for _name in _LOGICAL:
    _register_logical(_name)


@lowers("logical_not")
def logical_not(g: Builder, a: TensorValue) -> TensorValue:
    return elementwise(g, _op("logical_not"), a, common=torch.bool)


@lowers("isnan")
def isnan(g: Builder, a: TensorValue) -> TensorValue:
    if not a.dtype.is_floating_point:
        return elementwise(g, lambda x: sc.constant(False, torch.bool), a, dtype=torch.bool)
    return elementwise(g, _op("isnan"), a, dtype=torch.bool)


@lowers("isinf")
def isinf(g: Builder, a: TensorValue) -> TensorValue:
    if not a.dtype.is_floating_point:
        return elementwise(g, lambda x: sc.constant(False, torch.bool), a, dtype=torch.bool)
    return elementwise(g, _op("isinf"), a, dtype=torch.bool)


@lowers("signbit")
def signbit(g: Builder, a: TensorValue) -> TensorValue:
    if not a.dtype.is_floating_point:
        if a.dtype in (torch.bool, torch.uint8):
            return elementwise(g, lambda x: sc.constant(False, torch.bool), a, dtype=torch.bool)
        return elementwise(g, lambda x: sc.op("lt", x, sc.constant(0, x.dtype)), a, dtype=torch.bool)
    return elementwise(g, _op("signbit"), a, dtype=torch.bool)


def _any_eager(a: Any, b: Any, asked: Callable[[Eager], bool]) -> bool:
    """Whether eager's kernels do so where one of the operands lies."""
    return any(isinstance(o, TensorValue) and asked(device_of(o.device).eager) for o in (a, b))


def _is_one(alpha: Any) -> bool:
    return isinstance(alpha, int | float) and alpha == 1


def _sum_rule(g: Builder, a: Any, b: Any, alpha: Number, op: str) -> TensorValue:
    joined = promote(a, b)
    if joined is torch.bool:
        if op == "sub" or not _is_one(alpha):
            raise Decline("bool")
        return elementwise(g, _op("logical_or"), a, b)
    compute = compute_dtype(joined)
    # Eager's CPU kernels round the number of a sum to the half type; its GPU kernels keep it in float32.
    rounded = _any_eager(a, b, lambda eager: eager.rounds_numbers)
    if _is_one(alpha):
        return elementwise(g, _op(op), a, b, round_numbers=rounded)
    if joined.is_floating_point:
        # The number is negated as it is: an integer's zero stays positive.
        negated = op == "sub" and isinstance(alpha, int | float)
        scale = _number(g, -alpha if negated else alpha, joined, compute, rounded)
        scale = sc.op("neg", scale) if op == "sub" and not negated else scale
        return elementwise(g, lambda x, y: sc.op("fma", y, scale, x), a, b, round_numbers=rounded)
    factor = _number(g, alpha, joined, compute, rounded)
    return elementwise(g, lambda x, y: sc.op(op, x, sc.op("mul", y, factor)), a, b, round_numbers=rounded)


def _product_added(x: Scalar, y: Scalar, z: Scalar) -> Scalar:
    """``x + y * z`` in one rounding for floats: eager's kernels are compiled with contraction."""
    if x.dtype.is_floating_point:
        return sc.op("fma", y, z, x)
    return sc.op("add", x, sc.op("mul", y, z))


@lowers("add.Tensor", scan="sum")
@lowers("add.Scalar")
def add(g: Builder, a: Any, b: Any, alpha: Number = 1) -> TensorValue:
    return _sum_rule(g, a, b, alpha, "add")


@lowers("sub.Tensor", "sub.Scalar")
def sub(g: Builder, a: Any, b: Any, alpha: Number = 1) -> TensorValue:
    return _sum_rule(g, a, b, alpha, "sub")


@lowers("rsub.Tensor", "rsub.Scalar")
def rsub(g: Builder, a: Any, b: Any, alpha: Number = 1) -> TensorValue:
    return _sum_rule(g, b, a, alpha, "sub") if _is_one(alpha) else _reject("alpha")


def _reject(reason: str) -> TensorValue:
    raise Decline(reason)


@lowers("div.Tensor", "div.Scalar", "true_divide.Tensor")
def div(g: Builder, a: Any, b: Any) -> TensorValue:
    return _scaled(g, _op("truediv"), a, b, _float_of(a, b))


@lowers("div.Tensor_mode", "div.Scalar_mode")
def div_mode(g: Builder, a: Any, b: Any, rounding_mode: str | None = None) -> TensorValue:
    if rounding_mode is None:
        return div(g, a, b)
    joined = promote(a, b)
    if not joined.is_floating_point:
        return _integer_division(g, a, b, joined, "floordiv" if rounding_mode == "floor" else "truncdiv")
    if rounding_mode == "floor":
        return _scaled(g, _op("floordiv"), a, b, joined)
    by_number = not isinstance(b, TensorValue) or _is_read_as_number(a, b, joined)

    def truncated(x: Scalar, y: Scalar) -> Scalar:
        # Eager rounds the quotient to the half type before it truncates, except where it divides by a number.
        quotient = sc.op("truediv", x, y)
        return sc.op("trunc", quotient if by_number else _as_stored(g, quotient, joined))

    return _scaled(g, truncated, a, b, joined)


def _integer_division(g: Builder, a: Any, b: Any, joined: torch.dtype, op: str) -> TensorValue:
    # Where eager raises on a zero divisor only a divisor known not to be zero is safe in a loop.
    checked = _any_eager(a, b, lambda eager: eager.divisors_are_checked)
    if checked and not (isinstance(b, int) and b != 0) and not (isinstance(b, Expr) and b.lo > 0):
        raise Decline("integer division by a tensor")
    if joined is torch.bool:
        raise Decline("bool")
    return elementwise(g, _op(op), a, b, common=joined)


@lowers("floor_divide", "floor_divide.Scalar")
def floor_divide(g: Builder, a: Any, b: Any) -> TensorValue:
    return div_mode(g, a, b, rounding_mode="floor")


@lowers("remainder.Tensor", "remainder.Scalar")
def remainder(g: Builder, a: Any, b: Any) -> TensorValue:
    joined = promote(a, b)
    if not joined.is_floating_point:
        return _integer_division(g, a, b, joined, "remainder")
    return elementwise(g, _op("remainder"), a, b, round_numbers=True)


@lowers("fmod.Tensor", "fmod.Scalar")
def fmod(g: Builder, a: Any, b: Any) -> TensorValue:
    joined = promote(a, b)
    if not joined.is_floating_point:
        return _integer_division(g, a, b, joined, "fmod")
    return elementwise(g, _op("fmod"), a, b, round_numbers=True)


@lowers("frac")
def frac(g: Builder, a: TensorValue) -> TensorValue:
    if not a.dtype.is_floating_point:
        raise Decline("integers")
    return elementwise(g, lambda x: sc.op("sub", x, sc.op("trunc", x)), a)


@lowers("fmax")
def fmax(g: Builder, a: TensorValue, b: TensorValue) -> TensorValue:
    return elementwise(g, _op("fmax" if promote(a, b).is_floating_point else "maximum"), a, b)


@lowers("fmin")
def fmin(g: Builder, a: TensorValue, b: TensorValue) -> TensorValue:
    return elementwise(g, _op("fmin" if promote(a, b).is_floating_point else "minimum"), a, b)


@lowers("pow.Tensor_Scalar")
def pow_scalar(g: Builder, a: TensorValue, exponent: Number) -> TensorValue:
    joined = promote(a, exponent)
    if joined is torch.bool:
        raise Decline("bool")
    if not joined.is_floating_point and not (isinstance(exponent, int) and exponent >= 0):
        raise Decline("integer power")
    if isinstance(exponent, int | float):
        special = _SPECIAL_POWERS.get(float(exponent))
        if abs(exponent) == 0.5 and joined is torch.float16 and not device_of(a.device).eager.roots_of_halves:
            # Eager's kernel takes no root there: (-inf) ** 0.5 is inf.
            special = None
        if special is not None and (joined.is_floating_point or float(exponent) in (0.0, 1.0, 2.0, 3.0)):
            return elementwise(g, special, a, common=joined)
    return elementwise(g, _op("pow"), a, exponent, common=joined, round_numbers=True)


_SPECIAL_POWERS: dict[float, Callable[[Scalar], Scalar]] = {
    0.0: lambda x: sc.constant(1, x.dtype),
    0.5: lambda x: sc.op("sqrt", x),
    1.0: lambda x: x,
    2.0: lambda x: sc.op("mul", x, x),
    3.0: lambda x: sc.op("mul", sc.op("mul", x, x), x),
    -0.5: lambda x: sc.op("rsqrt", x),
    -1.0: lambda x: sc.op("reciprocal", x),
    -2.0: lambda x: sc.op("reciprocal", sc.op("mul", x, x)),
}


@lowers("pow.Tensor_Tensor", "pow.Scalar")
def pow_tensor(g: Builder, a: Any, b: TensorValue) -> TensorValue:
    joined = promote(a, b)
    if not joined.is_floating_point:
        raise Decline("integer power")
    return elementwise(g, _op("pow"), a, b, round_numbers=True)


@lowers("where.self", "where.ScalarOther", "where.ScalarSelf", "where.Scalar")
def where(g: Builder, condition: TensorValue, a: Any, b: Any) -> TensorValue:
    joined = promote(a, b)
    tensors = [o for o in (condition, a, b) if isinstance(o, TensorValue)]
    sizes = broadcast_sizes(*(t.sizes for t in tensors))
    parts = [o if isinstance(o, TensorValue) else g.constant(o, joined) for o in (a, b)]
    device = _common_device(tensors)

    def choose(c: Scalar, x: Scalar, y: Scalar) -> Scalar:
        return sc.op("where", g.convert(c, torch.bool), g.convert(x, joined), g.convert(y, joined))

    from .values import broadcast_index

    def at(index: tuple[Expr, ...]) -> Scalar:
        read = [
            p.at(broadcast_index(p.sizes, sizes, index)) if isinstance(p, TensorValue) else p
            for p in (condition, *parts)
        ]
        return choose(*read)

    return g.lazy(sizes, joined, device, at)


@lowers("clamp", "clamp.Tensor")
def clamp(g: Builder, a: TensorValue, min: Any = None, max: Any = None) -> TensorValue:
    present = [bound for bound in (min, max) if bound is not None]
    joined = promote(a, *present)
    if joined is torch.bool:
        raise Decline("bool")
    if not all(_fits(bound, joined) for bound in present):
        raise Decline("a limit that the type may not hold: libraries wrap it, leave it out, or refuse it")
    result = a
    if min is not None:
        result = elementwise(g, _keeping("lt") if _is_limit(min) else _op("maximum"), result, min, common=joined)
    if max is not None:
        result = elementwise(g, _keeping("gt") if _is_limit(max) else _op("minimum"), result, max, common=joined)
    return result


def _fits(bound: Any, dtype: torch.dtype) -> bool:
    """True for a number that an integer `dtype` can hold, for tensors, and for limits of floats."""
    if dtype.is_floating_point or not isinstance(bound, int | Expr | Scalar):
        return True
    held = torch.iinfo(dtype)
    if held.bits == 64 or isinstance(bound, Scalar):
        return held.bits == 64
    low, high = (bound.lo, bound.hi) if isinstance(bound, Expr) else (bound, bound)
    return held.min <= low and high <= held.max


def _is_limit(bound: Any) -> bool:
    """True for a number that is one: what equals it (-0.0 and 0) stays what it was, and so does NaN."""
    return isinstance(bound, int | float) and bound == bound


def _keeping(beyond: str) -> Callable[..., Scalar]:
    return lambda x, limit: sc.op("where", sc.op(beyond, x, limit), limit, x)


@lowers("hardtanh")
def hardtanh(g: Builder, a: TensorValue, min_val: Number = -1.0, max_val: Number = 1.0) -> TensorValue:
    if not a.dtype.is_floating_point:
        if isinstance(min_val, Scalar) or isinstance(max_val, Scalar):
            raise Decline("whole numbers between limits that are known at run time only")
        min_val, max_val = (bound if isinstance(bound, Expr) else int(bound) for bound in (min_val, max_val))
    return clamp(g, a, min_val, max_val)


@lowers("logit")
def logit(g: Builder, a: TensorValue, eps: float | None = None) -> TensorValue:
    common = _float_of(a)
    # The CPU's kernel has all in the type of the tensor, that of a GPU in float32.
    steps = common if device_of(a.device).eager.rounds_logit else compute_dtype(common)

    def rule(x: Scalar) -> Scalar:
        one = sc.constant(1.0, x.dtype)
        if eps is not None:
            low = _number(g, eps, steps, x.dtype, rounded=True)
            high = _as_stored(g, sc.op("sub", one, low), steps)
            # In this order: for eps above a half the bounds have changed places. A bound that is no number is none.
            above = sc.op("where", sc.op("gt", x, high), high, x)
            x = sc.op("where", sc.op("lt", x, low), low, above)
        rest = _as_stored(g, sc.op("sub", one, x), steps)
        return sc.op("log", _as_stored(g, sc.op("truediv", x, rest), steps))

    return elementwise(g, rule, a, common=common)


def _register_times_log(name: str, log: str) -> None:
    @lowers(*name.split())
    def rule(g: Builder, a: Any, b: Any) -> TensorValue:
        joined = _float_of(a, b)

        def product(x: Scalar, y: Scalar) -> Scalar:
            # Nothing times any logarithm is nothing; kernels of half types round the logarithm.
            zero = sc.constant(0.0, x.dtype)
            found = sc.op("mul", x, _as_stored(g, sc.op(log, y), joined))
            return sc.op("where", sc.op("isnan", y), y, sc.op("where", sc.op("eq", x, zero), zero, found))

        return elementwise(g, product, a, b, common=joined, round_numbers=True)


_register_times_log("xlogy.Tensor xlogy.Scalar_Self xlogy.Scalar_Other", "log")
_register_times_log("special_xlog1py special_xlog1py.self_scalar special_xlog1py.other_scalar", "log1p")


def _register_log_of_sum(name: str, exponential: str, scale: float) -> None:
    @lowers(name, scan=_SCANS.get(name, ""))
    def rule(g: Builder, a: TensorValue, b: TensorValue) -> TensorValue:
        joined = promote(a, b)
        if not joined.is_floating_point:
            raise Decline("no floating-point numbers")

        def log_of_sum(x: Scalar, y: Scalar) -> Scalar:
            distance = sc.op("neg", sc.op("abs", sc.op("sub", x, y)))
            rest = sc.op("log1p", sc.op(exponential, distance))
            total = _product_added(sc.op("maximum", x, y), rest, sc.constant(scale, x.dtype))
            return sc.op("where", sc.op("logical_and", sc.op("isinf", x), sc.op("eq", x, y)), x, total)

        return elementwise(g, log_of_sum, a, b)


_register_log_of_sum("logaddexp", "exp", 1.0)
_register_log_of_sum("logaddexp2", "exp2", 1.0 / math.log(2.0))


@lowers("clamp_min", "clamp_min.Tensor")
def clamp_min(g: Builder, a: TensorValue, bound: Any) -> TensorValue:
    return clamp(g, a, bound, None)


@lowers("clamp_max", "clamp_max.Tensor")
def clamp_max(g: Builder, a: TensorValue, bound: Any) -> TensorValue:
    return clamp(g, a, None, bound)


@lowers("addcmul")
def addcmul(g: Builder, a: TensorValue, b: TensorValue, c: TensorValue, *, value: Number = 1) -> TensorValue:
    joined = promote(a, b, c)
    scale = g.constant(value, compute_dtype(joined))
    return elementwise(g, lambda x, y, z: _product_added(x, sc.op("mul", scale, y), z), a, b, c)


@lowers("addcdiv")
def addcdiv(g: Builder, a: TensorValue, b: TensorValue, c: TensorValue, *, value: Number = 1) -> TensorValue:
    joined = promote(a, b, c)
    if not joined.is_floating_point:
        raise Decline("integer")
    scale = g.constant(value, compute_dtype(joined))
    return elementwise(g, lambda x, y, z: sc.op("add", x, sc.op("truediv", sc.op("mul", scale, y), z)), a, b, c)


@lowers("lerp.Scalar", "lerp.Tensor")
def lerp(g: Builder, a: TensorValue, b: TensorValue, weight: Any) -> TensorValue:
    def mix(x: Scalar, y: Scalar, w: Scalar) -> Scalar:
        # From the nearer end, so that weight 1 gives exactly y.
        one, half = sc.constant(1.0, w.dtype), sc.constant(0.5, w.dtype)
        distance = sc.op("sub", y, x)
        near = _product_added(x, w, distance)
        far = _product_added(y, sc.op("neg", distance), sc.op("sub", one, w))
        return sc.op("where", sc.op("lt", sc.op("abs", w), half), near, far)

    return elementwise(g, mix, a, b, weight, common=promote(a, b))
