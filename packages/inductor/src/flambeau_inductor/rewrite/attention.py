"""Hand keys and values to the library's attention as they lie, without a copy in between.

In: a functional graph. Out: the same graph in which attention kernels on CUDA read the source of a copy instead of the copy, where the
copy only made it contiguous. The kernels take any strides whose last one is 1; the layout of their result is the query's or fixed,
never that of keys and values.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from ..context import CompileContext

aten = torch.ops.aten

#: Op -> positions of the operands whose strides do not show in its results.
_OPERANDS = {
    aten._scaled_dot_product_flash_attention.default: (1, 2),
    aten._scaled_dot_product_efficient_attention.default: (0, 1, 2),
    aten._scaled_dot_product_cudnn_attention.default: (1, 2),
}
#: Rows begin at multiples of this many elements: 16 bytes of any type that the kernels take.
_ALIGNMENT = 8


def strided_operands(gm: fx.GraphModule, context: CompileContext) -> bool:
    """Rewrite every such operand; a copy that nothing else reads goes away."""
    changed = False
    for node in gm.graph.nodes:
        for position in _OPERANDS.get(node.target, ()) if node.op == "call_function" else ():
            copy: Any = node.args[position]
            if not isinstance(copy, fx.Node) or copy.target is not aten.clone.default or not _is_readable(copy.args[0]):
                continue
            node.update_arg(position, copy.args[0])
            if not copy.users:
                gm.graph.erase_node(copy)
            changed = True
    return changed


def _is_readable(source: Any) -> bool:
    val = source.meta.get("val")
    if not isinstance(val, torch.Tensor) or val.device.type != "cuda" or val.dim() != 4:
        return False
    rest, last = val.stride()[:-1], val.stride(-1)
    if not all(isinstance(n, int) for n in (*rest, last, val.storage_offset())):
        return False
    return last == 1 and all(n > 0 and n % _ALIGNMENT == 0 for n in rest) and val.storage_offset() % _ALIGNMENT == 0
