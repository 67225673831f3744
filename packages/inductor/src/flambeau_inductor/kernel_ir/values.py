"""Expressions of the kernel IR: what one line of a kernel computes, with its type and the tiles that it varies along.

In: operands. Out: frozen records, whose ``dtype`` is a ``torch.dtype`` or ``INDEX`` and whose ``tiles`` are the tiles they vary along: the extent of a
block is 1 along the others, and a block that varies along nothing is one number. ``layout`` is the exact shape where that does not say it.

    Variable, Pointer, Number, BlockSize      names and numbers
    Program, Lanes, Index                     where a program is: its number, the positions of a block, an expression of tile symbols
    Arith, All, InRange, NoLane, AnyLane      arithmetic on positions and sizes, and masks
    AlignDown                                 a position that a wide access can start at
    Full, Cast, AsIndex, Broadcast, Reshape   the same in another type or shape
    Op, Call                                  a scalar op of ``ops/table.py``; a support function of the generator, by its name
    Load, Combine, Reduce, Scan               memory, running results, and what is combined along ``r``
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal, TypeAlias

import torch
from attrs import frozen

from ..expr import Expr

Tiles: TypeAlias = frozenset[str]
NO_TILES: Tiles = frozenset()
#: In the tiles of what is one value for a block of a row but another for the next block.
LOOP = "loop"
#: The tile that reductions and scans go along.
ROW = "r"

#: The type of positions, sizes and the numbers of programs: integers as wide as the kernel's largest position.
INDEX: Final = "index"
Kind: TypeAlias = torch.dtype | Literal["index"]


@frozen
class Extent:
    """One dimension of a block: the block size of ``tile``, divided by ``over`` where that is not 0; without a tile, ``count``."""

    tile: str = ""
    over: int = 0
    count: int = 1


Layout: TypeAlias = tuple[Extent, ...]


@frozen
class Variable:
    """What a statement defined, or an argument of the kernel."""

    name: str
    tiles: Tiles
    dtype: Kind
    layout: Layout | None = None


@frozen
class Pointer:
    """The first element of a buffer whose elements have type ``dtype``."""

    name: str
    dtype: torch.dtype


@frozen
class Number:
    """A number as it stands, in the type of what it is used with."""

    value: bool | int | float
    dtype: Kind = INDEX

    @property
    def tiles(self) -> Tiles:
        return NO_TILES


@frozen
class BlockSize:
    """How long a block is along ``tile``: known when the kernel is compiled."""

    tile: str

    @property
    def tiles(self) -> Tiles:
        return NO_TILES

    @property
    def dtype(self) -> Kind:
        return INDEX


@frozen
class Program:
    """The number of the program; ``first`` is the argument that holds the number of the first one, where it is not 0."""

    first: Variable | None = None

    @property
    def tiles(self) -> Tiles:
        return NO_TILES

    @property
    def dtype(self) -> Kind:
        return INDEX


@frozen
class Lanes:
    """0, 1, … along ``tile``: one for each element of a block, or for ``over`` of them. ``inside``: positions that are counted with these lie
    within the tile's range, whatever the block."""

    tile: str
    inside: bool
    over: int = 0

    @property
    def tiles(self) -> Tiles:
        return frozenset({self.tile})

    @property
    def dtype(self) -> Kind:
        return INDEX


@frozen
class Index:
    """An index expression; ``names`` says what each of its symbols is."""

    expression: Expr
    names: tuple[tuple[Expr, Node], ...]
    tiles: Tiles

    @property
    def dtype(self) -> Kind:
        return INDEX


#: Of ``Arith``: those whose result is a truth value.
COMPARISONS = frozenset({"lt", "le", "gt", "ge", "eq", "ne"})
ARITHMETIC = frozenset({"add", "sub", "mul", "floordiv", "mod", "min", "or", "and"}) | COMPARISONS


@frozen
class Arith:
    """Arithmetic on positions and sizes, and on running values: ``op`` is one of ``ARITHMETIC``. Nothing is negative that is divided."""

    op: str
    left: Node
    right: Node
    tiles: Tiles
    dtype: Kind


@frozen
class All:
    """Where all of ``parts``, masks, hold."""

    parts: tuple[Node, ...]
    tiles: Tiles

    @property
    def dtype(self) -> Kind:
        return torch.bool


@frozen
class InRange:
    """The mask of a tile: the lanes whose ``position`` is below ``size``, and not below 0 where ``both`` ends are in question."""

    tile: str
    position: Variable
    size: Node
    both: bool = False

    @property
    def tiles(self) -> Tiles:
        return self.position.tiles

    @property
    def dtype(self) -> Kind:
        return torch.bool


@frozen
class NoLane:
    """Whether ``mask`` holds nowhere in the block."""

    mask: Variable

    @property
    def tiles(self) -> Tiles:
        return NO_TILES

    @property
    def dtype(self) -> Kind:
        return torch.bool


@frozen
class AnyLane:
    """Whether ``mask`` holds somewhere in the block."""

    mask: Variable

    @property
    def tiles(self) -> Tiles:
        return NO_TILES

    @property
    def dtype(self) -> Kind:
        return torch.bool


@frozen
class AlignDown:
    """The largest multiple of ``step`` that is not above ``value``."""

    value: Variable
    step: int

    @property
    def tiles(self) -> Tiles:
        return self.value.tiles

    @property
    def dtype(self) -> Kind:
        return INDEX


@frozen
class Full:
    """A block that holds one number everywhere."""

    value: Node
    dtype: Kind
    tiles: Tiles = NO_TILES
    layout: Layout | None = None


@frozen
class Cast:
    """A position or a result in ``dtype``; the conversions that programs ask for are the op ``to_dtype``."""

    value: Node
    dtype: torch.dtype

    @property
    def tiles(self) -> Tiles:
        return self.value.tiles


@frozen
class AsIndex:
    """An integer as wide as positions are: a count is widened, a value narrowed, where they differ."""

    value: Node

    @property
    def tiles(self) -> Tiles:
        return self.value.tiles

    @property
    def dtype(self) -> Kind:
        return INDEX


@frozen
class Broadcast:
    """``value`` with its extent along all of ``tiles``."""

    value: Node
    tiles: Tiles
    layout: Layout | None = None

    @property
    def dtype(self) -> Kind:
        return self.value.dtype


@frozen
class Reshape:
    """The elements of ``value``, in order, in another shape."""

    value: Node
    tiles: Tiles
    layout: Layout | None = None

    @property
    def dtype(self) -> Kind:
        return self.value.dtype


@frozen
class Op:
    """A scalar op of ``ops/table.py`` on each element. ``mask``: of one that reports failures, the elements that may have one."""

    name: str
    operands: tuple[Node, ...]
    dtype: Kind
    tiles: Tiles
    mask: Node | None = None


@frozen
class Call:
    """A support function of the generator. Where it has several results, a statement has as many targets; ``more`` are the types of those behind
    the first, where they are not all of ``dtype``."""

    function: str
    operands: tuple[Node, ...]
    dtype: Kind
    tiles: Tiles
    layout: Layout | None = None
    more: tuple[Kind, ...] = ()


@frozen
class Load:
    """The elements at ``index``; ``mask`` says which exist, ``filled`` whether the others are 0 (else they are whatever is there)."""

    pointer: Pointer
    index: Node
    mask: Node | None = None
    filled: bool = False
    eviction: str = ""

    @property
    def tiles(self) -> Tiles:
        return self.index.tiles

    @property
    def dtype(self) -> Kind:
        return self.pointer.dtype


@frozen
class Combine:
    """A running result of a reduction of ``kind``, ``old``, and what comes next, ``new``: values, or values and their places, of which a statement has as
    many targets. Lanes that ``mask`` leaves out keep what they have."""

    kind: str
    old: tuple[Node, ...]
    new: tuple[Node, ...]
    tiles: Tiles
    mask: Node | None = None

    @property
    def dtype(self) -> Kind:
        return self.old[0].dtype

    @property
    def more(self) -> tuple[Kind, ...]:
        """The types of the results behind the first."""
        return tuple(part.dtype for part in self.old[1:])


@frozen
class Reduce:
    """A block combined along ``r`` by ``kind``: the machine's own reduction, or by the support function ``function``.

    ``operands`` are two where the place of an extreme is asked for: values and places; the result is the place. ``spare`` is the variable that takes the
    extreme, which nothing reads, where the machine's own answers both.
    """

    kind: str
    operands: tuple[Variable, ...]
    function: str = ""
    spare: str = ""

    @property
    def tiles(self) -> Tiles:
        return self.operands[0].tiles - {ROW}

    @property
    def dtype(self) -> Kind:
        return self.operands[-1].dtype


@frozen
class Scan:
    """Running results along ``r``, as ``Reduce``."""

    kind: str
    value: Variable
    function: str = ""

    @property
    def tiles(self) -> Tiles:
        return self.value.tiles

    @property
    def dtype(self) -> Kind:
        return self.value.dtype


Node: TypeAlias = (
    Variable
    | Number
    | BlockSize
    | Program
    | Lanes
    | Index
    | Arith
    | All
    | InRange
    | NoLane
    | AnyLane
    | AlignDown
    | Full
    | Cast
    | AsIndex
    | Broadcast
    | Reshape
    | Op
    | Call
    | Load
    | Combine
    | Reduce
    | Scan
)


def arith(op: str, left: Node, right: Node) -> Arith:
    """``left op right``, of the type that follows."""
    return Arith(op, left, right, left.tiles | right.tiles, torch.bool if op in COMPARISONS else left.dtype)


def total(first: Node, *more: Node) -> Node:
    """The sum of positions or sizes, as it stands."""
    for other in more:
        first = arith("add", first, other)
    return first


def all_of(parts: Iterable[Node]) -> Node | None:
    """The mask where all of them hold; None where there is none."""
    found = tuple(parts)
    if len(found) < 2:
        return found[0] if found else None
    return All(found, frozenset().union(*(part.tiles for part in found)))


def constant(value: bool | int | float, dtype: torch.dtype) -> Full:
    """A number in ``dtype``."""
    return Full(Number(value, dtype), dtype)
