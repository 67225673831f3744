"""The gradients of convolutions of a channel a group (depthwise), each by itself.

In: a functional graph. Out: the same graph with a call for each in the place of one that gives several gradients: of those of image and weight, lowering makes kernels
(``lowering/depthwise.py``), that of the bias is a sum. The library computes each by itself, too.
"""

from __future__ import annotations

import math
from operator import getitem
from typing import Any

import torch
from torch import fx

from ..context import CompileContext
from ..lowering.depthwise import gradients_are_loops
from .engine import Editor, Match, Rule
from .fakes import hint_of
from .patterns import Constant, Like, Operand, call

aten = torch.ops.aten


def _kernels(context: CompileContext) -> bool:
    return context.config.triton_kernels and context.config.gemm != "library"


def _is_depthwise(match: Match, context: CompileContext) -> bool:
    weight, grad = match.val("weight"), match.val("grad")
    # Results of one channel a group, which are as many as the channels of the image.
    if weight.shape[1] != 1 or match["groups"] != weight.shape[0] or sum(match["mask"]) < 2:
        return False
    taps, points = (math.prod(map(hint_of, sizes)) for sizes in (weight.shape[2:], (len(grad), *grad.shape[2:])))
    return gradients_are_loops(context.config, weight.device, weight.dtype.itemsize, taps, points)


def _has_no_gaps(dilation: Any) -> bool:
    return all(step == 1 for step in dilation)


def _apart(match: Match, edit: Editor) -> tuple[fx.Node | None, ...]:
    vals, mask = match.root.meta["val"], match["mask"]
    parts: list[fx.Node | None] = [None, None, None]
    for place in (0, 1):
        if mask[place]:
            alone = edit.with_argument("output_mask", [n == place for n in range(3)])
            alone.meta["val"] = tuple(val if n == place else None for n, val in enumerate(vals))
            parts[place] = edit.call(getitem, alone, place, known=vals[place])
    if mask[2]:
        grad = match["grad"]
        parts[2] = edit.call(aten.sum.dim_IntList, grad, [0, *range(2, grad.meta["val"].dim())], known=vals[2])
    return tuple(parts)


RULES = (
    Rule(
        name="gradients_of_a_depthwise_convolution",
        identity="the gradients of image, weight and bias do not depend on each other",
        pattern=call(
            aten.convolution_backward.default,
            Operand("grad"),
            Operand(),
            Operand("weight", Like(libraries="depthwise_is_slow")),
            dilation=Constant(holds=_has_no_gaps),
            transposed=False,
            groups=Constant("groups"),
            output_mask=Constant("mask"),
            others=True,
        ),
        check=_is_depthwise,
        replace=_apart,
        when=_kernels,
    ),
)
