"""Attention that a program writes out, as a template: products, what is done to them, a softmax, products.

In: an ``attend`` node, which ``rewrite/written_attention.py`` makes. Out: a ``Template`` whose scores are computed as the program computes them, roundings
included, at each pair's position; what masks leave out by position alone is not visited (``distances.py``). ``Decline`` says why there is no such kernel.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from attrs import frozen
from torch import fx
from torch._ops import HigherOrderOperator

from ..devices import device_of
from ..errors import InternalError
from ..expr import ONE, ZERO, Expr, Int, Symbol, free_symbols, known_eq, linear
from ..ir import scalar as sc
from ..ir import templates
from ..ir.layout import Buffer, Ref
from ..ir.loops import Axis, Template
from ..ir.scalar import Scalar
from ..ops.costs import FUNCTIONS
from ..ops.dtypes import HALVES
from .attention import checked, is_aligned, layout_of, read, static, window
from .builder import Builder
from .distances import Window, window_of
from .inlined import inlined
from .registry import Decline
from .values import TensorValue


class Attend(HigherOrderOperator):
    """``(q, k, v, heads, before, after, dim, reads, empty_is_zero) -> (out, total, peak)``: ``softmax(before(q @ k, *reads), dim)``, laid out by ``after``, times ``v``; and of
    each row (batch, head, m) in float32 what gradients need of its sum, where that is asked for (``ir/templates.py``).

    ``q`` is (batch times heads, m, width), ``k`` (…, width, n), ``v`` (…, n, width of values), as ``bmm`` takes them. ``before`` is a graph of the products and
    ``reads``, ``after`` one of the softmax's result, of views and conversions. The products are in the type that ``before`` takes. Of rows of which nothing takes part
    the result is NaN, or 0 if ``empty_is_zero``; it may have four dimensions. No program has it: it stands between a rewrite and lowering.
    """

    def __init__(self) -> None:
        super().__init__("flambeau_attend")

    def __call__(self, *args: Any) -> Any:
        """No program runs it: lowering takes every call away."""
        raise InternalError("attention that was to become a template is called")


ATTEND = Attend()
#: Triton's name for products of float32 that are as exact as float32: the sum of three of TF32.
_EXACT = "tf32x3"
#: Functions of a few instructions without a branch: that of soft caps.
_SHORT = frozenset(("tanh",))


@frozen
class Points:
    """The points of a template, and what they are in the program's tensors of (batch times heads, m, n)."""

    axes: tuple[Axis, ...]

    @property
    def symbols(self) -> tuple[Expr, ...]:
        """b, h, m, n."""
        return tuple(axis.symbol for axis in self.axes)

    def lane(self) -> Expr:
        """The number of a head among those of all batches."""
        b, h, _, _ = self.places
        return b * self.axes[1].size + h

    @property
    def pair(self) -> tuple[Expr, ...]:
        """The place of a pair among the products."""
        return (self.lane(), *self.places[2:])

    @property
    def places(self) -> tuple[Expr, ...]:
        """b, h, m, n; what there is one of is always at 0."""
        return tuple(ZERO if int(axis.size) == 1 else axis.symbol for axis in self.axes)


@frozen
class Problem:
    """One attention: its points, its operands as (batch, heads, rows, width), the scores of pairs, and what templates are told of both."""

    points: Points
    score: Scalar
    within: Window
    operands: dict[str, Ref]
    facts: dict[str, Any]

    def write(
        self,
        g: Builder,
        kind: str,
        more: dict[str, Ref],
        outs: dict[str, Buffer],
        bodies: dict[str, Scalar],
        **facts: Any,
    ) -> None:
        """Append the template."""
        operands = {**self.operands, **more}
        aligned = tuple(name for name, ref in operands.items() if is_aligned(g, ref))
        known = {"score": self.score, "inner": self.within.inner, "mask": sc.constant(True, torch.bool)}
        facts = {**self.facts, **facts, "aligned": aligned}
        g.operations.append(Template(kind, operands, outs, self.points.axes, {**known, **bodies}, facts, g.origins))


def attend(
    g: Builder, vals: Sequence[Any], q: TensorValue, k: TensorValue, v: TensorValue, heads: int, before: fx.GraphModule,
    after: fx.GraphModule, dim: int, reads: Sequence[Any], empty_is_zero: bool = False,
) -> tuple[TensorValue, ...]:  # fmt: skip
    """The result, as ``bmm`` gives it, and what is asked for of each row's sum."""
    problem, _ = problem_of(g, q, k, v, heads, before, after, dim, reads, empty_is_zero)
    outs = {name: g.new_buffer(layout_of(g, val)) for name, val in zip(("out", "total", "peak"), vals, strict=False)}
    problem.write(g, templates.ATTENTION, {}, outs, {})
    return tuple(TensorValue.of_ref(Ref.whole(out)) for out in outs.values())


def problem_of(
    g: Builder, q: TensorValue, k: TensorValue, v: TensorValue, heads: int, before: fx.GraphModule, after: fx.GraphModule, dim: int,
    reads: Sequence[Any], empty_is_zero: bool = False,
) -> tuple[Problem, tuple[Expr, ...]]:  # fmt: skip
    """What ``Attend``'s operands say, and the place in the softmax's result of the share of a pair. Raises Decline."""
    lanes, queries, width = static(q.sizes)
    keys, of_values = static(v.sizes)[1:]
    if q.dtype not in (*HALVES, torch.float32) or {q.dtype, k.dtype, v.dtype} != {q.dtype}:
        raise Decline("operands of several types, or of one that no product takes")
    if lanes % heads or not lanes * queries * keys * width * of_values:
        raise Decline("no elements")
    if max(width, of_values) > templates.WIDEST_HEAD:
        raise Decline("heads that are too wide")
    sizes = {"b": lanes // heads, "h": heads, "m": queries, "n": keys}
    points = Points(tuple(Axis(Symbol(name, bound=g.expr(size)), g.expr(size)) for name, size in sizes.items()))
    place = _place(g, points, q, after, dim)
    score = _score(g, points, before, place, reads)
    if _has_function(score):
        # Branches and tens of instructions a pair, beside two products' few: separate kernels were faster with one like that.
        raise Decline("a function of each score")
    *_, row, column = points.places
    within = window_of(score, row, column, (queries, keys))
    precision = _precision(g, q)
    if precision == _EXACT and (within.low, within.high) == (None, None):
        # Three products of TF32 are not certainly faster than the library's of float32 where no block is left out.
        raise Decline("products of float32 of all pairs")
    query, repeated = operand_of(g, q, points, "m", 1)
    if repeated > 1:
        query, _ = operand_of(g, q, points, "m", 1, copied=True)
    key, value = operand_of(g, k, points, "n", 2), operand_of(g, v, points, "n", 1)
    if key[1] != value[1]:
        key, value = operand_of(g, k, points, "n", 2, copied=True), operand_of(g, v, points, "n", 1, copied=True)
    operands = {"q": query, "k": key[0], "v": value[0]}
    facts = {
        "scale": 1.0,
        "window": (within.low, within.high),
        "precision": precision,
        "far": within.is_far,
        "empty_is_zero": empty_is_zero,
    }
    return Problem(points, score, within, operands, facts), place


def _has_function(score: Scalar) -> bool:
    """Whether a function of many instructions is computed of each pair's product."""
    functions = [node for node in sc.walk(score) if node.op in FUNCTIONS - _SHORT]
    return any(part.kind == "reduced" for part in sc.walk(*functions))


def _precision(g: Builder, q: TensorValue) -> str:
    """How products of float32 are computed: as they are; or in three products of TF32, whose error is about that of float32, where eager does not round to TF32 itself."""
    if q.dtype is not torch.float32 or device_of(q.device).language(g.context.config).exact_products:
        return ""
    return "tf32" if device_of(q.device).libraries.rounds_products() else _EXACT


def _place(g: Builder, points: Points, q: TensorValue, after: fx.GraphModule, dim: int) -> tuple[Expr, ...]:
    """Where in the softmax's result the share of a pair is."""
    places: list[tuple[Expr, ...]] = []
    (given,) = after.graph.find_nodes(op="placeholder")
    val = given.meta["val"]

    def share(index: tuple[Expr, ...]) -> Scalar:
        places.append(index)
        return g.convert(sc.reduced("share", torch.float32), val.dtype)

    inlined(g, after, [g.lazy(g.exprs(val.shape), val.dtype, q.device, share)]).at(points.pair)
    (place,) = set(places)
    column = points.places[-1]
    others = [e for d, e in enumerate(place) if d != dim % len(place)]
    if not known_eq(place[dim], column) or column is ZERO or any(column in free_symbols(e) for e in others):
        raise Decline("a softmax that is not over keys")
    return place


def product_of(g: Builder, points: Points, body: fx.GraphModule, number: int) -> TensorValue:
    """The products of queries and keys, each at its place: the value "score", as placeholder ``number`` of ``body`` takes it."""
    given = list(body.graph.find_nodes(op="placeholder"))[number].meta["val"]

    def product(index: tuple[Expr, ...]) -> Scalar:
        if not all(map(known_eq, index, points.pair)):
            raise Decline("scores that are not at the place of their product")
        return g.convert(sc.reduced("score", torch.float32), given.dtype)

    return g.lazy(g.exprs(given.shape), given.dtype, given.device, product)


def _score(g: Builder, points: Points, before: fx.GraphModule, place: tuple[Expr, ...], reads: Any) -> Scalar:
    """What goes into the softmax, at a pair's position, of the value "score"."""
    result = inlined(g, before, [product_of(g, points, before, 0), *read(g, reads)])
    return number(g, result, place)


def number(g: Builder, value: TensorValue, index: tuple[Expr, ...]) -> Scalar:
    """``value`` at one place, as a number that a kernel computes with."""
    found = g.convert(value.at(index), torch.float32)
    if any(node.kind == "parameter" for node in sc.walk(found)):
        raise Decline("a score that reads a number known at run time")
    return found


def operand_of(
    g: Builder, value: TensorValue, points: Points, point: str, rows_at: int, *, copied: bool = False
) -> tuple[Ref, int]:
    """Where an operand lies as (batch, heads, rows, width), and how many of the queries' heads share one of its own. Its rows are dimension ``rows_at``.

    What a copy is of is read itself, and heads that were repeated are not, unless the operand is to be ``copied``.
    """
    batch, heads = (axis.size for axis in points.axes[:2])
    rows = points.axes["bhmn".index(point)]
    row = points.places["bhmn".index(point)]
    columns_at = 3 - rows_at
    width = value.sizes[columns_at]
    if not copied and value.known_ref() is None:
        column = Symbol("d", bound=width)
        index = {0: points.lane(), rows_at: row, columns_at: ZERO if width is ONE else column}
        scalar = value.at(tuple(index[d] for d in range(3)))
        found = None
        if scalar.kind == "load" and scalar.dtype is g.buffers[scalar.buffer].layout.dtype:
            found = _affine(scalar.index, (*points.symbols[:2], rows.symbol, column))
        if found is not None:
            offset, strides, shared = found
            layout = g.buffers[scalar.buffer].layout
            sizes = (batch, g.expr(int(heads) // shared), rows.size, width)
            return checked(Ref(scalar.buffer, sizes, strides, g.expr(offset), layout.dtype, layout.device)), shared
    ref = window(g, value)
    lanes, *others = ref.strides
    strides = [lanes * heads, lanes, others[rows_at - 1], others[columns_at - 1]]
    return checked(Ref(ref.buffer, (batch, heads, rows.size, width), strides, ref.offset, ref.dtype, ref.device)), 1


def _affine(e: Expr, symbols: Sequence[Expr]) -> tuple[int, list[Expr], int] | None:
    """The offset and strides of an index, and by what the second symbol, the head, is divided in it; None where it is not of that form."""
    constant, terms = linear(e)
    strides, shared = dict.fromkeys(symbols, 0), 1
    head = symbols[1]
    for term, factor in terms:
        symbol = term
        if term.op == "floordiv" and term.args[0] is head and term.args[1].is_int:
            symbol, shared = head, int(term.args[1])
        if strides.get(symbol, factor) != 0 or factor < 0:
            return None
        strides[symbol] = factor
    count = int(head.bound) if head.bound is not None else 1
    if strides[head] == 0:
        shared = count
    if count % shared:
        return None
    return constant, [Int(strides[symbol]) for symbol in symbols], shared
