"""Where the blocks of a program lie: what a kernel begins with.

In: the tiles, their segments, block sizes and masks. Out: statements that define the positions (``xi``, ``yi``, ``ri``), parts of them and masks.
"""

from __future__ import annotations

from collections.abc import Mapping

from attrs import define

from ... import kernel_ir as kir
from ...kernel_ir import Node, Statement, Variable, arith, position
from .. import tiling
from .lookups import choose_round
from .options import Config
from .values import Emitter

PID = position("pid")


@define(eq=False)
class Places:
    """``mirrored``: the tiles along a side of a square whose programs take a tile and its mirror image in turn, else 0. ``moving``: one program does
    several blocks. ``first``: the name of the argument that holds the number of the first program, "" for none."""

    space: tiling.Space
    config: Config
    segments: tuple[tiling.Segments, ...]
    emitter: Emitter
    mirrored: int
    moving: bool
    first: str

    def lanes(self, prefix: str) -> kir.Lanes:
        """The lanes of a block along a tile."""
        return kir.Lanes(prefix, prefix not in self.emitter.masks)

    def numel(self, tile: tiling.Tile) -> Node:
        """The points of a tile, as ``define_numel`` leaves them."""
        return kir.Number(int(tile.numel)) if tile.numel.is_int else position(f"{tile.prefix}numel")

    def define_numel(self, tile: tiling.Tile) -> list[Statement]:
        """What computes them, where they are not known."""
        found = self.numel(tile)
        return [kir.Assign((found,), self.emitter.index(tile.numel))] if isinstance(found, Variable) else []

    def program(self) -> Statement:
        """The program's number."""
        first = position(self.first) if self.first else None
        return kir.Assign((PID,), kir.AsIndex(kir.Program(first)))

    def starts(self) -> dict[str, tuple[Node, int]]:
        """Where the blocks of tiles start that no loop moves, and how long they are."""
        if self.moving:
            return {}
        outer = self._outer()
        found = {tile.prefix: (self._start(tile.prefix), self.config.blocks[tile.prefix]) for tile in outer}
        if self.space.tile("r") is not None and self.config.persistent:
            found["r"] = (kir.Number(0), self.config.blocks["r"])
        return found

    def _outer(self) -> list[tiling.Tile]:
        return [tile for tile in self.space.tiles if tile.prefix != "r"]

    def _start(self, prefix: str) -> Node:
        """Where the program's block starts along a tile."""
        number: Node = PID
        if self.mirrored:
            number = position(f"{prefix}tile")
        elif len(self._outer()) > 1:
            number = arith("mod" if prefix == "x" else "floordiv", PID, position("xtiles"))
        return arith("mul", number, kir.BlockSize(prefix))

    def opening(self) -> list[Statement]:
        """Positions and masks of all tiles that no loop goes along."""
        found = [statement for tile in self.space.tiles for statement in self.define_numel(tile)]
        if self.config.repeats > 1:
            return found
        if self.config.halves or (len(self._outer()) > 1 and not self.mirrored):
            x = self.space.tile("x")
            assert x is not None
            size = kir.BlockSize("x")
            above = arith("sub", kir.total(self.numel(x), size), kir.Number(1))
            found.append(kir.Assign((position("xtiles"),), arith("floordiv", above, size)))
        if self.config.halves:
            found += choose_round(PID, position("xtiles"))
        if self.mirrored:
            found += mirrored_order(self.mirrored)
        for tile in self._outer():
            p = tile.prefix
            found.append(kir.Assign((position(f"{p}i", p),), kir.total(self._start(p), self.lanes(p))))
        for part in self.segments:
            if part.tile.prefix != "r":
                found += self._segments(part)
        if self.space.tile("r") is not None and self.config.persistent:
            found.append(kir.Assign((position("ri", "r"),), kir.AsIndex(self.lanes("r"))))
        looped = "r" if not self.config.persistent else ""
        return found + [self.mask(p, mask) for p, mask in self.emitter.masks.items() if p != looped]

    def _segments(self, part: tiling.Segments) -> list[Statement]:
        """The number of the stretch that the block lies in, and the positions within."""
        p, length = part.tile.prefix, kir.Number(part.length)
        number, within = position(f"{p}n"), position(f"{p}w", p)
        start = self._start(p)
        offset = arith("sub", start, arith("mul", number, length))
        return [
            kir.Assign((number,), arith("floordiv", start, length)),
            kir.Assign((within,), kir.total(offset, self.lanes(p))),
        ]

    def mask(self, prefix: str, mask: Variable) -> kir.Assign:
        """The definition of a tile's mask."""
        tile = self.space.tile(prefix)
        assert tile is not None
        return kir.Assign((mask,), kir.InRange(prefix, position(f"{prefix}i", prefix), self.numel(tile)))


def mirrored_order(side: int) -> list[Statement]:
    """The tile (``ytile``, ``xtile``) of a program in a square of ``side`` by ``side`` tiles, ``side`` even.

    Programs next to each other take a tile and its mirror image, which read the same memory. The triangle of unordered pairs is
    folded to a rectangle; tiles of the diagonal are taken twice.
    """
    pair, row, column, first, second = map(position, ("pair", "row", "column", "first", "second"))
    one, two, width, last = (kir.Number(n) for n in (1, 2, side + 1, side - 1))
    right, even = arith("gt", column, row), arith("eq", arith("mod", PID, two), kir.Number(0))

    def choose(target: Variable, condition: Node, then: Node, other: Node) -> Statement:
        return kir.Assign((target,), kir.Op("where", (condition, then, other), kir.INDEX, kir.NO_TILES))

    return [
        kir.Assign((pair,), arith("floordiv", PID, two)),
        kir.Assign((row,), arith("floordiv", pair, width)),
        kir.Assign((column,), arith("mod", pair, width)),
        choose(first, right, row, arith("sub", last, row)),
        choose(second, right, arith("sub", column, one), arith("sub", last, column)),
        choose(position("ytile"), even, first, second),
        choose(position("xtile"), even, second, first),
    ]


def aliases(arguments: Mapping[str, kir.Pointer], pointers: Mapping[str, kir.Pointer]) -> list[Statement]:
    """Pointers of buffers that share an argument of another dtype."""
    return [
        kir.Alias(pointer, arguments[buffer])
        for buffer, pointer in pointers.items()
        if pointer.name != arguments[buffer].name
    ]
