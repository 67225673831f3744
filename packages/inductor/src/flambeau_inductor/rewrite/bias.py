"""Take the bias out of convolutions on CUDA, so that it is added by the kernel that reads the result.

In: a functional graph. Out: the same graph with ``convolution(x, w, None) + b``. cuDNN's convolutions take no bias: the library adds
it in a kernel of its own, rounding in between, exactly as the addition in the graph does.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from ..context import CompileContext
from .fakes import fake_mode_of, insert_call, quietly

aten = torch.ops.aten


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


def _has_bias(node: fx.Node) -> bool:
    if node.op != "call_function" or node.target is not aten.convolution.default or len(node.args) < 9:
        return False
    bias, groups = node.args[2], node.args[8]
    val = node.meta.get("val")
    # Depthwise convolutions have kernels that take the bias along.
    return isinstance(bias, fx.Node) and groups == 1 and isinstance(val, torch.Tensor) and val.device.type == "cuda"
