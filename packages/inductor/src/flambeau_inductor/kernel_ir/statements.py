"""Statements of the kernel IR, and the kernel that they make.

In: expressions (``values.py``). Out: frozen records. A block is a tuple of statements; what a block defines is seen in the blocks inside it and no
longer than it lasts.

    Assign, Update, Alias          a new variable; another value for one that is there; a pointer to elements of another type
    Store, Atomic, Check           memory; an index that is reported when it is out of range
    If, For, Pipelined             blocks
    Points, ForLanes, Squares      the points of a call; lanes side by side; squares of lanes that are turned on their way
    Begin, LocalArray, RunInPlace  running results; memory of a call; what a stretch of it comes to, element by element
    Pack, CopyRows, MultiplyRows   matrices, packed for products; rows of them; products of rows
    Run, Return                    another kernel, of a combined one; the end of the program
    Wait, Barrier                  until earlier kernels are done; until all threads of a program are here
    Text                           a line of a template, in the generator's language
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, TypeAlias

from attrs import frozen

from .values import INDEX, NO_TILES, Index, Node, Number, Pointer, Tiles, Variable

ZERO: Final = Number(0)


@frozen
class Assign:
    """New variables; several where a ``Call`` or a ``Combine`` has several results."""

    targets: tuple[Variable, ...]
    value: Node


@frozen
class Update:
    """Another value for variables that are there, of the type they have."""

    targets: tuple[Variable, ...]
    value: Node


@frozen
class Alias:
    """``pointer`` is ``source``, as elements of its own type."""

    pointer: Pointer
    source: Pointer


@frozen
class Store:
    """``value`` at ``index``, where ``mask`` holds. ``streamed``: it should leave the cache first."""

    pointer: Pointer
    index: Node
    value: Node
    mask: Node | None = None
    streamed: bool = False


@frozen
class Atomic:
    """``value`` combined by ``mode`` ("add", "min", "max") with what lies at ``index``, in any order."""

    mode: str
    pointer: Pointer
    index: Node
    value: Node
    mask: Node | None = None


@frozen
class Check:
    """Report where ``position`` is not in ``[0, size)`` although all of ``masks`` hold."""

    position: Node
    size: Node
    masks: tuple[Node, ...] = ()


@frozen
class If:
    """``then`` where ``condition``, one truth value, holds, else ``orelse``. ``whole``: the tiles of which ``condition`` says that the block lies within
    their range: accesses in ``then`` need no mask for them."""

    condition: Node
    then: Block
    orelse: Block = ()
    whole: Tiles = NO_TILES


@frozen
class For:
    """``body`` for ``variable`` = ``start``, and ``step`` further each time, below ``stop``. ``carried``: the variables from outside that ``body`` updates."""

    variable: Variable
    stop: Node
    step: Node
    body: Block
    carried: tuple[Variable, ...] = ()
    start: Node = ZERO


@frozen
class Pipelined:
    """``body`` for ``variable`` = 0, 1, … below ``count``, where what the next round loads is on its way while this one works.

    Every round but the last begins with ``ahead``, which computes what the next one needs, and ends with ``moves``: each first variable takes the value of
    the second, one of ``ahead``.
    """

    variable: Variable
    count: int
    ahead: Block
    body: Block
    moves: tuple[tuple[Variable, Variable], ...]


@frozen
class Points:
    """``body`` for each point of the call's slice of a space, in row-major order; ``axes``: the coordinates and how many there are of each. Without axes
    there is one point."""

    axes: tuple[tuple[Variable, Node], ...]
    body: Block


@frozen
class Accumulator:
    """Running results of a reduction of ``kind``: a value, or a value and its place, which is -1 where there is none yet. They begin as ``start``."""

    kind: str
    targets: tuple[Variable, ...]
    start: Node


@frozen
class Begin:
    """Accumulators that a loop over lanes carries, or one over points. ``label`` is what they are called together."""

    label: str
    accumulators: tuple[Accumulator, ...]

    @property
    def targets(self) -> tuple[Variable, ...]:
        """The variables that begin here."""
        return tuple(target for part in self.accumulators for target in part.targets)


@frozen
class ForLanes:
    """``body`` for blocks of as many lanes as a register has, or two of them, from ``start`` below ``stop`` along the tile of ``position``. ``mask`` holds in the lanes
    that are below ``stop``: all of them but in the last block, for which ``body`` is there a second time.

    ``carried``: the accumulators that ``body`` updates. ``parts``: with 0 it does so in place; else that many blocks side by side, which do not wait for each
    other, have accumulators of their own, which are combined with the carried ones at the end. ``label`` names the body.
    """

    label: str
    position: Variable
    mask: Variable
    start: Node
    stop: Node
    body: Block
    carried: tuple[Variable, ...] = ()
    parts: int = 0


@frozen
class Panel:
    """A square of lanes and rows in memory of the call, ``array``, whose rows lie one after the other there. In ``memory`` the rows lie side by side and
    the lanes ``step`` apart; ``index`` is where its first element lies. ``stored``: it is written there behind the body, else read before it."""

    array: Pointer
    memory: Pointer
    index: Index
    step: Node
    stored: bool


@frozen
class Squares:
    """``body`` for each row of squares of lanes: all positions below ``size`` along the tile of ``position``, ``chunk`` of them before the next rows, and
    the rows ``row_position`` from ``start`` below ``stop``. ``row`` counts the rows of the square; ``panels`` are turned before or behind them."""

    label: str
    position: Variable
    mask: Variable
    size: Node
    chunk: int
    row_position: Variable
    start: Node
    stop: Node
    row: Variable
    panels: tuple[Panel, ...]
    body: Block


@frozen
class LocalArray:
    """``length`` elements of memory of this call, each ``start`` where that is not None. ``heap``: they are too many for the stack, or nobody knows.
    ``whole``: there is room for whole registers, so that accesses need no mask; nobody reads what lanes out of range leave there."""

    pointer: Pointer
    length: Node
    start: Node | None = None
    heap: bool = False
    whole: bool = False


@frozen
class RunInPlace:
    """Each of the first ``count`` elements of ``array``, at most ``most``, becomes what it comes to by ``kind`` with all before it and with ``running``,
    which then is the last of them. ``in_any_order``: later ones may be combined with each other first."""

    kind: str
    running: Variable
    array: Pointer
    count: Node
    most: int
    in_any_order: bool


@frozen
class Pack:
    """``array`` becomes a matrix of float32 in strips of whole registers, as ``MultiplyRows`` reads it: ``columns``, of ``rows`` elements each, from ``index``
    of ``memory`` on. Neighbours in a row are ``column_step``, those in a column ``row_step`` elements apart."""

    array: Pointer
    memory: Pointer
    index: Node
    column_step: int
    row_step: int
    columns: int
    rows: int


@frozen
class CopyRows:
    """The first ``count`` rows of ``array``, of ``columns`` elements of float32, become those from ``index`` of ``memory`` on; the others, up to ``rows``,
    become zero."""

    array: Pointer
    memory: Pointer
    index: Node
    row_step: Node
    column_step: Node
    count: Node
    columns: int
    rows: int


@frozen
class MultiplyRows:
    """The first ``count`` rows of ``result`` become the products of those of ``left``, of ``terms`` elements, and the matrix in ``packed``: its columns from
    ``first`` below ``last``, and others that share a strip with those; or, ``along_terms``, the sums of the terms from ``first`` below ``last`` alone, in all
    columns. Arrays of float32; rows of ``left`` and ``result`` are ``left_step`` and ``result_step`` elements apart, and there are some more of them than ``count``."""

    result: Pointer
    result_step: int
    left: Pointer
    left_step: int
    count: Node
    packed: Pointer
    columns: int
    terms: int
    first: Node
    last: Node
    along_terms: bool = False


@frozen
class Run:
    """What the kernel ``function`` does, on ``arguments``."""

    function: str
    arguments: tuple[Node | Pointer, ...]


@frozen
class Return:
    """The program ends."""


@frozen
class Wait:
    """Until the kernels before this one have written what they write: accesses to memory come later."""


@frozen
class Barrier:
    """Until all threads of the program are here; what they wrote before is seen behind it."""


@frozen
class Text:
    """A line of a template. It is not checked."""

    line: str


Statement: TypeAlias = (
    Assign
    | Update
    | Alias
    | Store
    | Atomic
    | Check
    | If
    | For
    | Pipelined
    | Points
    | Begin
    | ForLanes
    | Squares
    | LocalArray
    | RunInPlace
    | Pack
    | CopyRows
    | MultiplyRows
    | Run
    | Return
    | Wait
    | Barrier
    | Text
)
Block: TypeAlias = tuple[Statement, ...]


@frozen
class Kernel:
    """``tiles`` in the order of a block's dimensions, ``pointers`` and ``scalars`` the arguments, ``blocks`` the sizes of blocks by tile, as far as they
    do not depend on the machine. ``index_bits``: how wide positions are. ``called``: it is part of another kernel or program, which has waited for those
    before it."""

    tiles: tuple[str, ...]
    index_bits: int
    pointers: tuple[Pointer, ...]
    scalars: tuple[Variable, ...]
    blocks: tuple[tuple[str, int], ...]
    body: Block
    called: bool = False

    @property
    def single(self) -> Tiles:
        """The tiles of which a block is one element."""
        return frozenset(tile for tile, size in self.blocks if size == 1)


def position(name: str, *tiles: str) -> Variable:
    """A variable that holds a position or a size."""
    return Variable(name, frozenset(tiles), INDEX)


def blocks_of(statement: Statement) -> tuple[Block, ...]:
    """The blocks inside a statement, in order."""
    if isinstance(statement, If):
        return (statement.then, statement.orelse)
    if isinstance(statement, For | Points | ForLanes | Squares):
        return (statement.body,)
    if isinstance(statement, Pipelined):
        return (statement.ahead, statement.body)
    return ()


def defined(block: Sequence[Statement]) -> dict[str, Variable]:
    """The variables that ``block`` itself defines, in order."""
    return {v.name: v for statement in block if isinstance(statement, Assign | Begin) for v in statement.targets}


def updated(block: Sequence[Statement]) -> Iterator[Variable]:
    """The variables from outside that ``block`` updates, in order."""
    own = defined(block)
    for statement in block:
        found = statement.targets if isinstance(statement, Update) else ()
        found = (statement.running,) if isinstance(statement, RunInPlace) else found
        for variable in (*found, *(v for inner in blocks_of(statement) for v in updated(inner))):
            if variable.name not in own:
                yield variable


def carried(body: Sequence[Statement]) -> tuple[Variable, ...]:
    """What a loop around ``body`` carries: each once."""
    return tuple({v.name: v for v in updated(body)}.values())


def loop(variable: Variable, stop: Node, step: Node, body: Sequence[Statement], start: Node = ZERO) -> For:
    """A loop that carries what its body updates."""
    return For(variable, stop, step, tuple(body), carried(body), start)
