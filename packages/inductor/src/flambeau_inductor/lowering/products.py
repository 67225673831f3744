"""Products of matrices whose rows are no multiple of 16 bytes: the library's fast kernels take none.

In: what products read on a device whose library minds. Out: for results that are computed here, strides with which their rows begin at multiples of 16
bytes; and the product of float32 over all terms but the last few, to which these are added where it is read.
A vocabulary of 50,257 words is such a row: on an H200 the gradient of a language model's head took four times as long as with one of 50,264.
"""

from __future__ import annotations

from typing import Any

import torch
from attrs import evolve
from torch import fx

from ..devices import device_of
from ..expr import ONE, Expr, Int
from ..ir import scalar as sc
from ..ir.layout import Ref, Sizes
from ..ir.scalar import Scalar
from .builder import Builder
from .values import Index, TensorValue

aten = torch.ops.aten

#: Products, and how many arguments come before their two matrices.
_PRODUCTS = {aten.mm.default: 0, aten.bmm.default: 0, aten.addmm.default: 1, aten.baddbmm.default: 1}
_VIEWS = frozenset({
    aten.view.default, aten._unsafe_view.default, aten.reshape.default, aten.permute.default, aten.t.default, aten.transpose.int,
    aten.squeeze.dim, aten.unsqueeze.default,
})  # fmt: skip
#: Those of torch's operators that take operands in any strides.
_STRIDED_NAMESPACES = ("aten", "prims")
#: What rows begin at multiples of, in bytes.
_ALIGNMENT = 16
#: Bytes of an operand from which on that matters, and the least length of its rows in elements: shorter ones would grow by much.
_LEAST_BYTES, _SHORTEST = 1 << 20, 128
#: Multiplications from which on a product is worth a second kernel.
_LEAST_WORK = 1 << 32


def aligned_rows(node: fx.Node, val: torch.Tensor) -> Sizes | None:
    """Strides with which rows of a result begin at multiples of 16 bytes, where products read it and that makes a difference; else None.

    What the caller sees stays as it is in eager: it would be copied.
    """
    # Sizes first: a symbolic tensor that is asked how it lies adds a guard.
    if val.dim() < 2 or not _minds(val) or any(type(size) is not int for size in val.shape) or not val.is_contiguous():
        return None
    step = _ALIGNMENT // val.dtype.itemsize
    *others, length = val.shape
    small = val.numel() * val.dtype.itemsize < _LEAST_BYTES
    if length < _SHORTEST or length % step == 0 or small or not _is_operand(node, length):
        return None
    strides, running = [1], -(-length // step) * step
    for size in reversed(others):
        strides.append(running)
        running *= size
    return tuple(map(Int, reversed(strides)))


def _is_operand(node: fx.Node, length: int) -> bool:
    """Whether a product reads the memory, through views that leave its rows whole, and nothing hands it on: to the caller, a body, or an operator of
    others, which may take for granted that it lies as in eager."""
    found = False
    for user in node.users:
        if user.op == "output" or getattr(user.target, "namespace", "") not in _STRIDED_NAMESPACES:
            return False
        first = _PRODUCTS.get(user.target)
        if first is not None:
            found |= node in user.args[first:]
        elif user.target in _VIEWS and _keeps_rows(user.meta.get("val"), length):
            if any(further.op == "output" for further in user.users):
                return False
            found |= _is_operand(user, length)
    return found


def _keeps_rows(val: Any, length: int) -> bool:
    if not isinstance(val, torch.Tensor):
        return False
    steps = [(size, stride) for size, stride in zip(val.shape, val.stride(), strict=True) if size != 1]
    return (length, 1) in steps and all(stride % length == 0 for size, stride in steps if (size, stride) != (length, 1))


def _minds(value: torch.Tensor | TensorValue) -> bool:
    """Whether the library's products of this type have fast kernels that mind."""
    minds = device_of(value.device).libraries.products_want_rows_aligned
    return minds and value.dtype in (torch.float16, torch.bfloat16, torch.float32)


def without_last_terms(g: Builder, node: fx.Node, args: list[Any], reason: str) -> TensorValue | None:
    """The product of float32 matrices over a multiple of 16 bytes of terms, and the terms left added lazily; None for any other call.

    The library multiplies in TF32 or float32, the last terms are multiplied in float32.
    """
    if node.target is not aten.mm.default:
        return None
    left, right = args
    val = node.meta["val"]
    if left.dtype is not torch.float32 or not _minds(left) or any(not s.is_int for s in (*left.sizes, *right.sizes)):
        return None
    (m, k), n = map(int, left.sizes), int(right.sizes[1])
    refs = [g.ref(operand) for operand in (left, right)]
    along = [refs[0].strides[1], refs[1].strides[0]]
    rest = k % (_ALIGNMENT // 4)
    if not rest or m * n * k < _LEAST_WORK or ONE not in along or k < _SHORTEST:
        return None
    whole = Int(k - rest)
    parts = [_first_terms(ref, dim, whole) for dim, ref in zip((1, 0), refs, strict=True)]
    most = g.library(node.target, parts, {}, val, reason)
    stored = [TensorValue.of_ref(ref) for ref in refs]

    def at(index: Index) -> Scalar:
        row, column = index
        total: Scalar = most.at(index)
        for term in range(k - rest, k):
            pair = stored[0].at((row, Int(term))), stored[1].at((Int(term), column))
            total = sc.op("add", total, sc.op("mul", *pair))
        return total

    return g.lazy(most.sizes, most.dtype, most.device, at)


def _first_terms(ref: Ref, dim: int, count: Expr) -> TensorValue:
    sizes = tuple(count if d == dim else size for d, size in enumerate(ref.sizes))
    return TensorValue.of_ref(evolve(ref, sizes=sizes))
