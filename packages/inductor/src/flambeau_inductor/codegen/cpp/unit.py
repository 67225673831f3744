"""What the kernels of one translation unit are written with.

In: generated kernels. Out: the support headers as text, so that a library needs no include path. Headers
that the kernels call nothing of are left out: reading all of them takes g++ a fifth of the time that a small kernel does.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib.resources import files

from ..kernel import GeneratedKernel

#: Wrap-around integers, no contraction (eager rounds every operation), no errno and no traps.
FLAGS = ("-fwrapv", "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math")

#: What every kernel is written with: loops over lanes, loads and stores, arithmetic.
_ALWAYS = ("loops", "memory", "arithmetic")
#: What some kernels call, by the header that has it: the names here are those that kernels say, and only those.
OPTIONAL: dict[str, set[str]] = {
    "transposes": {"turn"},
    "pairs": {"load_two", "store_two"},
    "streams": {"store_far", "store_two_far"},
    "products": {"copy_rows", "multiply_rows", "multiply_terms", "pack"},
    "integers": {
        "div_floor", "div_trunc", "mod_floor", "mod_trunc", "float_div_floor", "float_mod_floor", "fmod", "ipow", "shift_left", "shift_right",
    },
    "exponentials": {"exp", "exp2", "expm1", "log", "log10", "log1p", "log2", "logaddexp", "pow", "sigmoid", "tanh"},
    "rough": {"rough_exp", "rough_sigmoid", "rough_tanh"},
    "trigonometry": {"acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "cos", "cosh", "hypot", "sin", "sinh", "tan"},
    "special": {"digamma", "erf", "erfc", "erfinv", "lgamma", "nextafter"},
    "reductions": {
        "Add", "Multiply", "Xor", "Maximum", "Minimum", "Any", "All", "Best", "BestLanes", "best", "best_lanes", "fold", "fold_best", "running",
        "running_apart",
    },
}  # fmt: skip

_INCLUDE, _END = '#include "', '.hpp"'


@cache
def header(name: str) -> str:
    """The text of one support header."""
    return (files("flambeau_inductor.codegen.cpp") / "include" / f"{name}.hpp").read_text()


@cache
def preamble(headers: tuple[str, ...]) -> str:
    """These headers and those that they include, each once, in one piece."""
    ordered: dict[str, None] = {}

    def add(name: str) -> None:
        for line in header(name).splitlines():
            if line.startswith(_INCLUDE):
                add(line.removeprefix(_INCLUDE).removesuffix(_END))
        ordered[name] = None

    for name in headers:
        add(name)
    lines = (line for name in ordered for line in header(name).splitlines())
    return "\n".join(line for line in lines if not line.startswith(("#pragma once", "#include"))) + "\n"


def support(kernels: Sequence[GeneratedKernel]) -> str:
    """What comes before the sources of ``kernels``."""
    called = frozenset().union(*(kernel.functions for kernel in kernels))
    return preamble((*_ALWAYS, *(name for name, functions in OPTIONAL.items() if called & functions))) + "\n"
