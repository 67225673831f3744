"""Let the library's matrix product do the activation that follows it.

In: a functional graph. Out: the same graph with ``_addmm_activation`` where a product with bias is read by one ReLU (or, where
``numerics="fast"`` allows a single rounding, by one tanh-GELU) and by nothing else. ReLU commutes with rounding, so that is exact.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from ..context import CompileContext

aten = torch.ops.aten

_DTYPES = (torch.float32, torch.float16, torch.bfloat16)


def activation_epilogues(gm: fx.GraphModule, context: CompileContext) -> bool:
    """Rewrite every such pair on CUDA."""
    config = context.config
    if not config.epilogue_fusion:
        return False
    changed = False
    for node in list(gm.graph.nodes):
        if node.op != "call_function" or node.target not in (aten.relu.default, aten.gelu.default):
            continue
        gelu = node.target is aten.gelu.default
        if gelu and (config.numerics != "fast" or node.kwargs.get("approximate", "none") != "tanh"):
            continue
        product = node.args[0]
        if not _takes_activation(product):
            continue
        with gm.graph.inserting_before(node):
            fused = gm.graph.call_function(aten._addmm_activation.default, product.args[:3], {"use_gelu": gelu})
        fused.meta = dict(node.meta)
        node.replace_all_uses_with(fused)
        gm.graph.erase_node(node)
        gm.graph.erase_node(product)
        changed = True
    return changed


def _takes_activation(product: Any) -> bool:
    """Whether ``product`` is a product with a row bias, unscaled, whose only reader is the activation."""
    if not isinstance(product, fx.Node) or product.target is not aten.addmm.default or len(product.users) != 1:
        return False
    val, bias = product.meta.get("val"), product.args[0]
    if not isinstance(val, torch.Tensor) or val.device.type != "cuda" or val.dtype not in _DTYPES:
        return False
    row = bias.meta.get("val") if isinstance(bias, fx.Node) else None
    if not isinstance(row, torch.Tensor) or row.dim() != 1 or len(product.args) > 3:
        return False
    return all(product.kwargs.get(name, 1) == 1 for name in ("alpha", "beta"))
