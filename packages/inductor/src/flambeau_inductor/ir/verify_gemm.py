"""The validator of products, run on a schedule where ``verify`` is set.

In: a ``Gemm``. Out: nothing, or ``VerifyError`` naming the broken rule with the product.

Rules: operands are of one floating type and their sizes fit; the kernel over points goes over the rows of all batches and the columns, and does nothing but
store what it makes of the sum at each point; a window's points are those that its image, taps, stride, padding and dilation give; a grouped product has an offset
for each matrix, and none else has a second right operand.
"""

from __future__ import annotations

import torch
from attrs import evolve

from ..errors import VerifyError
from ..expr import ONE
from .kernel import SECOND_SUM, SUM, Computed, Gemm, Store, Window
from .scalar import walk
from .text import gemm_text


def verify_gemm(gemm: Gemm) -> None:
    """Check one product; raises VerifyError."""
    window = _window(gemm.left) if isinstance(gemm.left, Window) else ""
    for broken in (_operands(gemm), _groups(gemm), _points(gemm), window):
        if broken:
            error = VerifyError(broken)
            error.add_context(f"checking\n{gemm_text(gemm)}")
            raise error


def _operands(gemm: Gemm) -> str:
    left, right = gemm.left, gemm.right
    if left.dtype is not right.dtype or not left.dtype.is_floating_point:
        return f"a product of {left.dtype} and {right.dtype}"
    (batch, _, k), (others, terms, _) = left.sizes, right.sizes
    others = others if gemm.offsets is None else ONE
    return "" if (batch, k) == (others, terms) else f"operands of sizes {left.sizes} and {right.sizes}"


def _groups(gemm: Gemm) -> str:
    offsets, second, right = gemm.offsets, gemm.second, gemm.right
    if offsets is None:
        return "" if second is None else "a second right operand without groups"
    groups = right.sizes[0] + len(gemm.further)
    if offsets.dtype is not torch.int32 or offsets.sizes != (groups,) or isinstance(gemm.left, Window):
        return f"{groups} groups with offsets {offsets.sizes} of {offsets.dtype}"
    if gemm.tile.parts != 1 or isinstance(right, Computed):
        return "groups whose terms are in parts, or whose matrices are computed"
    if second is not None and evolve(second, offset=right.offset) != right:
        return f"right operands that lie otherwise: {right} and {second}"
    like = [(ref.sizes, ref.strides, ref.dtype) for ref in (right, *gemm.further)]
    if gemm.further and (len(set(like)) > 1 or right.sizes[0] is not ONE):
        return "matrices of groups that lie apart, and not in the same way"
    return ""


def _points(gemm: Gemm) -> str:
    body = gemm.body
    batch, rows, _ = gemm.left.sizes
    if body.inner or [axis.size for axis in body.outer] != [batch * rows, gemm.right.sizes[2]]:
        return "its kernel goes over other points than those of the result"
    for statement in body.statements:
        if not isinstance(statement, Store) or statement.mode != "set" or statement.level != "outer":
            return "its kernel does more than to store what it computes at each point"
        read = [node for node in walk(statement.value) if node.kind == "reduced"]
        known = (SUM,) if gemm.second is None else (SUM, SECOND_SUM)
        if any(node.args[0] not in known or node.dtype is not torch.float32 for node in read):
            return f"its kernel reads {read}, which nobody computes"
    return ""


def _window(window: Window) -> str:
    if window.groups < 1 or int(window.image.sizes[1]) % window.groups:
        return f"{window.image.sizes[1]} channels in {window.groups} groups"
    for dim, size in enumerate(window.image.sizes[2:]):
        span = (window.taps[dim] - 1) * window.dilation[dim] + 1
        points = (int(size) + 2 * window.padding[dim] - span) // window.stride[dim] + 1
        if points != window.points[dim]:
            return f"{window.points[dim]} points, where the image has {points}"
    return ""
