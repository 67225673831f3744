"""A right operand that is computed where it is read, block by block.

In: a ``Computed`` matrix and how its blocks lie. Out: the parameters that point to what it is computed from, and lines: those that come once for a block of columns,
and those of each block of terms, which leave the block in ``right_block``. The scalars are written by the emitter of every other kernel.
"""

from __future__ import annotations

import torch

from .... import kernel_ir as kir
from ....ir.kernel import Computed, Window
from ....ir.layout import Ref
from ....ir.scalar import loads
from ...tiling import Space, Tile
from ..print import Printer
from ..values import Emitter, Scope

_INT32 = 2**31 - 1


def pointers_of(name: str, operand: Ref | Window | Computed) -> dict[str, tuple[str, torch.dtype]]:
    """The parameters of an operand: the buffer and type behind each."""
    if not isinstance(operand, Computed):
        return {name: (operand.buffer, operand.dtype)}
    types = {node.buffer: node.dtype for node in loads(operand.value)}
    return {f"{name}{number}": (each, found) for number, (each, found) in enumerate(types.items())}


class Inline:
    """``by_columns``: rows of the block are columns of the operand. Positions of columns and terms are ``xi`` and ``ki``, ``bi`` that of the batch; where blocks go
    beyond the last term, ``rmask`` says which terms exist, and the others are zero."""

    def __init__(self, operand: Computed, *, by_columns: bool, masked: bool) -> None:
        batch, term, column = operand.axes
        tiles = (Tile("x", column, operand.sizes[2]), Tile("r", term, operand.sizes[1]))
        space = Space(tiles if by_columns else tiles[::-1], {})
        names = {buffer: name for name, (buffer, _) in pointers_of("right", operand).items()}
        types = {node.buffer: node.dtype for node in loads(operand.value)}
        pointers = {buffer: kir.Pointer(name, types[buffer]) for buffer, name in names.items()}
        mask = kir.Variable("rmask", frozenset({"r"}), torch.bool)
        emitter = Emitter(
            space, {column: "x", term: "r", batch: ""}, pointers, {}, {"r": mask} if masked else {}, lambda node: ""
        )
        emitter.scopes = [Scope(), Scope()]
        value = emitter.emit(operand.value)
        whole = frozenset({"x", "r"})
        block: kir.Node = emitter.broadcast(value, whole)
        if masked:
            zero = kir.constant(0, value.dtype)
            block = kir.Op("where", (mask, value, emitter.define(zero, "k")), value.dtype, whole)
        wide = any(
            not -_INT32 < end < _INT32 for node in loads(operand.value) for end in (node.index.lo, node.index.hi)
        )
        printer = Printer([tile.prefix for tile in space.tiles], 64 if wide else 32)
        result = emitter.define(block)
        self.once = printer.lines(emitter.scopes[0].body)
        self.lines = [*printer.lines(emitter.scopes[1].body), f"right_block = {result.name}"]
        self.helpers = printer.helpers
        #: The positions that lines read, as they are declared from positions without dimensions.
        along, across = ("[:, None]", "[None, :]") if by_columns else ("[None, :]", "[:, None]")
        bits = "tl.int64" if wide else "tl.int32"
        self.columns = f"xi = columns{along}.to({bits})"
        self.terms = [f"ki = (term + tl.arange(0, RBLOCK)){across}.to({bits})"]
        if masked:
            self.terms.append(f"rmask = ki < {int(operand.sizes[1])}")
