"""Reductions and scans along the ``r`` tile in the kernel IR.

In: the kind, the value of one block, masks. Out: statements that keep an accumulator over blocks (looped kernels) or reduce the one
block (persistent kernels). Accumulators have the dtype of the value.
"""

from __future__ import annotations

import torch
from attrs import frozen

from ... import kernel_ir as kir
from ...expr import ZERO
from ...ir.kernel import Reduce, ScanStep
from ...kernel_ir import Node, Variable
from ...ops.dtypes import element_type
from ..errors import UnsupportedKernel
from .values import Emitter

ROW = frozenset({"x"})
BLOCK = frozenset({"x", "r"})

#: kind -> helper that combines two values.
_COMBINE = {
    "sum": "total",
    "prod": "product",
    "max": "maximum",
    "min": "minimum",
    "xor_sum": "exclusive_or",
    "logaddexp": "logaddexp",
}
#: kind -> the operation that does it.
_PLAIN = {"sum": "add", "any": "or", "all": "and"}


def identity(kind: str, dtype: torch.dtype) -> bool | int | float:
    """What leaves every value as it is under ``kind``."""
    if kind in ("max", "argmax", "logaddexp"):
        return element_type(dtype).lowest
    if kind in ("min", "argmin"):
        return element_type(dtype).highest
    return 1 if kind in ("prod", "all") else 0


def accumulator_dtype(dtype: torch.dtype) -> torch.dtype:
    """Truth values are accumulated as integers."""
    return torch.int32 if dtype is torch.bool else dtype


@frozen
class Accumulator:
    """The running state of one ``Reduce`` in a looped kernel: one or two variables of a whole block."""

    statement: Reduce
    variables: tuple[Variable, ...]


_LAST_POSITION = 2**31 - 1


def filled(kind: str, dtype: torch.dtype, tiles: kir.Tiles) -> kir.Full:
    """A block of what leaves every value as it is."""
    return kir.Full(kir.Number(identity(kind, dtype), dtype), dtype, tiles)


def block_value(emitter: Emitter, statement: Reduce | ScanStep) -> Variable:
    """The statement's value over a whole block, the identity in lanes outside."""
    dtype = accumulator_dtype(statement.value.dtype)
    r = emitter.space.tile("r")
    if r is not None and r.numel is ZERO:
        # Nothing to reduce: what the value loads need not exist.
        return emitter.define(filled(statement.kind, dtype, BLOCK))
    value = emitter.convert(emitter.emit(statement.value), dtype)
    whole = emitter.broadcast(value, BLOCK)
    if "r" not in emitter.masks:
        return value if whole is value else emitter.define(whole)
    nothing = kir.constant(identity(statement.kind, dtype), dtype)
    return emitter.define(kir.Op("where", (emitter.masks["r"], whole, nothing), dtype, BLOCK))


def _positions(emitter: Emitter) -> Variable:
    places: Node = emitter.broadcast(kir.position("ri", "r"), BLOCK)
    if "r" in emitter.masks:
        places = kir.Op("where", (emitter.masks["r"], places, kir.Number(_LAST_POSITION)), kir.INDEX, BLOCK)
    return emitter.define(places)


def open_variable(emitter: Emitter, prefix: str, value: kir.Full) -> Variable:
    """A variable of the whole kernel that later statements update."""
    variable = Variable(emitter.name(prefix), value.tiles, value.dtype, value.layout)
    emitter.scopes[0].body.append(kir.Assign((variable,), value))
    return variable


def start(emitter: Emitter, statement: Reduce) -> Accumulator:
    """Open an accumulator before the loop."""
    dtype = accumulator_dtype(statement.value.dtype)
    value = open_variable(emitter, "acc", filled(statement.kind, dtype, BLOCK))
    if statement.kind not in ("argmax", "argmin"):
        return Accumulator(statement, (value,))
    last = kir.Full(kir.Number(_LAST_POSITION), kir.INDEX, BLOCK)
    return Accumulator(statement, (value, open_variable(emitter, "acc", last)))


def step(emitter: Emitter, accumulator: Accumulator) -> None:
    """Add this block inside the loop."""
    statement, targets = accumulator.statement, accumulator.variables
    value = block_value(emitter, statement)
    held, dtype = targets[0], value.dtype
    if len(targets) == 2:
        place = _positions(emitter)
        joined: Node = kir.Call(statement.kind, (*targets, value, place), dtype, BLOCK, more=(kir.INDEX,))
    elif statement.kind in _PLAIN:
        joined = kir.arith(_PLAIN[statement.kind], held, value)
    else:
        joined = kir.Call(_COMBINE[statement.kind], (held, value), dtype, BLOCK)
    emitter.scopes[-1].body.append(kir.Update(targets, joined))


def finish(emitter: Emitter, accumulator: Accumulator) -> Variable:
    """One value a row, behind the loop."""
    return _collapse(emitter, accumulator.statement, accumulator.variables)


def reduce_block(emitter: Emitter, statement: Reduce) -> Variable:
    """One value a row of the one block of a persistent kernel."""
    value = block_value(emitter, statement)
    if statement.kind in ("argmax", "argmin"):
        return _collapse(emitter, statement, (value, _positions(emitter)))
    return _collapse(emitter, statement, (value,))


def _collapse(emitter: Emitter, statement: Reduce, operands: tuple[Variable, ...]) -> Variable:
    kind, dtype = statement.kind, operands[0].dtype
    result = Variable(emitter.name("red"), ROW, statement.dtype)
    if len(operands) == 2:
        places = kir.Reduce(kind, operands, kind, spare=emitter.name("red"))
        value: Node = kir.Cast(places, statement.dtype)
    else:
        value = _reduced(kind, operands[0])
        if statement.dtype is torch.bool:
            value = kir.arith("ne", value, kir.Number(0, dtype))
        elif statement.dtype is not dtype or dtype.itemsize < 4:
            # The machine's sum widens narrow integers.
            value = kir.Cast(value, statement.dtype)
    emitter.scopes[0].body.append(kir.Assign((result,), value))
    return result


def _reduced(kind: str, value: Variable) -> kir.Reduce:
    """By the machine's own reduction where it does the same: of floats, its extremes lose NaNs."""
    # The extremes of 0 and 1 stand for any and all.
    own = {"sum": "sum", "xor_sum": "xor_sum", "any": "max", "all": "min"}.get(kind)
    floating = isinstance(value.dtype, torch.dtype) and value.dtype.is_floating_point
    if own is None and not floating and kind in ("max", "min"):
        own = kind
    return kir.Reduce(own, (value,)) if own is not None else kir.Reduce(kind, (value,), _COMBINE[kind])


def scan_carry(emitter: Emitter, statement: ScanStep) -> Variable:
    """Open the running value that a looped scan hands from block to block."""
    return open_variable(emitter, "carry", filled(statement.kind, accumulator_dtype(statement.value.dtype), ROW))


def scan_block(emitter: Emitter, statement: ScanStep, carry: Variable | None) -> Variable:
    """The running values over one block, continued from ``carry``, which is moved on."""
    kind = statement.kind
    if kind not in _COMBINE:
        raise UnsupportedKernel(f"a scan of kind {kind}")
    value = block_value(emitter, statement)
    function = "" if kind == "sum" else _COMBINE[kind]
    scanned = emitter.define(kir.Scan(kind, value, function))
    if carry is not None:

        def joined(more: Node) -> Node:
            if not function:
                return kir.arith("add", carry, more)
            return kir.Call(function, (carry, more), value.dtype, carry.tiles | more.tiles)

        scanned = emitter.define(joined(scanned))
        moved = kir.Update((carry,), joined(kir.Reduce(kind, (value,), function)))
        emitter.scopes[-1].body.append(moved)
    return emitter.convert(scanned, statement.dtype)
