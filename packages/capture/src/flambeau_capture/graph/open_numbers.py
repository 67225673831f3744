"""Numbers that come out of tensors: what may be assumed of them so that what is computed of them is what Python would compute.

In: an integer of the graph. Out: how large the numbers that it is made of may be for it to stay in 64 bits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from .shapes import LARGE

if TYPE_CHECKING:
    import torch.fx

    from .builder import GraphBuilder

_LIMITS = (2**61, 2**48, 2**30)
"""What numbers are assumed to be no larger than: the first that does."""


def is_open(number: Any) -> bool:
    """Whether a number is symbolic, and no example decides anything of it."""
    return isinstance(number, (torch.SymInt, torch.SymFloat, torch.SymBool)) and not number.node.has_hint()


def bounds_for(
    builder: GraphBuilder, number: torch.SymInt
) -> list[tuple[tuple[torch.fx.Node, torch.SymInt], int]] | None:
    """For each integer read out of a tensor that `number` is computed of, its node and itself, and a bound for its size; None where no bound does.

    Sizes of tensors need none: tensors have that many elements.
    """
    if not is_open(number) or number.node.expr.is_Symbol:
        return []
    from torch.utils._sympy.value_ranges import ValueRanges, bound_sympy

    env = builder.need_shape_env()
    read: dict[Any, tuple[torch.fx.Node, torch.SymInt]] = {}
    for node in builder.root.nodes:
        value = node.meta.get("val")
        if (
            node.target == "item"
            and isinstance(value, torch.SymInt)
            and value.node.expr in number.node.expr.free_symbols
        ):
            read.setdefault(value.node.expr, (node, value))
    sizes = {symbol: ValueRanges(0, 2**15) for symbol in number.node.expr.free_symbols - read.keys()}
    for limit in _LIMITS:
        within = ValueRanges(-limit, limit)
        ranges = {symbol: env.var_to_range[symbol] & within for symbol in read}
        bounds = bound_sympy(number.node.expr, ranges | sizes)
        if bounds.lower >= -LARGE and bounds.upper <= LARGE:
            return [
                (read[symbol], limit)
                for symbol in sorted(read, key=str)
                if not (-limit <= env.var_to_range[symbol].lower and env.var_to_range[symbol].upper <= limit)
            ]
    return None
