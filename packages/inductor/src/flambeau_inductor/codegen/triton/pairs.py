"""Two reductions of which the second needs the first's result, done in one walk over the row.

In: the statements of a body. Out: ``Pair`` records, and their statements inside a loop.

    exponentials    max of v; sum of exp(v - max)         the sum is rescaled when the maximum grows
    moments         sum of v; sum of (v - sum / n)**2     Welford's update in each lane, combined behind the loop
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from attrs import frozen

from ... import kernel_ir as kir
from ...expr import Expr
from ...ir.kernel import Reduce, Statement
from ...ir.scalar import Scalar, walk
from ...kernel_ir import Variable
from .reduction import BLOCK, ROW, block_value, open_variable
from .values import Emitter

_FLOATING = (torch.float32, torch.float64)


@frozen
class Pair:
    """``kind`` is "exponentials" or "moments"; ``first`` and ``second`` are positions of statements."""

    kind: str
    first: int
    second: int


def find_pairs(statements: Sequence[Statement], count: Expr) -> dict[int, Pair]:
    """The pairs among ``statements`` over rows of ``count`` elements, by both positions."""
    found: dict[int, Pair] = {}
    for second, later in enumerate(statements):
        if not (isinstance(later, Reduce) and later.kind == "sum" and later.value.dtype in _FLOATING):
            continue
        for first, earlier in enumerate(statements[:second]):
            if not isinstance(earlier, Reduce) or first in found or earlier.value.dtype is not later.value.dtype:
                continue
            kind = _kind(earlier, later, count)
            if kind:
                found[first] = found[second] = Pair(kind, first, second)
                break
    return found


def _kind(first: Reduce, second: Reduce, count: Expr) -> str:
    value, needed = first.value, second.value
    if any(node.kind == "reduced" and node.args[0] == second.name for node in walk(value)):
        return ""
    if first.kind == "max" and needed.kind == "op" and needed.op == "exp":
        distance = needed.children[0]
        if distance.op == "sub" and distance.children[0] is value and _is_result(distance.children[1], first):
            return "exponentials"
    if first.kind == "sum":
        squared = _squared(needed)
        if squared is not None and squared.op == "sub" and squared.children[0] is value:
            mean = squared.children[1]
            if mean.op == "truediv" and _is_result(mean.children[0], first) and _is_count(mean.children[1], count):
                return "moments"
    return ""


def _squared(node: Scalar) -> Scalar | None:
    if node.op == "mul" and node.children[0] is node.children[1]:
        return node.children[0]
    return None


def _is_result(node: Scalar, statement: Reduce) -> bool:
    return node.kind == "reduced" and node.args[0] == statement.name


def _is_count(node: Scalar, count: Expr) -> bool:
    while node.op == "to_dtype":
        node = node.children[0]
    if node.kind == "index":
        return node.index is count
    return node.kind == "constant" and count.is_int and node.args[0] == int(count)


@frozen
class PairState:
    """The running variables of a pair, each a block wide."""

    pair: Pair
    first: Reduce
    second: Reduce
    variables: tuple[Variable, ...]


def start(emitter: Emitter, pair: Pair, first: Reduce, second: Reduce) -> PairState:
    """Open the variables before the loop."""
    dtype = first.value.dtype
    exponentials = pair.kind == "exponentials"
    layout = (kir.Extent("x"), kir.Extent("r", over=emitter.together)) if exponentials else None
    values = [float("-inf") if exponentials else 0.0, 0.0]
    variables = [
        open_variable(emitter, "acc", kir.Full(kir.Number(value, dtype), dtype, BLOCK, layout)) for value in values
    ]
    return PairState(pair, first, second, tuple(variables))


def step(emitter: Emitter, state: PairState) -> None:
    """Add this block inside the loop."""
    dtype, targets = state.first.value.dtype, state.variables
    if state.pair.kind == "exponentials":
        value = block_value(emitter, state.first)
        layout = targets[0].layout
        assert layout is not None
        together = kir.Reshape(value, BLOCK, (*layout, kir.Extent(count=emitter.together)))
        call = kir.Call("add_exponentials", (*targets, together), dtype, BLOCK, layout)
    else:
        value = emitter.emit(state.first.value)
        block = kir.arith("floordiv", kir.position("start"), kir.BlockSize("r"))
        count = kir.Cast(kir.Full(kir.total(block, kir.Number(1)), torch.int32), dtype)
        seen = Variable(emitter.name("n"), frozenset({kir.LOOP}), dtype)
        emitter.scopes[-1].body.append(kir.Assign((seen,), count))
        mask = emitter.masks.get("r")
        arguments = (*targets, emitter.broadcast(value, BLOCK), seen, *((mask,) if mask is not None else ()))
        call = kir.Call("add_moment" if mask is None else "add_moment_inside", arguments, dtype, BLOCK)
    emitter.scopes[-1].body.append(kir.Update(targets, call))


def finish(emitter: Emitter, state: PairState) -> None:
    """One value a row of both, behind the loop."""
    dtype = state.first.value.dtype
    results = [Variable(emitter.name("red"), ROW, s.dtype) for s in (state.first, state.second)]
    if state.pair.kind == "exponentials":
        call = kir.Call("join_exponentials", state.variables, dtype, ROW)
    else:
        r = emitter.space.tile("r")
        assert r is not None
        count = kir.Number(int(r.numel)) if r.numel.is_int else kir.position("rnumel")
        blocks = kir.arith("sub", kir.total(count, kir.BlockSize("r")), kir.Number(1))
        own = kir.arith("floordiv", kir.arith("sub", blocks, kir.Lanes("r", True)), kir.BlockSize("r"))
        call = kir.Call("join_moments", (*state.variables, kir.Cast(own, dtype), count), dtype, ROW)
    emitter.scopes[0].body.append(kir.Assign(tuple(results), call))
    for statement, result in zip((state.first, state.second), results, strict=True):
        emitter.reduced[statement.name] = result
