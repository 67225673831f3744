"""One translation unit out of many kernels.

In: generated kernels. Out: its source, the support headers included as text, so that a library needs no include path.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib.resources import files

from ..kernel import GeneratedKernel

#: Wrap-around integers, no contraction (eager rounds every operation), no errno and no traps.
FLAGS = ("-fwrapv", "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math")
_HEADERS = ("flambeau_kernel.hpp", "flambeau_math.hpp", "flambeau_reduce.hpp")


@cache
def preamble() -> str:
    """The support headers, in one piece."""
    folder = files("flambeau_inductor.codegen.cpp") / "include"
    lines: list[str] = []
    for name in _HEADERS:
        for line in (folder / name).read_text().splitlines():
            if not line.startswith(("#pragma once", "#include")):
                lines.append(line)
    return "\n".join(lines) + "\n"


def translation_unit(kernels: Sequence[GeneratedKernel]) -> str:
    """The source of all kernels."""
    return preamble() + "\n" + "\n".join(kernel.source for kernel in kernels if kernel.source)
