"""Two reductions of which the second needs the first's result, done in one walk over the row.

In: the statements of a body. Out: ``Pair`` records, and their text inside a loop.

    exponentials    max of v; sum of exp(v - max)         the sum is rescaled when the maximum grows
    moments         sum of v; sum of (v - sum / n)**2     Welford's update in each lane, combined behind the loop
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from attrs import frozen

from ...expr import Expr
from ...ir.kernel import Reduce, Statement
from ...ir.scalar import Scalar, walk
from .reduction import BLOCK, ROW, block_value
from .types import number, type_text
from .values import Emitter, Value

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
    names: tuple[str, ...]


def start(emitter: Emitter, pair: Pair, first: Reduce, second: Reduce) -> PairState:
    """Open the variables before the loop."""
    dtype = type_text(first.value.dtype)
    values = [float("-inf"), 0.0] if pair.kind == "exponentials" else [0.0, 0.0]
    shape = f"[XBLOCK, RBLOCK // {emitter.together}]" if pair.kind == "exponentials" else emitter.shape(BLOCK)
    names = tuple(emitter.name("acc") for _ in values)
    for name, value in zip(names, values, strict=True):
        emitter.scopes[0].lines.append(f"{name} = tl.full({shape}, {number(value)}, {dtype})")
    return PairState(pair, first, second, names)


def step(emitter: Emitter, state: PairState) -> None:
    """Add this block inside the loop."""
    lines = emitter.scopes[-1].lines
    a, b = state.names
    if state.pair.kind == "exponentials":
        value = block_value(emitter, state.first)
        count = emitter.together
        together = f"tl.reshape({value.text}, [XBLOCK, RBLOCK // {count}, {count}])"
        lines.append(f"{a}, {b} = {emitter.need('add_exponentials')}({a}, {b}, {together})")
        return
    value = emitter.emit(state.first.value)
    text = emitter.broadcast(value.text, value.dims, BLOCK)
    seen = emitter.name("n")
    lines.append(f"{seen} = tl.full([], start // RBLOCK + 1, tl.int32).to({type_text(value.dtype)})")
    inside = emitter.masks.get("r", "")
    arguments = f"{a}, {b}, {text}, {seen}" + (f", {inside}" if inside else "")
    helper = emitter.need("add_moment_inside" if inside else "add_moment")
    lines.append(f"{a}, {b} = {helper}({arguments})")


def finish(emitter: Emitter, state: PairState) -> None:
    """One value a row of both, behind the loop."""
    dtype = state.first.value.dtype
    results = [emitter.name("red") for _ in range(2)]
    a, b = state.names
    if state.pair.kind == "exponentials":
        call = f"{emitter.need('join_exponentials')}({a}, {b})"
    else:
        r = emitter.space.tile("r")
        assert r is not None
        numel = str(int(r.numel)) if r.numel.is_int else "rnumel"
        lanes = "tl.arange(0, RBLOCK)[None, :]"
        counts = f"(({numel} + RBLOCK - 1 - {lanes}) // RBLOCK).to({type_text(dtype)})"
        call = f"{emitter.need('join_moments')}({a}, {b}, {counts}, {numel})"
    emitter.scopes[0].lines.append(f"{results[0]}, {results[1]} = {call}")
    for statement, name in zip((state.first, state.second), results, strict=True):
        emitter.reduced[statement.name] = Value(name, ROW, statement.dtype)
