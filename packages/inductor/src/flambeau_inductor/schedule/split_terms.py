"""Products whose terms are summed in parts, so that few results of many terms have programs for all multiprocessors.

In: a ``Gemm`` whose tile has several parts. Out: two kernels. The first is a product of as many batches, each over the terms of one part, whose sums it
stores in float32; the second adds up the parts of each result, always in the same order, and does what the product's own kernel would have done.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from attrs import evolve

from ..expr import ONE, Int, Symbol
from ..ir.graph import Graph
from ..ir.kernel import SUM, Computed, Gemm, KernelBody, Reduce, Store, Window
from ..ir.layout import Buffer, Layout, Ref
from ..ir.loops import Axis
from ..ir.scalar import load, reduced, substitute
from .loops import improve
from .nest import Nest, tidy
from .plan import arguments, body_of
from .steps import Step


def can_split(left: Ref | Window, parts: int) -> bool:
    """Whether a product of one batch has terms for ``parts`` equal parts."""
    batch, rows, k = left.sizes
    return isinstance(left, Ref) and rows.is_int and batch is ONE and int(k) % parts == 0


def in_parts(
    whole: Gemm, out: Buffer, buffers: Mapping[str, Buffer], graph: Graph, names: set[str]
) -> tuple[list[Step], Mapping[str, Buffer]]:
    """The two kernels, and the buffer of the sums of parts."""
    parts, (_, m, k), n = whole.tile.parts, map(int, whole.left.sizes), int(whole.right.sizes[2])
    each = k // parts
    left, right = whole.left, whole.right
    assert isinstance(left, Ref), "what a convolution sees is not cut"
    left = evolve(left, sizes=(parts, m, each), strides=(int(left.strides[2]) * each, left.strides[1], left.strides[2]))
    right = _part(right, parts, each)
    layout = Layout.contiguous((parts, m, n), torch.float32, whole.device)
    sums = Buffer(f"{out.name}_parts", layout)
    known = {**buffers, sums.name: sums}
    body = whole.body
    # The rows of all parts.
    axes = tuple(Axis(Symbol(s, bound=Int(size)), Int(size)) for s, size in (("yi", parts * m), ("xi", n)))
    at = axes[0].symbol * n + axes[1].symbol
    store = Store(sums.name, at, reduced(SUM, torch.float32))
    touched, scalars = arguments(axes, (store,))
    partial = KernelBody(
        f"{body.name}_parts", axes, (), (store,), tuple(known[name] for name in touched), scalars, whole.device, False,
        body.origins, body.stacks,
    )  # fmt: skip
    tile = evolve(whole.tile, parts=1)
    return [
        evolve(whole, left=left, right=right, body=partial, tile=tile),
        _added_up(body, sums, known, graph, names),
    ], {sums.name: sums}


def _part(right: Ref | Computed, parts: int, each: int) -> Ref | Computed:
    """The right operand as one batch for each part."""
    sizes = (Int(parts), Int(each), right.sizes[2])
    if isinstance(right, Ref):
        return evolve(right, sizes=sizes, strides=(int(right.strides[1]) * each, right.strides[1], right.strides[2]))
    batch, term, column = right.axes
    axes = (Symbol(batch.name, bound=sizes[0]), Symbol(term.name, bound=sizes[1]), column)
    value = substitute(right.value, {batch: 0, term: axes[0] * each + axes[1]})
    source = _part(right.source, parts, each)
    assert isinstance(source, Ref)
    return Computed(sizes, axes, value, source)


def _added_up(
    body: KernelBody, sums: Buffer, buffers: Mapping[str, Buffer], graph: Graph, names: set[str]
) -> KernelBody:
    """``body`` over the sums of parts."""
    parts, m, n = sums.layout.sizes
    row, column = (axis.symbol for axis in body.outer)
    part = Axis(Symbol("r0", bound=parts), parts)
    found = load(sums.name, part.symbol * (m * n) + row * n + column, torch.float32)
    statements = (Reduce(SUM, "sum", found, torch.float32), *body.statements)
    nest = Nest(body.outer, (part,), statements, (), body.device, body.origins)
    return body_of(improve(tidy(nest)), buffers, graph, names)
