"""The scalars that a template evaluates in its midst, as lines of its text. A template is text around them, which the kernel IR takes as it stands.

In: a template and the two axes that its blocks lie along. Out: lines for one block of points, and those that come once, before the loops over blocks.
The emitter is the one of every other kernel.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch

from .... import kernel_ir as kir
from ....expr import Expr, free_symbols
from ....ir.loops import Template
from ....ir.scalar import Scalar, expressions, loads, walk
from ...errors import UnsupportedKernel
from ...tiling import Space, Tile
from ..print import Printer
from ..values import Emitter, Scope

_INT32 = 2**31 - 1
#: A block of values: one for each row of the program and each place that the loop is at.
_BLOCK: kir.Tiles = frozenset({"x", "r"})


class Bodies:
    """Writes the bodies of one template. The program has a block of ``rows`` and walks along ``along``; ``moving`` are the axes that an outer loop
    goes along, ``packed`` those that rows go along beside ``rows``, the other axes have one value for the whole program. Variables have the names of the axes' symbols."""

    def __init__(
        self, template: Template, rows: Expr, along: Expr, moving: frozenset[Expr], packed: frozenset[Expr]
    ) -> None:
        found = {node.buffer: node.dtype for node in loads(*template.bodies.values())}
        if any(
            not -_INT32 < end < _INT32 for n in loads(*template.bodies.values()) for end in (n.index.lo, n.index.hi)
        ):
            raise UnsupportedKernel("a body that reads beyond 32 bits")
        #: The buffers that bodies read, each with its parameter, and their types.
        self.pointers = {buffer: f"in{number}" for number, buffer in enumerate(found)}
        self.dtypes = tuple(found.values())
        sizes = {axis.symbol: axis.size for axis in template.axes}
        space = Space((Tile("x", rows, sizes[rows]), Tile("r", along, sizes[along])), {})
        positions = {rows: "x", along: "r", **dict.fromkeys(moving, kir.LOOP), **dict.fromkeys(packed, "x")}
        names = {axis.symbol.name: axis.symbol.name for axis in template.axes}
        pointers = {buffer: kir.Pointer(name, found[buffer]) for buffer, name in self.pointers.items()}
        self.emitter = Emitter(space, positions, pointers, names, {}, lambda node: "")
        self._printer = Printer([tile.prefix for tile in space.tiles], 32)

        #: The bytes that bodies read anew for each pair of a row and a place.
        self.pair_bytes = sum(
            node.dtype.itemsize for node in loads(*template.bodies.values()) if {rows, along} <= _symbols(node)
        )

    @property
    def once(self) -> list[str]:
        """The lines that come before the loops; complete when all loops are written."""
        return self._printer.lines(self.emitter.scopes[0].body)

    @property
    def lines(self) -> list[str]:
        """The lines of the loop that was begun last."""
        return self._printer.lines(self.emitter.scopes[1].body)

    @property
    def helpers(self) -> set[str]:
        """The support functions that the lines call which were asked for so far."""
        return self._printer.helpers

    @property
    def asserts(self) -> bool:
        """Whether they may report an index that is out of range."""
        return self._printer.asserts

    def begin(self) -> None:
        """Start the lines of a loop."""
        self.emitter.scopes[1:] = [Scope()]

    def value(self, body: Scalar, known: Mapping[str, str], dtype: torch.dtype) -> str:
        """A variable that holds ``body``; ``known`` names the blocks, of float32, that it may read."""
        self.emitter.reduced.update({key: kir.Variable(text, _BLOCK, torch.float32) for key, text in known.items()})
        return self.emitter.convert(self.emitter.emit(body), dtype).name

    def line(self, text: str) -> None:
        """A line of the loop."""
        self.emitter.add(kir.Text(text), _BLOCK)


def _symbols(node: Scalar) -> set[Expr]:
    """The axes that a value depends on."""
    return {symbol for part in walk(node) for e in expressions(part) for symbol in free_symbols(e)}


def is_plain(body: Scalar, name: str) -> bool:
    """Whether a body is nothing but the value ``name`` that it is given."""
    return body.kind == "reduced" and bool(body.args[0] == name)


def always(body: Scalar) -> bool:
    """Whether a body holds everywhere."""
    return body.kind == "constant" and bool(body.args[0])
