"""Programs of one elementwise op each, the numbers they are tried on, and how a result is judged.

In: a dtype. Out: programs by name, tensors of special values, and the places where a result is neither eager's nor as near to the exact
one. Used by `test_special_values.py`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo.core import BinaryUfuncInfo, UnaryUfuncInfo

Program = Callable[..., Any]

FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool)

#: Loops over a number that is given as a value: never done for large ones. Or: eager crashes on the smallest integer.
_TOO_LONG = ("polynomial", "zeta", "igamma", "polygamma")
_ACTIVATIONS: dict[str, Program] = {
    **{name: getattr(F, name) for name in (
        "selu", "gelu", "silu", "mish", "hardswish", "hardsigmoid", "hardtanh", "relu6", "relu", "leaky_relu", "softplus", "softsign",
        "softshrink", "hardshrink", "tanhshrink", "logsigmoid", "celu", "elu",
    )},
    "hardtanh(0, 6)": partial(F.hardtanh, min_val=0.0, max_val=6.0),
    "leaky_relu(-0.5)": partial(F.leaky_relu, negative_slope=-0.5),
    "threshold(0.5, -2)": partial(F.threshold, threshold=0.5, value=-2.0),
    "threshold(1, 5)": partial(F.threshold, threshold=1, value=5),
    "gelu(tanh)": partial(F.gelu, approximate="tanh"),
}  # fmt: skip
_WITH_NUMBER: dict[str, Program] = {
    **{name: getattr(torch, name) for name in (
        "pow", "remainder", "fmod", "div", "mul", "add", "sub", "floor_divide", "rsub", "xlogy", "lt", "eq", "copysign", "clamp_min",
        "clamp_max", "float_power",
    )},
    "trunc_divide": partial(torch.div, rounding_mode="trunc"),
    "from": lambda x, c: c - x,
    "over": lambda x, c: c / x,
    "base": lambda x, c: c**x,
}  # fmt: skip
_NUMBERS = (0, 1, 2, 3, -1, 0.5, -0.5, 2.5, -3.7, 1e30, float("inf"), float("nan"), 7)
_WITH_ITSELF: dict[str, Program] = {
    "clamp(-1, 1)": lambda x: x.clamp(-1, 1),
    "clamp(2, -2)": lambda x: x.clamp(2, -2),
    "add(alpha)": lambda x: torch.add(x, x.flip(0), alpha=3),
    "sub(alpha)": lambda x: torch.sub(x, x.flip(0), alpha=-2),
    "add(alpha=0.3)": lambda x: torch.add(x, x.flip(0), alpha=0.3),
    "addcmul": lambda x: torch.addcmul(x, x, x.flip(0), value=0.3),
    "addcdiv": lambda x: torch.addcdiv(x, x, x.flip(0), value=3),
    "lerp(0.3)": lambda x: torch.lerp(x, x.flip(0), 0.3),
    "lerp(0.8)": lambda x: torch.lerp(x, x.flip(0), 0.8),
    "lerp": lambda x: torch.lerp(x, x.flip(0), x.roll(1)),
    "nan_to_num": lambda x: torch.nan_to_num(x, 1.0, 2.0, 3.0),
    "where": lambda x: torch.where(x > 0, 1.5, x),
    "masked_fill": lambda x: x.masked_fill(x > 0, 2),
    "heaviside": lambda x: torch.heaviside(x, x.flip(0)),
    "softmax": lambda x: F.softmax(x, 0),
    "log_softmax": lambda x: F.log_softmax(x, 0),
    "smooth_l1_loss": lambda x: F.smooth_l1_loss(x, x.flip(0)),
    "huber_loss": lambda x: F.huber_loss(x, x.flip(0)),
    "soft_margin_loss": lambda x: F.soft_margin_loss(x, x.flip(0)),
    "prelu": lambda x: F.prelu(x, x[:1]),
    "nll_loss": lambda x: F.nll_loss(x[:2].view(1, 2), torch.tensor([1])),
    "batch_norm": lambda x: F.batch_norm(x[:2].view(1, 2), torch.zeros(2), torch.ones(2)),
}
#: Differences of numbers near one another, or 1 plus something: what an operand's last bit changes is no error of theirs.
CANCELLING = frozenset({"tanhshrink", "nn.functional.tanhshrink", "special.ndtr", "gelu", "digamma", "logaddexp"})
#: Eager is wrong here (what it gives is neither the C library's result nor the exact one) -> how.
EAGER_ERRS = {
    "gelu": "NaN for infinity",
    "fmod": "NaN where the quotient overflows",
    "remainder": "NaN where the quotient overflows",
    "__rmod__": "NaN where the quotient overflows",
}
#: Eager's two kernels of one op, for whole vectors and for what is left over, choose another zero.
ZERO_OF_EITHER_SIGN = frozenset(
    {"maximum", "minimum", "fmax", "fmin", "max.binary", "min.binary", "clamp_max", "clamp_min", "logsigmoid", "nn.functional.logsigmoid",
     "batch_norm"}
)  # fmt: skip


def _name(op: Any) -> str:
    return f"{op.name}.{op.variant_test_name}" if op.variant_test_name else str(op.name)


def unary_programs() -> dict[str, Program]:
    """Ops of one tensor, with numbers where they take some."""
    ops = {
        _name(op): op.op
        for op in op_db
        if isinstance(op, UnaryUfuncInfo) and not any(part in op.name for part in _TOO_LONG)
    }
    numbers = {
        f"{name}({c})": (lambda x, f=f, c=c: f(x, c))
        for (name, f), c in itertools.product(_WITH_NUMBER.items(), _NUMBERS)
    }
    casts = {f"to({dtype})": (lambda x, dtype=dtype: x.to(dtype)) for dtype in FLOATS + INTEGERS}
    return {**ops, **_ACTIVATIONS, **numbers, **casts, **_WITH_ITSELF}


def binary_programs() -> dict[str, Program]:
    """Ops of two tensors."""
    ops = {
        _name(op): op.op
        for op in op_db
        if isinstance(op, BinaryUfuncInfo) and not any(part in op.name for part in _TOO_LONG)
    }
    return {
        **ops,
        "lerp(0.3)": lambda x, y: torch.lerp(x, y, 0.3),
        "addcmul": lambda x, y: torch.addcmul(x, x, y),
        "addcdiv": lambda x, y: torch.addcdiv(x, x, y),
    }


def special_values(dtype: torch.dtype) -> Tensor:
    """Zeros, infinities, NaN, the limits of the type and of common formulas, both signs."""
    if dtype is torch.bool:
        return torch.tensor([True, False])
    if not dtype.is_floating_point:
        limits = torch.iinfo(dtype)
        small = {0, 1, 2, 3, 5, 7, 100, 127, limits.max, limits.max - 1, limits.min + 1, limits.max // 2}
        return torch.tensor(sorted(small | (set() if limits.min == 0 else {-1, -2, -3, -7, -127})), dtype=dtype)
    info = torch.finfo(dtype)
    positive = [
        0.0, info.smallest_normal, info.smallest_normal / 2, info.smallest_normal * info.eps, info.eps, info.eps / 2, 1e-3, 0.1,
        0.25, 1 / 3, 0.5, 0.7, 1 - info.eps, 1.0, 1 + info.eps, 1.5, 2.0, 2.5, 3.0, 3.5, 5.5, 6.0, 7.3, 10.0, 20.0, 40.0, 88.5, 104.0,
        300.0, 1000.5, 12345.678, 65504.0, 1e6, 2.0**24 + 1, 1e10, 2.0**53 + 1, 1e30, info.max / 2, info.max, float("inf"), float("nan"),
    ]  # fmt: skip
    return torch.tensor([sign * value for value in positive for sign in (1, -1)], dtype=torch.float64).to(dtype)


def wrong_places(name: str, ours: Tensor, eager: Tensor, exact: Any, inputs: list[Tensor]) -> Tensor:
    """Where `ours` is neither `eager` bit for bit nor as near to the exact result.

    Results below the smallest normal number may be flushed: vectors of exponentials do not make denormals.
    """
    assert ours.dtype is eager.dtype
    assert ours.shape == eager.shape
    if not eager.dtype.is_floating_point:
        return ours != eager
    base = name.partition("(")[0]
    same = (ours == eager) | (ours.isnan() & eager.isnan())
    if base in ZERO_OF_EITHER_SIGN:
        good = same
    else:
        good = same & ((ours.signbit() == eager.signbit()) | ours.isnan())
    if base in EAGER_ERRS:
        good = good | eager.isnan()
    if isinstance(exact, Tensor) and exact.is_floating_point() and exact.shape == ours.shape:
        info = torch.finfo(eager.dtype)
        scale = max(1.0, float(exact[exact.isfinite()].abs().max())) if base in CANCELLING and exact.numel() else 0.0
        # Eager's whole vectors raise to the exponent as float32 has it, what is left over to the exponent in double.
        digits = 64 if base == "pow" else 1
        step = (digits * eager.double().abs() + min(scale, 8.0)) * info.eps + 256 * info.smallest_normal
        allowed = torch.maximum(2 * (eager.double() - exact.double()).abs(), 4 * step)
        near = ((ours.double() - exact.double()).abs() <= allowed) | (
            (ours.double() - eager.double()).abs() <= 4 * step
        )
        tiny = (ours.abs() <= 256 * info.smallest_normal) & ((eager != 0) | (ours != 0))
        # Some of eager's vectors lose the sign of a zero, by the machine (gelu of -0.0 with AVX2): the exact result's is right too.
        signed = (ours.signbit() == eager.signbit()) | (ours.signbit() == exact.signbit())
        good = good | (near & (signed | tiny))
    return ~good


def outcome(program: Program, inputs: list[Tensor]) -> Any:
    """What a program gives: its result, or the exception."""
    torch.manual_seed(0)
    try:
        return program(*inputs)
    except Exception as error:
        return error


def exact_outcome(program: Program, inputs: list[Tensor]) -> Any:
    """The same in float64."""
    return outcome(program, [t.double() if t.is_floating_point() else t for t in inputs])


def split_by_refusal(
    programs: Mapping[str, Program], inputs: list[Tensor]
) -> tuple[dict[str, Any], dict[str, Exception]]:
    """What eager gives for each program, and what it raises."""
    found = {name: outcome(program, inputs) for name, program in programs.items()}
    results = {name: value for name, value in found.items() if isinstance(value, Tensor) and not value.is_complex()}
    return results, {name: value for name, value in found.items() if isinstance(value, Exception)}
