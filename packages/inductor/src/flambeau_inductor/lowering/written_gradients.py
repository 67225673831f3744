"""Gradients of attention that a program writes out, as templates.

In: an ``attend_backward`` node, which ``rewrite/trained_attention.py`` makes. Out: two ``Template``s, of the queries' gradient and of those of keys and values. They compute
scores again as ``written_attention.py`` does, and take the gradient from the softmax to the products as the program wrote it, with its roundings, at each pair's
position. Gradients of shares and sums are not rounded before that. ``Decline`` says why there are no such kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx
from torch._ops import HigherOrderOperator

from ..errors import InternalError
from ..expr import Expr, known_eq
from ..ir import scalar as sc
from ..ir import templates
from ..ir.layout import Layout, Ref
from ..ir.scalar import Scalar
from . import attention
from .attention import checked, layout_of, less_of, read, window
from .builder import Builder
from .inlined import inlined
from .registry import Decline
from .values import TensorValue
from .written_attention import ATTEND, Problem, attend, number, operand_of, problem_of, product_of


class AttendBackward(HigherOrderOperator):
    """``(q, k, v, out, total, peak, grad, heads, before, after, dim, reads, inward, slope, more, empty_is_zero) -> (dq, dk, dv)``: the gradients of
    ``ATTEND``'s operands, as ``bmm`` gives them, or as (batch, heads, rows, width).

    ``grad`` is the result's. ``inward`` is a graph from the gradient of what ``after`` gives to that of the softmax's result, ``slope`` one from the gradient of the softmax's
    operand, with the products and ``more``, to the gradient of the products. No program has it: it stands between a rewrite and lowering.
    """

    def __init__(self) -> None:
        super().__init__("flambeau_attend_backward")

    def __call__(self, *args: Any) -> Any:
        """No program runs it: lowering takes every call away."""
        raise InternalError("gradients of attention that were to become templates are called")


ATTEND_BACKWARD = AttendBackward()


def attend_backward(
    g: Builder, vals: Sequence[Any], q: TensorValue, k: TensorValue, v: TensorValue, out: TensorValue, total: TensorValue, peak: TensorValue,
    grad: TensorValue, heads: int, before: fx.GraphModule, after: fx.GraphModule, dim: int, reads: Sequence[Any], inward: fx.GraphModule,
    slope: fx.GraphModule, more: Sequence[Any], empty_is_zero: bool = False,
) -> tuple[TensorValue, ...]:  # fmt: skip
    """The gradients. That of keys is the transpose of what is in memory, unless they are asked for in four dimensions."""
    problem, place = problem_of(g, q, k, v, heads, before, after, dim, reads, empty_is_zero)
    if {out.dtype, grad.dtype} != {q.dtype}:
        raise Decline("gradients of another type")
    if not (problem.within.reaches or empty_is_zero):
        # Eager's gradients are NaN for all keys then, and those that the window leaves out are not visited.
        raise Decline("gradients of rows of which nothing takes part")
    check_places(g, problem, inward, place)
    body = slope_of(g, problem, q, slope, place, more)
    given, repeated = operand_of(g, grad, problem.points, "m", 1)
    if repeated > 1:
        given, _ = operand_of(g, grad, problem.points, "m", 1, copied=True)
    rows = {
        "grad": given,
        "total": checked(window(g, total)),
        "peak": checked(window(g, peak)),
        "less": _of_rows(problem, g.ref(less_of(g, out, grad, None))),
    }
    bodies = {"slope": body, "inner_slope": problem.within.inside(body)}

    def room(val: torch.Tensor, sizes: Sequence[Expr]) -> Any:
        """As promised, if that has four dimensions; else as ``bmm`` gives it."""
        return g.new_buffer(layout_of(g, val) if val.dim() == 4 else Layout.contiguous(sizes, val.dtype, val.device))

    lanes, width, keys = k.sizes
    dq, dk, dv = map(room, vals, (q.sizes, (lanes, keys, width), v.sizes))
    problem.write(g, templates.ATTENTION_QUERY_GRADIENT, rows, {"dq": dq}, bodies)
    problem.write(g, templates.ATTENTION_KEY_GRADIENTS, rows, {"dk": dk, "dv": dv}, bodies, apart=True)
    by_keys = Ref.whole(dk)
    if vals[1].dim() == 3:
        first, second, third = by_keys.strides
        by_keys = Ref(by_keys.buffer, k.sizes, (first, third, second), by_keys.offset, by_keys.dtype, by_keys.device)
    return tuple(TensorValue.of_ref(ref) for ref in (Ref.whole(dq), by_keys, Ref.whole(dv)))


#: By operator: those in torch's schema, and ours.
RULES: dict[Any, Callable[..., tuple[Any, ...]]] = {
    **attention.RULES,
    ATTEND: attend,
    ATTEND_BACKWARD: attend_backward,
}


def check_places(g: Builder, problem: Problem, inward: fx.GraphModule, place: tuple[Expr, ...]) -> None:
    """Raises Decline where the softmax's gradient does not take each pair's product at the place of its share."""
    inlined(g, inward, [product_of(g, problem.points, inward, 0)]).at(place)


def slope_of(
    g: Builder, problem: Problem, q: TensorValue, slope: fx.GraphModule, place: tuple[Expr, ...], more: Sequence[Any]
) -> Scalar:
    """The gradient of a pair's product, of the values "slope" (that of its score) and "score"."""
    given = next(iter(slope.graph.find_nodes(op="placeholder"))).meta["val"]

    def of_score(index: tuple[Expr, ...]) -> Scalar:
        if not all(map(known_eq, index, place)):
            raise Decline("gradients that are not at the place of their share")
        return g.convert(sc.reduced("slope", torch.float32), given.dtype)

    score = g.lazy(g.exprs(given.shape), given.dtype, q.device, of_score)
    result = inlined(g, slope, [score, product_of(g, problem.points, slope, 1), *read(g, more)])
    return number(g, result, problem.points.pair)


def _of_rows(problem: Problem, ref: Ref) -> Ref:
    """Numbers of (batch times heads, m) as (batch, head, m)."""
    batch, heads, queries, _ = (axis.size for axis in problem.points.axes)
    lane, row = ref.strides
    return checked(
        Ref(ref.buffer, (batch, heads, queries), (lane * heads, lane, row), ref.offset, ref.dtype, ref.device)
    )
