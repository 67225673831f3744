"""Take the bias out of convolutions and products on CUDA, so that it is added by the kernel that reads the result.

In: a functional graph. Out: the same graph with ``convolution(x, w, None) + b`` and ``mm(x, w) + b``. cuDNN's convolutions take no
bias: the library adds it in a kernel of its own, rounding in between, exactly as the addition in the graph does. Products with a
bias go through an interface of the library that has slower float32 kernels, for most sizes, than the plain product has.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from ..context import CompileContext
from ..device import device_facts
from .fakes import fake_mode_of, hint_of, insert_call, quietly

aten = torch.ops.aten

#: Multiplications below which a launch that may be added takes longer than the slower kernel.
SMALL_PRODUCT = 1 << 24
#: The one case in which the interface with a bias has the faster kernels: blocks of so many rows and columns that fill most
#: multiprocessors once, for sums of at most so many terms (the plain product's are half as large and need two rounds).
_BLOCK, _MOST_TERMS = 128, 1024
_VIEWS = frozenset({"view", "_unsafe_view", "reshape", "permute", "transpose", "t", "unsqueeze", "squeeze", "slice"})
_NORMS = frozenset({"native_layer_norm", "_fused_rms_norm", "_softmax", "_log_softmax", "amax", "native_dropout"})


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
    """Rewrite float32 products with a row bias whose result only generated kernels read, where that pays."""
    mode = fake_mode_of(gm.graph)
    found = [node for node in gm.graph.nodes if _is_faster_without(node) and is_finished_by_kernels(node)]
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


def _is_faster_without(node: fx.Node) -> bool:
    """Whether ``node`` is a float32 product with a row bias for which the plain product has faster kernels.

    Measured on an H200 over 72 sizes (256 to 8,192 rows, 512 to 3,072 terms, 512 to 3,072 columns): without the bias 0.4 to 1.1 of
    the time, above 1.05 only where one round of blocks fills the device.
    """
    if node.op != "call_function" or node.target is not aten.addmm.default or len(node.args) != 3:
        return False
    val, row, left = (part.meta.get("val") for part in (node, *node.args[:2]))
    if any(node.kwargs.get(name, 1) != 1 for name in ("alpha", "beta")) or val.device.type != "cuda":
        return False
    rows, columns, terms = hint_of(val.shape[0]), hint_of(val.shape[1]), hint_of(left.shape[1])
    if row.dim() != 1 or val.dtype is not torch.float32 or rows * columns * terms < SMALL_PRODUCT:
        return False
    places = device_facts(val.device).multiprocessors
    return not (terms <= _MOST_TERMS and 0.7 * places < -(-rows // _BLOCK) * -(-columns // _BLOCK) <= places)


def is_finished_by_kernels(node: fx.Node) -> bool:
    """Whether all readers, through views, are pointwise operations and norms."""
    for user in node.users:
        name = str(user.target).removeprefix("aten.").partition(".")[0]
        if name in _VIEWS:
            if not is_finished_by_kernels(user):
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
