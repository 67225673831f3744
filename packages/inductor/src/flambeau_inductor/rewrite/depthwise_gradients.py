"""The gradients of convolutions of a channel a group (depthwise), those of the image by themselves.

In: a functional graph. Out: the same graph with two calls in the place of one that gives several gradients: of the image's, lowering makes a kernel
(``lowering/depthwise.py``), the others stay with the library, which computes each by itself anyway.
"""

from __future__ import annotations

from operator import getitem
from typing import Any

import torch
from torch import fx

from ..context import CompileContext
from .engine import Editor, Match, Rule
from .patterns import Constant, Like, Operand, call

aten = torch.ops.aten


def _kernels(context: CompileContext) -> bool:
    return context.config.triton_kernels and context.config.gemm != "library"


def _is_depthwise(match: Match, context: CompileContext) -> bool:
    weight = match.val("weight")
    mask = match["mask"]
    # Results of one element a group and channel, which have the channels of the image.
    return weight.shape[1] == 1 and match["groups"] == weight.shape[0] and mask[0] and any(mask[1:])


def _has_no_gaps(dilation: Any) -> bool:
    return all(step == 1 for step in dilation)


def _apart(match: Match, edit: Editor) -> tuple[fx.Node | None, ...]:
    vals, mask = match.root.meta["val"], match["mask"]
    parts: list[fx.Node | None] = []
    image = edit.with_argument("output_mask", [True, False, False])
    image.meta["val"] = (vals[0], None, None)
    others = edit.with_argument("output_mask", [False, *mask[1:]])
    others.meta["val"] = (None, *vals[1:])
    for place, source in enumerate((image, others, others)):
        parts.append(edit.call(getitem, source, place, known=vals[place]) if mask[place] else None)
    return tuple(parts)


RULES = (
    Rule(
        name="gradients_of_a_depthwise_convolution",
        identity="the gradients of image, weight and bias do not depend on each other",
        pattern=call(
            aten.convolution_backward.default,
            Operand(),
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
