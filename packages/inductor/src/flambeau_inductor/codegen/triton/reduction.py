"""Reductions and scans along the ``r`` tile as Triton text.

In: the kind, the value of one block, masks. Out: lines that keep an accumulator over blocks (looped kernels) or reduce the one
block (persistent kernels). Accumulators have the dtype of the value.
"""

from __future__ import annotations

import torch
from attrs import frozen

from ...expr import ZERO
from ...ir.kernel import Reduce, ScanStep
from ...ops.dtypes import element_type
from .errors import UnsupportedKernel
from .types import literal, number, type_text
from .values import Emitter, Value

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
    names: tuple[str, ...]
    dtype: torch.dtype


_LAST_POSITION = 2**31 - 1


def block_value(emitter: Emitter, statement: Reduce | ScanStep) -> Value:
    """The statement's value over a whole block, the identity in lanes outside."""
    dtype = accumulator_dtype(statement.value.dtype)
    r = emitter.space.tile("r")
    if r is not None and r.numel is ZERO:
        # Nothing to reduce: what the value loads need not exist.
        first = number(identity(statement.kind, dtype))
        return emitter.define(f"tl.full({emitter.shape(BLOCK)}, {first}, {type_text(dtype)})", BLOCK, dtype)
    value = emitter.emit(statement.value)
    value = emitter.convert(value, dtype)
    text = emitter.broadcast(value.text, value.dims, BLOCK)
    if "r" not in emitter.masks:
        return value if value.dims == BLOCK else emitter.define(text, BLOCK, dtype)
    text = f"tl.where({emitter.masks['r']}, {text}, {literal(identity(statement.kind, dtype), dtype)})"
    return emitter.define(text, BLOCK, dtype)


def _positions(emitter: Emitter) -> str:
    text = emitter.broadcast("ri", frozenset({"r"}), BLOCK)
    if "r" in emitter.masks:
        text = f"tl.where({emitter.masks['r']}, {text}, {_LAST_POSITION})"
    return emitter.define(text, BLOCK, torch.int64).text


def start(emitter: Emitter, statement: Reduce) -> Accumulator:
    """Open an accumulator before the loop."""
    dtype = accumulator_dtype(statement.value.dtype)
    value = emitter.name("acc")
    first = number(identity(statement.kind, dtype))
    emitter.scopes[0].lines.append(f"{value} = tl.full({emitter.shape(BLOCK)}, {first}, {type_text(dtype)})")
    if statement.kind not in ("argmax", "argmin"):
        return Accumulator(statement, (value,), dtype)
    place = emitter.name("acc")
    index = f"tl.int{emitter.index_bits}"
    emitter.scopes[0].lines.append(f"{place} = tl.full({emitter.shape(BLOCK)}, {_LAST_POSITION}, {index})")
    return Accumulator(statement, (value, place), dtype)


def step(emitter: Emitter, accumulator: Accumulator) -> None:
    """Add this block inside the loop."""
    statement, names = accumulator.statement, accumulator.names
    value = block_value(emitter, statement)
    lines = emitter.scopes[-1].lines
    if len(names) == 2:
        helper, place = emitter.need(statement.kind), _positions(emitter)
        lines.append(f"{names[0]}, {names[1]} = {helper}({names[0]}, {names[1]}, {value.text}, {place})")
    elif statement.kind == "sum":
        lines.append(f"{names[0]} = {names[0]} + {value.text}")
    elif statement.kind in ("any", "all"):
        lines.append(f"{names[0]} = {names[0]} {'|' if statement.kind == 'any' else '&'} {value.text}")
    else:
        lines.append(f"{names[0]} = {emitter.need(_COMBINE[statement.kind])}({names[0]}, {value.text})")


def finish(emitter: Emitter, accumulator: Accumulator) -> Value:
    """One value a row, behind the loop."""
    return _collapse(emitter, accumulator.statement, accumulator.names, accumulator.dtype)


def reduce_block(emitter: Emitter, statement: Reduce) -> Value:
    """One value a row of the one block of a persistent kernel."""
    value = block_value(emitter, statement)
    names: tuple[str, ...] = (value.text,)
    if statement.kind in ("argmax", "argmin"):
        names = (value.text, _positions(emitter))
    return _collapse(emitter, statement, names, value.dtype)


def _collapse(emitter: Emitter, statement: Reduce, names: tuple[str, ...], dtype: torch.dtype) -> Value:
    kind = statement.kind
    lines = emitter.scopes[0].lines
    name = emitter.name("red")
    if len(names) == 2:
        value = emitter.name("red")
        lines.append(f"{value}, {name} = tl.reduce(({names[0]}, {names[1]}), 1, {emitter.need(kind)})")
        lines.append(f"{name} = {name}[:, None].to({type_text(statement.dtype)})")
        return Value(name, ROW, statement.dtype)
    whole = names[0]
    # max / min of 0 and 1 stand for any / all.
    simple = {"sum": "tl.sum", "xor_sum": "tl.xor_sum", "any": "tl.max", "all": "tl.min"}.get(kind)
    if simple is None and not dtype.is_floating_point and kind in ("max", "min"):
        simple = f"tl.{kind}"
    if simple is not None:
        lines.append(f"{name} = {simple}({whole}, 1)[:, None]")
    else:
        lines.append(f"{name} = tl.reduce({whole}, 1, {emitter.need(_COMBINE[kind])})[:, None]")
    if statement.dtype is torch.bool:
        lines.append(f"{name} = {name} != 0")
    elif statement.dtype is not dtype or dtype.itemsize < 4:
        # tl.sum widens narrow integers.
        lines.append(f"{name} = {name}.to({type_text(statement.dtype)})")
    return Value(name, ROW, statement.dtype)


def scan_carry(emitter: Emitter, statement: ScanStep) -> str:
    """Open the running value that a looped scan hands from block to block; its name."""
    dtype = accumulator_dtype(statement.value.dtype)
    name = emitter.name("carry")
    first = number(identity(statement.kind, dtype))
    emitter.scopes[0].lines.append(f"{name} = tl.full({emitter.shape(ROW)}, {first}, {type_text(dtype)})")
    return name


def scan_block(emitter: Emitter, statement: ScanStep, carry: str | None) -> Value:
    """The running values over one block, continued from ``carry``, which is moved on."""
    if statement.kind not in _COMBINE:
        raise UnsupportedKernel(f"a scan of kind {statement.kind}")
    value = block_value(emitter, statement)
    combine = _COMBINE[statement.kind]
    if statement.kind == "sum":
        text, last = f"tl.cumsum({value.text}, 1)", f"tl.sum({value.text}, 1)[:, None]"
    else:
        emitter.need(combine)
        text = f"tl.associative_scan({value.text}, 1, {combine})"
        last = f"tl.reduce({value.text}, 1, {combine})[:, None]"
    scanned = emitter.define(text, BLOCK, value.dtype)
    lines = emitter.scopes[-1].lines
    if carry is not None:
        joined = "{} + {}" if statement.kind == "sum" else f"{combine}({{}}, {{}})"
        scanned = emitter.define(joined.format(carry, scanned.text), BLOCK, value.dtype)
        lines.append(f"{carry} = {joined.format(carry, last)}")
    return emitter.convert(scanned, statement.dtype)
