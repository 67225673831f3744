"""The launched function of a product and the function of its epilogue, as one kernel.

In: a ``Gemm``, its epilogue (``points.py``), the lines of the function that is launched. Out: a ``GeneratedKernel``. What differs between ways to compute a
product is in those lines alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch

from ....expr import Expr, hint
from ....ir.kernel import Computed, Gemm
from ...kernel import GeneratedKernel
from ..function import Function, positions
from ..numbers import scalar_types
from ..types import signature_text
from .inline import pointers_of
from .points import Points


def kernel_of(
    gemm: Gemm,
    points: Points,
    buffers: Mapping[str, str],
    lines: Callable[[str], list[str]],
    constants: Mapping[str, Any],
    programs: Expr,
    helpers: Iterable[str] = (),
) -> GeneratedKernel:
    """``lines`` are given the name of the epilogue's function; ``buffers`` maps its buffers to those of the schedule; ``constants`` are constexprs,
    ``helpers`` the support functions that lines call."""
    name = f"triton_gemm_{gemm.name.removeprefix('fused_')}"
    operands = {**pointers_of("left", gemm.left), **pointers_of("right", gemm.right)}
    named = {"offsets": gemm.offsets}
    named |= {f"right{number}": ref for number, ref in enumerate(gemm.further, 1)}
    for parameter, ref in named.items():
        operands |= {} if ref is None else pointers_of(parameter, ref)
    dtypes = {parameter: dtype for parameter, (_, dtype) in operands.items()}
    dtypes |= {pointer: points.dtypes[buffer] for buffer, pointer in points.pointers.items()}
    numbers = scalar_types(points.body)
    parameters = (*dtypes, *numbers, *(f"{constant}: tl.constexpr" for constant in constants))
    epilogue = f"{name}_points"
    main = Function(parameters, tuple(lines(epilogue)), positions(gemm.stacks))
    compiled = {
        "signature": {**{parameter: "*" + signature_text(dtype) for parameter, dtype in dtypes.items()}, **numbers},
        "constexprs": dict(constants),
        "divisible": list(dtypes),
        "num_warps": gemm.tile.num_warps,
        "num_stages": gemm.tile.num_stages,
        "asserts": points.asserts,
        "helpers": sorted({*points.helpers, *helpers}),
    }
    batch, m, k = (hint(size) for size in gemm.left.sizes)
    n = int(gemm.right.sizes[2])
    source = gemm.right.source if isinstance(gemm.right, Computed) else gemm.right
    rights = 1 if gemm.second is None else 2
    matrices = (hint(source.sizes[0]) + len(gemm.further)) * rights
    return GeneratedKernel(
        name=name,
        source=f"{points.function.text(epilogue)}\n\n{main.text(name)}",
        buffers=(*(buffer for buffer, _ in operands.values()), *(buffers[buffer] for buffer in points.pointers)),
        dtypes=tuple(dtypes.values()),
        scalars=points.body.scalars,
        scalar_kinds="".join("f" if kind == "fp64" else "i" for kind in numbers.values()),
        extent=programs,
        grain=1,
        checks=("index out of range",) if points.asserts else (),
        meta={
            **compiled,
            "bytes": _bytes(batch * m * k, gemm.left.dtype) + _bytes(matrices * k * n, source.dtype) + _moved(points),
            "flops": 2 * batch * m * n * k * rights,
            "origins": list(gemm.origins),
        },
        kernels=(points.kernel,),
        code=(points.function, parameters, tuple(lines("points")), repr(compiled)),
    )


def _bytes(count: int, dtype: torch.dtype) -> int:
    return count * dtype.itemsize


def _moved(points: Points) -> int:
    """The bytes of what the epilogue reads and fills."""
    layouts = (buffer.layout for buffer in points.body.buffers)
    return sum(_bytes(hint(layout.numel), layout.dtype) for layout in layouts)


def indented(lines: list[str]) -> list[str]:
    """One level deeper."""
    return ["    " + line for line in lines]
