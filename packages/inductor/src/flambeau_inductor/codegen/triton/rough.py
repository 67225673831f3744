"""Elementary functions of float32 whose results are rounded to 16 bits at last: no branches, and a third of the instructions.

Out: ``SOURCES`` for ``helpers.py``, and which of them stands for what. They err by less than 2**-17 of their result (the exponential by its argument times
2**-23), and give 0 for results that are no normal numbers, below 1.2e-38. The epilogue of a product is where that counts: one program of few warps has tens
of thousands of results, and the units for matrices are idle while it is at them. Infinities and NaN are eager's.
"""

from __future__ import annotations

import math

import torch

from ...ir.scalar import Scalar, constant, op
from .elementary import ERF_BESIDE_ONE

_INSTRUCTION = """
def {name}(x):
    return tl.inline_asm_elementwise('// {name}\\n{instruction}.approx.ftz.f32 $0, $1;', '=f,f', [x], dtype=tl.float32, is_pure=True, pack=1)
"""

_EXP = """
def rough_exp(x):
    return flushed_exp2(x * 1.4426950408889634)
"""

# Triton's own division of float32 errs by two units, over the whole range.
_DIVIDE = """
def rough_divide(a, b):
    return a / b
"""

_SIGMOID = """
def rough_sigmoid(x):
    return flushed_reciprocal(1.0 + flushed_exp2(x * -1.4426950408889634))
"""

# x / (1 + exp(-x)): where the divisor is too large to have a reciprocal, the quotient is below 1e-36.
_SILU = """
def rough_silu(x):
    return x * rough_sigmoid(x)
"""

# x * (1 + tanh(u)) / 2 is x / (1 + exp(-2 u)): without the cancellation of the sum for negative x. u is x * (0.79788456 + 0.03567741 * x * x), and 2 log2(e) a factor of both.
_GELU = """
def rough_gelu(x):
    return x * flushed_reciprocal(1.0 + flushed_exp2(x * tl.fma(x * x, -0.10294323968, -2.302208198)))
"""

# Beside 1 the absolute error counts; near 0 the first two terms of the series.
_TANH_BESIDE_ONE = """
def rough_tanh_beside_one(x):
    return tl.fma(flushed_reciprocal(flushed_exp2(x * 2.8853900817779268) + 1.0), -2.0, 1.0)
"""

_TANH = """
def rough_tanh(x):
    z = x * x
    return tl.where(z < 0.00390625, tl.fma(x * z, -0.3333333333333333, x), rough_tanh_beside_one(x))
"""

_ERF_BESIDE_ONE = ERF_BESIDE_ONE.format(name="rough_erf_beside_one", exp2="flushed_exp2")

#: name -> (helpers it calls, source)
SOURCES: dict[str, tuple[tuple[str, ...], str]] = {
    "flushed_exp2": ((), _INSTRUCTION.format(name="flushed_exp2", instruction="ex2")),
    "flushed_reciprocal": ((), _INSTRUCTION.format(name="flushed_reciprocal", instruction="rcp")),
    "rough_exp": (("flushed_exp2",), _EXP),
    "rough_divide": ((), _DIVIDE),
    "rough_sigmoid": (("flushed_exp2", "flushed_reciprocal"), _SIGMOID),
    "rough_silu": (("rough_sigmoid",), _SILU),
    "rough_gelu": (("flushed_exp2", "flushed_reciprocal"), _GELU),
    "rough_tanh_beside_one": (("flushed_exp2", "flushed_reciprocal"), _TANH_BESIDE_ONE),
    "rough_tanh": (("rough_tanh_beside_one",), _TANH),
    "rough_erf_beside_one": (("flushed_exp2",), _ERF_BESIDE_ONE),
}

#: Scalar op -> the function for it.
ROUGH = {"exp": "rough_exp", "truediv": "rough_divide", "sigmoid": "rough_sigmoid", "tanh": "rough_tanh"}
#: What they cost, in simple instructions as all costs are.
ROUGH_COSTS = {"exp": 4, "truediv": 5, "sigmoid": 8, "tanh": 7, "erf": 14}
#: Those that are added to or taken from a number of at least 1, and how they are computed there.
BESIDE_ONE = {"erf": "rough_erf_beside_one", "tanh": "rough_tanh_beside_one"}


def rough_call(node: Scalar) -> tuple[str, Scalar] | None:
    """The function of one argument that stands for all of ``node``, and the argument: SiLU, GELU by tanh."""
    for name, argument in (("rough_silu", _silu_argument(node)), ("rough_gelu", _gelu_argument(node))):
        if argument is not None:
            return name, argument
    return None


def _silu_argument(node: Scalar) -> Scalar | None:
    """``x`` where ``node`` is ``x / (1 + exp(-x))``."""
    if node.op != "truediv" or node.dtype is not torch.float32 or node.children[1].op != "add":
        return None
    dividend, divisor = node.children
    for one, power in (divisor.children, divisor.children[::-1]):
        if one.kind == "constant" and one.args[0] == 1 and power.op == "exp" and power.children[0].op == "neg":
            return dividend if power.children[0].children[0] is dividend else None
    return None


def _gelu_argument(node: Scalar) -> Scalar | None:
    """``x`` where ``node`` is ``0.5 * x * (1 + tanh(u))`` and ``u`` as GELU has it."""
    if node.op != "mul" or node.dtype is not torch.float32:
        return None
    candidates = (x for half in node.children if half.op == "mul" for x in half.children if x.kind != "constant")
    return next((x for x in candidates if node is _gelu_by_tanh(x)), None)


def _gelu_by_tanh(x: Scalar) -> Scalar:
    """As lowering writes it: equal scalars are one object."""

    def number(value: float) -> Scalar:
        return constant(value, torch.float32)

    cube = op("mul", op("mul", x, x), x)
    inner = op("mul", number(math.sqrt(2 / math.pi)), op("add", x, op("mul", number(0.044715), cube)))
    return op("mul", op("mul", number(0.5), x), op("add", number(1.0), op("tanh", inner)))
