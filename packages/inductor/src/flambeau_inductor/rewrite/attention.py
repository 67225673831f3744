"""Hand keys and values to the library's attention as they lie, without a copy in between.

In: a functional graph. Out: the same graph in which attention kernels on CUDA read the source of a copy instead of the copy, where the
copy only made it contiguous. The kernels take any strides whose last one is 1; the layout of their result is the query's or fixed,
never that of keys and values.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import fx

from ..context import CompileContext
from .engine import Editor, Match, Rule
from .patterns import Call, Like, Operand, call

aten = torch.ops.aten

#: Op -> the operands whose strides do not show in its results.
_OPERANDS = {
    aten._scaled_dot_product_flash_attention.default: ("key", "value"),
    aten._scaled_dot_product_efficient_attention.default: ("query", "key", "value"),
    aten._scaled_dot_product_cudnn_attention.default: ("key", "value"),
}
#: Rows begin at multiples of this many elements: 16 bytes of any type that the kernels take.
_ALIGNMENT = 8


def _is_readable(match: Match, context: CompileContext) -> bool:
    """Whether the kernels may read the source of the copy."""
    val = match.val("source")
    rest, last = val.stride()[:-1], val.stride(-1)
    if not all(isinstance(n, int) for n in (*rest, last, val.storage_offset())):
        return False
    return last == 1 and all(n > 0 and n % _ALIGNMENT == 0 for n in rest) and val.storage_offset() % _ALIGNMENT == 0


def _without_copy(match: Match, edit: Editor, *, name: str) -> fx.Node:
    return edit.with_argument(name, match["source"])


def _rule(op: Any, name: str) -> Rule:
    source = Operand("source", Like(libraries="attention_reads_strides", ranks=(4,)))
    copied = call(aten.clone.default, source, others=True)
    return Rule(
        name=f"{op.overloadpacket.__name__}_reads_{name}",
        identity=f"attention of a copy = attention of what was copied: the strides of {name} show in no result",
        pattern=Call(frozenset((op,)), named={name: copied}, others=True),
        check=_is_readable,
        replace=partial(_without_copy, name=name),
    )


RULES = tuple(_rule(op, name) for op, names in _OPERANDS.items() for name in names)
