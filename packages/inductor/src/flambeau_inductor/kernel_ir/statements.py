"""Statements of the kernel IR, and the kernel that they make.

In: expressions (``values.py``). Out: frozen records. A block is a tuple of statements; what a block defines is seen in the blocks inside it and no
longer than it lasts.

    Assign, Update, Alias          a new variable; another value for one that is there; a pointer to elements of another type
    Store, Atomic, Check           memory; an index that is reported when it is out of range
    If, For, Pipelined             blocks
    Run, Return                    another kernel, of a combined one; the end of the program
    Wait, Barrier                  until earlier kernels are done; until all threads of a program are here
    Text                           a line of a template, in the generator's language
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias

from attrs import frozen

from .values import INDEX, NO_TILES, Node, Pointer, Tiles, Variable


@frozen
class Assign:
    """New variables; several where a ``Call`` has several results."""

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

    position: Variable
    size: Variable
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
    """``body`` for ``variable`` = 0, ``step``, … below ``stop``. ``carried``: the variables from outside that ``body`` updates."""

    variable: Variable
    stop: Node
    step: Node
    body: Block
    carried: tuple[Variable, ...] = ()


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
    Assign | Update | Alias | Store | Atomic | Check | If | For | Pipelined | Run | Return | Wait | Barrier | Text
)
Block: TypeAlias = tuple[Statement, ...]


@frozen
class Kernel:
    """``tiles`` in the order of a block's dimensions, ``pointers`` and ``scalars`` the arguments, ``blocks`` the sizes of blocks by tile.
    ``index_bits``: how wide positions are. ``called``: it is part of another kernel, which has waited for those before it."""

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
    if isinstance(statement, For):
        return (statement.body,)
    if isinstance(statement, Pipelined):
        return (statement.ahead, statement.body)
    return ()


def defined(block: Sequence[Statement]) -> dict[str, Variable]:
    """The variables that ``block`` itself defines, in order."""
    return {v.name: v for statement in block if isinstance(statement, Assign) for v in statement.targets}


def updated(block: Sequence[Statement]) -> Iterator[Variable]:
    """The variables from outside that ``block`` updates, in order."""
    own = defined(block)
    for statement in block:
        found = statement.targets if isinstance(statement, Update) else ()
        for variable in (*found, *(v for inner in blocks_of(statement) for v in updated(inner))):
            if variable.name not in own:
                yield variable


def loop(variable: Variable, stop: Node, step: Node, body: Sequence[Statement]) -> For:
    """A loop that carries what its body updates."""
    carried = {v.name: v for v in updated(body)}
    return For(variable, stop, step, tuple(body), tuple(carried.values()))
