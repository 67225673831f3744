"""Take the bias out of convolutions and large products on CUDA, so that it is added by the kernel that reads the result.

In: a functional graph. Out: the same graph with ``convolution(x, w, None) + b`` and ``mm(x, w) + b``. cuDNN's convolutions take no
bias: the library adds it in a kernel of its own, rounding in between, exactly as the addition in the graph does. Products with a
bias go through an interface of the library that has slower float32 kernels than the plain product has.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from ..context import CompileContext
from .fakes import fake_mode_of, hint_of, insert_call, quietly

aten = torch.ops.aten

#: Multiplications from which on a product takes longer than the launch that its bias may cost.
LARGE_PRODUCT = 1 << 28
_VIEWS = frozenset({"view", "_unsafe_view", "reshape", "permute", "transpose", "t", "unsqueeze", "squeeze"})
_NORMS = frozenset({"native_layer_norm", "_fused_rms_norm", "_softmax", "_log_softmax", "native_dropout"})


def split_bias(gm: fx.GraphModule, context: CompileContext) -> bool:
    """Rewrite every dense convolution with a bias that cuDNN will run and whose result a generated kernel can finish."""
    mode = fake_mode_of(gm.graph)
    found = [node for node in gm.graph.nodes if _has_bias(node)]
    if mode is None or not found or not torch.backends.cudnn.enabled or not context.config.triton_kernels:
        return False
    for node in found:
        bias: Any = node.args[2]
        channels = bias.meta["val"].shape[0]
        shape = [1, channels, *[1] * (node.meta["val"].dim() - 2)]
        following = node.next
        with quietly(mode):
            wide = insert_call(gm.graph, following, aten.view.default, (bias, shape), bias.meta["val"].view(shape))
            total = insert_call(gm.graph, following, aten.add.Tensor, (node, wide), node.meta["val"])
        node.replace_all_uses_with(total, lambda user, own=total: user is not own)
        node.args = (*node.args[:2], None, *node.args[3:])
    return True


def split_product_bias(gm: fx.GraphModule, context: CompileContext) -> bool:
    """Rewrite large float32 products with a row bias whose result only generated kernels read."""
    mode = fake_mode_of(gm.graph)
    found = [node for node in gm.graph.nodes if _is_large_product(node) and _is_finished_by_kernels(node)]
    if mode is None or not found or not context.config.triton_kernels:
        return False
    for node in found:
        bias, left, right = node.args
        val = node.meta["val"]
        product = insert_call(gm.graph, node, aten.mm.default, (left, right), val)
        total = insert_call(gm.graph, node, aten.add.Tensor, (product, bias), val)
        node.replace_all_uses_with(total)
        gm.graph.erase_node(node)
    return True


def _is_large_product(node: fx.Node) -> bool:
    if node.op != "call_function" or node.target is not aten.addmm.default or len(node.args) != 3:
        return False
    val, row, left = (part.meta.get("val") for part in (node, *node.args[:2]))
    if any(node.kwargs.get(name, 1) != 1 for name in ("alpha", "beta")) or val.device.type != "cuda":
        return False
    work = hint_of(val.shape[0]) * hint_of(val.shape[1]) * hint_of(left.shape[1])
    return row.dim() == 1 and val.dtype is torch.float32 and work >= LARGE_PRODUCT


def _is_finished_by_kernels(node: fx.Node) -> bool:
    """Whether all readers, through views, are pointwise operations and norms."""
    for user in node.users:
        name = str(user.target).removeprefix("aten.").partition(".")[0]
        if name in _VIEWS:
            if not _is_finished_by_kernels(user):
                return False
        elif user.op != "call_function" or not (
            name in _NORMS or torch.Tag.pointwise in getattr(user.target, "tags", ())
        ):
            return False
    return bool(node.users)


def _has_bias(node: fx.Node) -> bool:
    if node.op != "call_function" or node.target is not aten.convolution.default or len(node.args) < 9:
        return False
    bias, groups = node.args[2], node.args[8]
    val = node.meta.get("val")
    # Depthwise convolutions have kernels that take the bias along.
    return isinstance(bias, fx.Node) and groups == 1 and isinstance(val, torch.Tensor) and val.device.type == "cuda"
