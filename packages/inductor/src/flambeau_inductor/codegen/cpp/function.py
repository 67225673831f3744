"""A kernel in the kernel IR -> the lines of its C++ function.

In: a ``Kernel`` over lanes, its scalar arguments. Out: a ``FunctionText``: everything between the braces, and what is known of it.

    int64_t NAME(void* const* B, const int64_t* S, int64_t begin, int64_t end)

``B`` are the buffers, ``S`` the scalars, ``begin`` and ``end`` the call's slice of the parallel extent. The result is 0, or says which check failed.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from attrs import frozen

from ... import kernel_ir as kir
from ...expr import Expr
from .dtypes import MEMORY, held
from .print import Printer

#: Where the call's slice of the parallel extent begins and ends.
SLICE = (kir.position("begin"), kir.position("end"))


@frozen
class FunctionText:
    """``functions`` are the support functions that the lines call, ``scalar_kinds`` "i" or "f" for each scalar; ``fails``: it may report a failure."""

    lines: str
    functions: frozenset[str]
    scalar_kinds: str
    fails: bool


def function_text(
    kernel: kir.Kernel, scalars: Sequence[Expr | str], lane_bytes: int, bytes_each: int = 0, *, in_order: bool = False
) -> FunctionText:
    """Print ``kernel``, whose widest lanes have ``lane_bytes`` and which reads and writes about ``bytes_each`` for each of its extent.

    ``in_order``: functions give a lane what they give a single value.
    """
    lines = [
        f"constexpr int W = fb::register_bytes / {lane_bytes};",
        "(void)W;",
        "int64_t failed = 0;",
        "if (begin >= end) return 0;",
    ]
    for n, pointer in enumerate(kernel.pointers):
        kind = MEMORY[pointer.dtype]
        lines.append(f"{kind}* const {pointer.name} = ({kind}*)B[{n}];")
    given = kernel.scalars[len(SLICE) :]
    lines += [_scalar(n, variable) for n, variable in enumerate(given)]
    printer = Printer(kernel.body, paired=lane_bytes == 2, in_order=in_order)
    body = printer.lines(kernel.body)
    if printer.streams:
        # Half a line by itself costs as much as a line.
        test = (
            f"fb::is_far({max(bytes_each, 1)} * (end - begin)){' && fb::whole_lines' if printer.by_registers else ''}"
        )
        body = [f"const bool far = {test};", *body, "fb::streamed(far);"]
    lines += [*body, "return failed;"]
    kinds = "".join("f" if _is_floating(variable) else "i" for variable in given)
    text = "".join(f"  {line}\n" for line in lines)
    return FunctionText(text, frozenset(printer.functions), kinds, printer.fails)


def identifier(name: str) -> str:
    """``name`` with a ``_`` for what no name in C++ has."""
    return "".join(letter if letter.isascii() and letter.isalnum() else "_" for letter in name)


def _is_floating(variable: kir.Variable) -> bool:
    return isinstance(variable.dtype, torch.dtype) and variable.dtype.is_floating_point


def _scalar(n: int, variable: kir.Variable) -> str:
    if not isinstance(variable.dtype, torch.dtype):
        return f"[[maybe_unused]] const int64_t {variable.name} = S[{n}];"
    kind = held(variable.dtype)
    value = f"__builtin_bit_cast(double, S[{n}])" if variable.dtype.is_floating_point else f"S[{n}]"
    return f"const {kind} {variable.name} = ({kind}){value};"
