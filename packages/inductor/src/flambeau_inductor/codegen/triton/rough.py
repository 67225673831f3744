"""Elementary functions of float32 whose results are rounded to 16 bits at last: no branches, and a third of the instructions.

Out: ``SOURCES`` for ``helpers.py``, and which of them stands for what. They err by less than 2**-17 of their result (the exponential by its argument times
2**-23), and give 0 for results that are no normal numbers, below 1.2e-38. The epilogue of a product is where that counts: one program of few warps has tens
of thousands of results, and the units for matrices are idle while it is at them. Infinities and NaN are eager's.
"""

from __future__ import annotations

import torch

from ...ir.scalar import Scalar
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
    "rough_tanh_beside_one": (("flushed_exp2", "flushed_reciprocal"), _TANH_BESIDE_ONE),
    "rough_tanh": (("rough_tanh_beside_one",), _TANH),
    "rough_erf_beside_one": (("flushed_exp2",), _ERF_BESIDE_ONE),
}

#: Scalar op -> the function for it.
ROUGH = {"exp": "rough_exp", "truediv": "rough_divide", "sigmoid": "rough_sigmoid", "tanh": "rough_tanh"}
#: Those that are added to or taken from a number of at least 1, and how they are computed there.
BESIDE_ONE = {"erf": "rough_erf_beside_one", "tanh": "rough_tanh_beside_one"}


def silu_argument(node: Scalar) -> Scalar | None:
    """``x`` where ``node`` is ``x / (1 + exp(-x))``."""
    if node.op != "truediv" or node.dtype is not torch.float32 or node.children[1].op != "add":
        return None
    dividend, divisor = node.children
    for one, power in (divisor.children, divisor.children[::-1]):
        if one.kind == "constant" and one.args[0] == 1 and power.op == "exp" and power.children[0].op == "neg":
            return dividend if power.children[0].children[0] is dividend else None
    return None
