"""Products of rows in groups with a matrix for each group, as an operator: what rewrites make of a loop over groups.

In: nothing. Out: ``GROUPED``, which products with kernels of our own take (``schedule/products.py``). Unlike ``aten._grouped_mm`` it takes matrices that lie anywhere,
every type that products of ours take, and may give the sums in float32, so that what is added to them is rounded with them.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

_LIBRARY = torch.library.Library("flambeau_inductor", "DEF")
_LIBRARY.define("grouped_products(Tensor rows, Tensor[] matrices, Tensor offsets, bool rounded) -> Tensor")
#: Matrices that are given one by one at most: each is a parameter of the kernel.
MOST_MATRICES = 64


def _one_by_one(rows: Tensor, matrices: Sequence[Tensor], offsets: Tensor, rounded: bool) -> Tensor:
    """``rows`` (m, k), ``matrices`` one (groups, k, n) or one (k, n) for each group, ``offsets`` (groups) of int32: where each group of rows ends. (m, n) in float32, or
    ``rounded`` to the type of the rows; 0 behind the last group."""
    each = matrices[0].unbind(0) if matrices[0].dim() == 3 else matrices
    result = rows.new_zeros((rows.shape[0], each[0].shape[1]), dtype=torch.float32)
    begin = 0
    for matrix, end in zip(each, offsets.tolist(), strict=True):
        result[begin:end] = rows[begin:end].float() @ matrix.float()
        begin = end
    return result.to(rows.dtype) if rounded else result


def _shape(rows: Tensor, matrices: Sequence[Tensor], offsets: Tensor, rounded: bool) -> Tensor:
    return rows.new_empty((rows.shape[0], matrices[0].shape[-1]), dtype=None if rounded else torch.float32)


_LIBRARY.impl("grouped_products", _one_by_one, "CompositeExplicitAutograd")
_LIBRARY.impl("grouped_products", _shape, "Meta")

GROUPED = torch.ops.flambeau_inductor.grouped_products.default
