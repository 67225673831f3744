"""Products of float32 that round to TF32, both of whose operands have their terms in columns: gradients of weights, ``gradient.t() @ x``.

In: a functional graph. Out: the same graph with the smaller operand copied so that its terms lie side by side. Hopper's units for matrices read rounded operands in no other way, and
the library's kernel that turns both operands on their way is far slower than the one that turns one.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import fx

from ..context import CompileContext
from ..devices import device_facts, device_of
from .engine import Editor, Match, Rule
from .fakes import bytes_of
from .patterns import Anything, Like, products
from .products import free_bytes

aten = torch.ops.aten

#: Fast kernels read 16 bytes at a time.
_ALIGNED = 4
#: The part of its result that a copy may take at any time.
_PART = 8


def _has_kernels(context: CompileContext) -> bool:
    return context.config.triton_kernels


def _pays(match: Match, context: CompileContext) -> bool:
    left, right = match.val("left"), match.val("right")
    if any(type(size) is not int for size in (*left.shape, *right.shape)):
        return False
    rows, terms = left.shape
    columns = right.shape[1]
    if left.stride() != (1, rows) or right.stride() != (columns, 1) or 1 in (rows, columns):
        return False
    if (
        any(size % _ALIGNED for size in (rows, columns, terms))
        or not device_of(left.device).libraries.rounds_products()
    ):
        return False
    tuning = device_facts(left.device).tuning
    if rows * columns <= tuning.turned_results or rows * columns * terms <= tuning.turned_work:
        return False
    smaller = left if rows < columns else right
    return bytes_of(smaller) <= max(free_bytes(match.root.graph, context), bytes_of(match.val()) // _PART)


def _turned(match: Match, edit: Editor) -> fx.Node:
    left, right = match["left"], match["right"]
    if match.val("left").shape[0] < match.val("right").shape[1]:
        left = edit.call_once(left, aten.clone.default, left, memory_format=torch.contiguous_format)
    else:
        turned = edit.call_once(right, aten.permute.default, right, [1, 0])
        right = edit.call_once(turned, aten.clone.default, turned, memory_format=torch.contiguous_format)
        right = edit.call_once(right, aten.permute.default, right, [1, 0])
    root = match.root
    return edit.call(root.target, *root.args[:-2], left, right, known=match.val())


def _rules() -> Iterator[Rule]:
    like = Like(libraries="rounded_want_terms_in_rows", dtypes=(torch.float32,))
    for name, pattern in products(like, Anything()).items():
        yield Rule(
            name=f"rounded_{name}",
            identity="a @ b with the same a or b in another order in memory",
            pattern=pattern,
            check=_pays,
            replace=_turned,
            when=_has_kernels,
        )


RULES = tuple(_rules())
