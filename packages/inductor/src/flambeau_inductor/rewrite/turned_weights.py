"""Frozen weights of small products on a CPU, laid out as the loops that compute these read them fastest.

In: a functional graph whose frozen inputs are marked (`constants.py`). Out: the same graph in which a linear layer's weight, whose terms lie side by side, is copied to rows of
columns where that makes the product loops (`lowering/small_products.py`), or faster ones. The copy follows from the weight alone, so that it is made once.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import fx

from ..context import CompileContext
from ..devices import device_of
from ..lowering import small_products
from .constants import is_constant
from .engine import Editor, Match, Rule
from .patterns import Anything, Like, products

aten = torch.ops.aten


def _has_loops(context: CompileContext) -> bool:
    return context.config.cpp_kernels


def _pays(match: Match, context: CompileContext) -> bool:
    left, right = match.val("left"), match.val("right")
    device = device_of(right.device)
    if not device.libraries.starts_slowly or device.language(context.config).gemms:
        return False
    if any(type(size) is not int for val in (left, right) for size in val.shape):
        return False
    terms, columns = right.shape
    if columns < 2 or right.stride() != (1, terms) or not is_constant(match["right"]):
        return False
    costs = small_products.costs(left, right)
    return costs is not None and costs.across < min(costs.call, costs.along)


def _turned(match: Match, edit: Editor) -> fx.Node:
    root = match.root
    rows = edit.call(aten.clone.default, match["right"], memory_format=torch.contiguous_format)
    args = (*root.args[:-1], rows)
    return edit.call(root.target, *args, known=match.val())


def _rules() -> Iterator[Rule]:
    for name, pattern in products(Like(dtypes=small_products.DTYPES), Anything()).items():
        yield Rule(
            name=f"{name}_with_a_turned_weight",
            identity="x @ w with the same w in another order in memory",
            pattern=pattern,
            check=_pays,
            replace=_turned,
            when=_has_loops,
        )


RULES = tuple(_rules())
