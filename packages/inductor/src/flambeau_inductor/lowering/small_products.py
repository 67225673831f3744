"""Matrix products so small that starting the library's kernel takes longer than the product: loops of our own, which what comes next joins.

In: a product and its operands. Out: the sum as a reduction, with a bias added lazily; None where the library is the faster, by a model of both.
The terms are multiplied and added in float32 (float64 for that) and rounded once, as the library does; the order of one sum is another.

Two ways to have the terms side by side in memory: rows of the right operand (a matrix as ``x @ w`` has it), or of both (a linear layer's weight). What lies in
another way is the library's.

Measured on one core of a Zen 5 with MKL (torch 2.13), float32, what a call of the compiled function costs beside taken off, library and loops in microseconds: 8 x 8 x 8
0.7 and 0.1; 16 x 64 x 64 1.6 and 0.9 behind a chain of layers; 32 x 32 x 32 1.4 and 0.6; 32 x 32 x 33 1.6 and 2.6; 32 products of 8 x 8 x 8 3.3 and 0.8; a layer of 8 x 8 with bias and
ReLU 1.5 and 0.2. The library's products are faster on other processors: their share is taken as less than measured.
"""

from __future__ import annotations

from typing import Any

import torch
from attrs import frozen
from torch import fx

from ..devices import device_of
from ..ir import scalar as sc
from ..ir.scalar import Scalar
from .builder import Builder
from .values import Index, TensorValue, broadcast_index, compute_dtype

aten = torch.ops.aten

#: Products, and how many arguments come before their two matrices.
_PRODUCTS = {aten.mm.default: 0, aten.bmm.default: 0, aten.addmm.default: 1, aten.baddbmm.default: 1}
DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
#: Nanoseconds: a library's call, a matrix of several, a multiplication there.
_CALL, _MATRIX, _TERM = 500.0, 60.0, 0.012
#: Nanoseconds of loops over rows of the right operand: a row, a register of it, one that is not full behind others, and alone.
_ROW, _REGISTER, _PARTLY, _ALONE = 0.1, 0.2, 1.6, 0.9
#: And of loops along the terms: a result, and a term of it.
_RESULT, _ALONG = 1.2, 0.02
#: Lanes of float32 in a register.
_LANES = 16


def small_product(g: Builder, node: fx.Node, args: list[Any], kwargs: dict[str, Any]) -> TensorValue | None:
    """``node`` as a reduction; None where it is no product, or where the library takes it."""
    first = _PRODUCTS.get(node.target)
    val = node.meta.get("val")
    if (
        first is None
        or kwargs
        or len(args) != first + 2
        or not isinstance(val, torch.Tensor)
        or val.dtype not in DTYPES
    ):
        return None
    device = device_of(val.device)
    if not device.libraries.starts_slowly or device.language(g.context.config).gemms or not g.may_loop(val.device):
        return None
    vals = [part.meta["val"] for part in node.args[first:]]
    if any(type(size) is not int for part in vals for size in part.shape) or not is_faster(*vals):
        return None
    compute = compute_dtype(val.dtype)
    left, right = (TensorValue.of_ref(g.ref(operand)) for operand in args[first:])
    rows, terms = left.sizes[:-1], right.sizes[-2]

    def each(index: Index) -> Scalar:
        *batch, row, column, term = index
        pair = left.at((*batch, row, term)), right.at((*batch, term, column))
        return sc.op("mul", *(g.convert(value, compute) for value in pair))

    products = g.lazy((*rows, right.sizes[-1], terms), compute, left.device, each)
    total = g.reduce(products, [products.rank - 1], "sum", dtype=compute)
    if not first and compute is val.dtype:
        return total

    def finished(index: Index) -> Scalar:
        value = total.at(index)
        if first:
            bias: TensorValue = args[0]
            added = bias.at(broadcast_index(bias.sizes, total.sizes, index))
            value = sc.op("add", value, g.convert(added, compute))
        return g.convert(value, val.dtype)

    return g.lazy(total.sizes, val.dtype, left.device, finished)


@frozen
class Costs:
    """Nanoseconds of a product: by the library, by loops over rows of the right operand (``across``), by loops ``along`` the terms."""

    call: float
    across: float
    along: float


def costs(left: torch.Tensor, right: torch.Tensor) -> Costs | None:
    """Of operands of known sizes, whatever their strides; None for a product of nothing."""
    *several, rows, terms = left.shape
    columns, batch = right.shape[-1], several[0] if several else 1
    if not (batch and rows and columns and terms):
        return None
    wide = 2 if left.dtype is torch.float64 else 1
    registers = -(-columns * wide // _LANES)
    partly = 0.0 if columns * wide % _LANES == 0 else _ALONE if registers == 1 else _PARTLY
    return Costs(
        _CALL + _TERM * batch * rows * columns * terms + (_MATRIX * batch if several else 0),
        batch * rows * terms * (_ROW + _REGISTER * registers + partly),
        batch * rows * columns * (_RESULT + _ALONG * wide * terms),
    )


def is_faster(left: torch.Tensor, right: torch.Tensor) -> bool:
    """Whether loops take less time than a call, by the sizes and strides of both operands."""
    found = costs(left, right)
    if found is None:
        return False
    if right.stride(-1) == 1 and right.shape[-1] > 1:
        return found.across < found.call
    if right.stride(-2) == 1 and (left.stride(-1) == 1 or left.shape[-1] == 1):
        return found.along < found.call
    return False
