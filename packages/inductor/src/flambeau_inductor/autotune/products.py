"""Who computes a product, as a question: the library, or a kernel of ours in one of several tiles.

In: a candidate of ``schedule/gemms.py``, tiles. Out: a ``Question``, what decides its answer in it with sizes in buckets, so that the answer for a
thousand rows is asked for those of 1,024 too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import torch
from attrs import evolve

from flambeau_runtime import Artifact

from ..codegen.tunable import bucket
from ..config import Config
from ..devices import device_facts
from ..expr import Symbol, floor_div
from ..ir.graph import Graph
from ..ir.kernel import Computed, GemmTile, KernelBody, Store, Window
from ..ir.layout import Buffer, Ref
from ..ir.loops import Axis
from ..ir.scalar import Scalar, index_value, walk
from ..schedule import Step
from ..schedule.gemms import Candidate
from ..schedule.nest import values
from ..schedule.products import Product
from .measure import program_of
from .questions import Question
from .tiles import Problem, fits, neighbours


def problem_of(product: Product, body: KernelBody | None = None) -> Problem:
    """What the model of tiles knows of a product; ``body`` is what is done to its sums, where that is known."""
    right = product.right
    if product.second is not None and isinstance(right, Ref):
        # Both halves, as they lie.
        right = evolve(right, sizes=(*right.sizes[:2], right.sizes[2] * 2))
    problem = Problem(product.left, right, int(product.result.strides[1]), 1 + len(product.further))
    if body is None:
        return problem
    stored = {s.buffer for s in body.statements if isinstance(s, Store)}
    return evolve(problem, stored=max(b.layout.dtype.itemsize for b in body.buffers if b.name in stored))


def question_of(candidate: Candidate, tiles: Sequence[GemmTile], config: Config, *, exact: bool = False) -> Question:
    """The library first, which a tile must clearly beat. ``exact``: its operands must not be rounded, and the tiles do not."""
    product, body = candidate.product, candidate.body
    problem = problem_of(product, body)
    # The result stays where something else reads it: all ways store the same.
    wanted = tuple(dict.fromkeys(s.buffer for s in body.statements if isinstance(s, Store)))
    followed: list[Step] = [
        *candidate.makers,
        product.call,
        *([candidate.epilogue] if candidate.epilogue is not None else []),
    ]
    nothing = Graph((), (), (), (), candidate.buffers)

    # Numbers that nobody gives a meaning would be groups without rows.
    given = [] if product.offsets is None else [_even_groups(product, product.offsets, candidate.buffers)]

    def program(tile: GemmTile | None) -> Artifact | None:
        steps, buffers = (followed, {}) if tile is None else candidate.steps(tile, nothing, set())
        return program_of([*given, *steps], {**candidate.buffers, **buffers}, wanted, config)

    def around(tile: GemmTile | None) -> Iterable[GemmTile]:
        return () if tile is None else neighbours(problem, tile, device_facts(body.device))

    among = " of all tiles" if config.max_autotune_gemm_search_space == "EXHAUSTIVE" else ""
    asked = f"{_product_text(product)} exact {exact} {_epilogue_text(body)}{among}"
    return Question(body.name, asked, body.device, (None, *tiles), program, GemmTile, around)


def _even_groups(product: Product, offsets: Ref, buffers: Mapping[str, Buffer]) -> KernelBody:
    """A kernel that fills the offsets of a grouped product so that all groups have equally many rows."""
    (groups,), rows = offsets.sizes, product.sizes[1]
    axis = Axis(Symbol("i0", bound=groups), groups)
    end = index_value(floor_div((axis.symbol + 1) * rows, groups), torch.int32)
    store = Store(offsets.buffer, offsets.offset + axis.symbol * offsets.strides[0], end)
    return KernelBody("even_groups", (axis,), (), (store,), (buffers[offsets.buffer],), (), offsets.device)


def is_possible(tile: GemmTile, candidate: Candidate) -> bool:
    """Whether a tile that was found for another product of the bucket fits."""
    return fits(problem_of(candidate.product, candidate.body), tile, device_facts(candidate.body.device))


def _product_text(product: Product) -> str:
    """What decides about a product, whatever follows it."""
    problem = problem_of(product)
    sides = [
        (side.by_terms, side.is_fetched, [step % 8 for step in side.steps])
        for side in problem.sides(GemmTile(64, 64, 64, 4, 2))
    ]
    scales = (product.alpha != 1, product.beta != 0, product.bias is not None, product.promotes, len(product.scales))
    sizes = [bucket(n) for n in problem.sizes]
    left = product.left
    right = product.right
    made = _value_text([right.value]) if isinstance(right, Computed) else ""
    window = (left.taps, left.stride, left.padding, left.dilation) if isinstance(left, Window) else ()
    groups = f" {bucket(problem.matrices)} groups, {len(product.operands)} operands" if product.is_grouped else ""
    return f"{product.call.op} {scales} {problem.dtype} {sizes} {sides} {problem.is_aligned} {window} {made}{groups}"


def _epilogue_text(body: KernelBody) -> str:
    """What is computed at each point, and in which types it comes and goes, whatever the sizes are."""
    nodes = _value_text([v for s in body.statements for v in values(s)])
    return " ".join([nodes, *(str(buffer.layout.dtype) for buffer in body.buffers)])


def _value_text(scalars: Iterable[Scalar]) -> str:
    return " ".join(f"{node.kind}.{node.op}.{node.dtype}" for node in walk(*scalars))
