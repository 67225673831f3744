"""The validator of the kernel IR, run before kernels are compiled in tests and when ``verify`` is set.

In: a ``Kernel``. Out: nothing, or ``VerifyError`` naming the broken rule with the statements around it. Rules:

- a variable is defined once, in an enclosing block, before it is read, and read with the type it was defined with;
- operands have the types and shapes that an expression's rule asks for, and its own follow from them (``rules.py``);
- an access that varies along a tile whose block may stand out of the tile's range has that tile's mask;
- what is reduced along such a tile holds something neutral outside of the range;
- a store varies along every tile that programs are spread over;
- an update keeps a variable's type; a loop names those from outside that it updates;
- a loop over lanes carries accumulators alone, whose lanes outside of the range stay neutral;
- nothing touches memory before the kernel waits for those before it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from attrs import define, field

from ..errors import VerifyError
from .rules import KINDS, PLACED, check_node, spread
from .statements import (
    Alias,
    Assign,
    Atomic,
    Barrier,
    Begin,
    Block,
    Check,
    CopyRows,
    For,
    ForLanes,
    If,
    Kernel,
    LocalArray,
    MultiplyRows,
    Pack,
    Pipelined,
    Points,
    Return,
    Run,
    RunInPlace,
    Squares,
    Statement,
    Store,
    Text,
    Update,
    Wait,
)
from .substitute import walk
from .text import node_text, statement_lines
from .values import (
    INDEX,
    NO_TILES,
    ROW,
    All,
    Arith,
    Broadcast,
    Call,
    Combine,
    Full,
    InRange,
    Kind,
    Lanes,
    Load,
    Node,
    Number,
    Op,
    Pointer,
    Reduce,
    Reshape,
    Scan,
    Tiles,
    Variable,
)

#: Lanes of the widest register.
_MOST_LANES = 16


def verify(kernel: Kernel) -> None:
    """Check ``kernel``; raises VerifyError."""
    _Checker(kernel).run()


@define
class _Known:
    """What is known of a variable: the tiles whose lanes outside it masks, and those along which it is neutral there."""

    variable: Variable
    covers: Tiles = NO_TILES
    neutral: Tiles = NO_TILES


@define
class _Frame:
    """A block: its variables, the tiles whose blocks may stand out of their range, and, of a loop's, what it carries."""

    open: Tiles
    carried: frozenset[str] | None = None
    variables: dict[str, _Known] = field(factory=dict)


class _Checker:
    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.tiles = frozenset(kernel.tiles)
        self.pointers = {pointer.name: pointer for pointer in kernel.pointers}
        self.local: dict[str, Pointer] = {}
        self.whole: set[str] = set()
        self.accumulators: set[str] = set()
        self.frames = [_Frame(NO_TILES)]
        self.waited = kernel.called

    def run(self) -> None:
        """All rules, statement by statement."""
        for scalar in self.kernel.scalars:
            self._define(scalar, _Known(scalar))
        self._block(self.kernel.body)

    # -- blocks ----------------------------------------------------------------------------------------------------------

    @property
    def frame(self) -> _Frame:
        return self.frames[-1]

    @contextmanager
    def _inside(self, whole: Tiles = NO_TILES, carried: frozenset[str] | None = None) -> Iterator[None]:
        self.frames.append(_Frame(self.frame.open - whole, carried))
        yield
        self.frames.pop()

    def _block(self, block: Block) -> None:
        for number, statement in enumerate(block):
            try:
                _STATEMENTS[type(statement)](self, statement)
            except VerifyError as error:
                if not error.context:
                    error.add_context("checking\n" + _around(block, number))
                raise

    def _known(self, name: str) -> _Known:
        for frame in reversed(self.frames):
            if name in frame.variables:
                return frame.variables[name]
        raise VerifyError(f"{name} is read before it is defined")

    def _define(self, variable: Variable, known: _Known) -> None:
        if any(variable.name in frame.variables for frame in self.frames):
            raise VerifyError(f"{variable.name} is defined twice")
        self.frame.variables[variable.name] = known

    # -- expressions -----------------------------------------------------------------------------------------------------

    def _value(self, root: Node) -> None:
        """An expression and all of its operands."""
        for node in walk(root):
            if isinstance(node, Variable):
                self._read(node)
            else:
                check_node(node, self.kernel)
            if isinstance(node, Load):
                self._access(node)
                if node.filled and node.mask is None:
                    raise VerifyError(f"{node_text(node)} fills what no mask leaves out")
            if isinstance(node, Reduce | Scan):
                self._reduced(node)

    def _read(self, variable: Variable) -> None:
        found = self._known(variable.name).variable
        same = found.dtype == variable.dtype and spread(found) == spread(variable) and found.layout == variable.layout
        if not same:
            raise VerifyError(f"{variable.name} is defined as {found}, read as {variable}")

    def _pointer(self, pointer: Pointer) -> None:
        if self.pointers.get(pointer.name) != pointer:
            raise VerifyError(f"{pointer} is no argument, no alias of one and no array of the kernel")

    def _access(self, access: Load | Store | Atomic) -> None:
        if not self.waited:
            raise VerifyError(f"{access.pointer.name} is accessed before the kernel waits")
        self._pointer(access.pointer)
        if access.index.dtype != INDEX:
            raise VerifyError(f"an index of type {access.index.dtype}")
        if access.mask is not None and (
            access.mask.dtype is not torch.bool or not spread(access.mask) <= spread(access.index)
        ):
            raise VerifyError(f"{node_text(access.mask)} does not mask {node_text(access.index)}")
        if access.pointer.name not in self.whole:
            self._masked(spread(access.index), () if access.mask is None else (access.mask,))

    def _masked(self, tiles: Tiles, masks: Sequence[Node]) -> None:
        missing = (self.frame.open & tiles).difference(*map(self._covers, masks))
        if missing:
            raise VerifyError(f"no mask for the lanes outside of {', '.join(sorted(missing))}")

    def _covers(self, mask: Node) -> Tiles:
        """The tiles whose lanes outside a mask leaves out."""
        if isinstance(mask, Variable):
            return self._known(mask.name).covers
        if isinstance(mask, All):
            return NO_TILES.union(*map(self._covers, mask.parts))
        return frozenset({mask.tile}) if isinstance(mask, InRange) else NO_TILES

    def _reduced(self, node: Reduce | Scan) -> None:
        for operand in node.operands if isinstance(node, Reduce) else (node.value,):
            if ROW in self.frame.open and ROW not in self._known(operand.name).neutral:
                raise VerifyError(f"{operand.name} is not neutral in the lanes outside of the row")

    def _neutral(self, node: Node) -> Tiles:
        """The tiles along which a block holds something neutral in lanes outside, if there are such lanes."""
        closed = self.tiles - self.frame.open
        if isinstance(node, Variable):
            return closed | self._known(node.name).neutral
        if isinstance(node, Full | Number):
            return self.tiles
        if isinstance(node, Broadcast | Reshape):
            return closed | self._neutral(node.value)
        if isinstance(node, Op) and node.name == "where" and isinstance(node.operands[2], Full | Number):
            return closed | self._covers(node.operands[0])
        if isinstance(node, Arith):
            return self._neutral(node.left) & self._neutral(node.right)
        if isinstance(node, Combine):
            kept = self._covers(node.mask) if node.mask is not None else NO_TILES
            return closed | kept & self.tiles.intersection(*map(self._neutral, node.old))
        if isinstance(node, Call):
            masks = NO_TILES.union(*map(self._covers, node.operands))
            return masks | self.tiles.intersection(*(self._neutral(part) for part in node.operands if spread(part)))
        return closed

    # -- statements ------------------------------------------------------------------------------------------------------

    def _targets(self, statement: Assign | Update) -> None:
        value = statement.value
        self._value(value)
        if len(statement.targets) != 1 and not isinstance(value, Call | Combine):
            raise VerifyError(f"{len(statement.targets)} results of one expression")
        more: Sequence[Kind] = [value.dtype] * (len(statement.targets) - 1)
        if isinstance(value, Combine) or (isinstance(value, Call) and value.more):
            more = value.more
        if len(more) != len(statement.targets) - 1:
            raise VerifyError(f"{len(statement.targets)} targets of {len(more) + 1} results")
        for target, dtype in zip(statement.targets, (value.dtype, *more), strict=True):
            if target.dtype != dtype or spread(target) != spread(value):
                raise VerifyError(f"{target} holds a value of {dtype} along {sorted(value.tiles)}")
            if target.layout != getattr(value, "layout", None) and not isinstance(value, Arith | Reshape):
                raise VerifyError(f"{target} holds a value of another shape: {node_text(value)}")
        if value.dtype == INDEX:
            for node in walk(value):
                if isinstance(node, Lanes):
                    here = frozenset({node.tile})
                    self.frame.open = self.frame.open - here if node.inside else self.frame.open | here

    def _assign(self, statement: Assign) -> None:
        self._targets(statement)
        covers, neutral = self._covers(statement.value), self._neutral(statement.value)
        for target in statement.targets:
            self._define(target, _Known(target, covers, neutral))
        for node in walk(statement.value):
            if isinstance(node, Reduce) and node.spare:
                spare = Variable(node.spare, node.tiles, node.operands[0].dtype)
                self._define(spare, _Known(spare))

    def _update(self, statement: Update) -> None:
        self._targets(statement)
        neutral = self._neutral(statement.value)
        for target in statement.targets:
            self._read(target)
            self._carried(target)
            known = self._known(target.name)
            known.neutral &= neutral
            known.covers = self._covers(statement.value)

    def _carried(self, target: Variable) -> None:
        for frame in reversed(self.frames):
            if target.name in frame.variables:
                return
            if frame.carried is not None and target.name not in frame.carried:
                raise VerifyError(f"a loop updates {target.name}, which it does not carry")

    def _alias(self, statement: Alias) -> None:
        self._pointer(statement.source)
        if statement.pointer.name in self.pointers:
            raise VerifyError(f"{statement.pointer.name} is defined twice")
        self.pointers[statement.pointer.name] = statement.pointer

    def _store(self, statement: Store | Atomic) -> None:
        for part in (statement.index, statement.value, statement.mask):
            if part is not None:
                self._value(part)
        self._access(statement)
        value, index = spread(statement.value), spread(statement.index)
        if statement.value.dtype is not statement.pointer.dtype:
            raise VerifyError(f"a value of {statement.value.dtype} into elements of {statement.pointer.dtype}")
        if not value <= index or (isinstance(statement, Atomic) and value != index):
            raise VerifyError(f"a value along {sorted(value)} at places along {sorted(index)}")
        spared = self.tiles if statement.pointer.name in self.local else self.kernel.single | {ROW}
        if not self.tiles - spared <= index:
            raise VerifyError(f"programs along {sorted(self.tiles - spared - index)} store to the same place")

    def _check(self, statement: Check) -> None:
        for part in (statement.position, statement.size, *statement.masks):
            self._value(part)
        if statement.position.dtype != statement.size.dtype:
            raise VerifyError("a position is compared with a size of another type")
        self._masked(spread(statement.position), statement.masks)

    def _condition(self, node: Node) -> None:
        self._value(node)
        if node.dtype is not torch.bool or spread(node):
            raise VerifyError(f"{node_text(node)} is not one truth value")

    def _if(self, statement: If) -> None:
        self._condition(statement.condition)
        with self._inside(statement.whole):
            self._block(statement.then)
        with self._inside():
            self._block(statement.orelse)

    def _bound(self, node: Node) -> None:
        self._value(node)
        if node.dtype != INDEX or spread(node):
            raise VerifyError(f"{node_text(node)} is no bound of a loop")

    def _for(self, statement: For) -> None:
        for part in (statement.start, statement.stop, statement.step):
            self._bound(part)
        for variable in statement.carried:
            self._read(variable)
        with self._inside(carried=frozenset(variable.name for variable in statement.carried)):
            self._define(statement.variable, _Known(statement.variable))
            self._block(statement.body)

    def _points(self, statement: Points) -> None:
        for _, size in statement.axes:
            self._bound(size)
        with self._inside(carried=frozenset()):
            for variable, _ in statement.axes:
                self._define(variable, _Known(variable))
            self._block(statement.body)

    def _begin(self, statement: Begin) -> None:
        for part in statement.accumulators:
            self._value(part.start)
            if part.kind not in KINDS or len(part.targets) != (2 if part.kind in PLACED else 1):
                raise VerifyError(f"no accumulators of {part.kind}: {part.targets}")
            if part.start.dtype != part.targets[0].dtype or spread(part.start):
                raise VerifyError(f"{part.targets[0]} does not begin as {node_text(part.start)}")
            for target in part.targets:
                self._define(target, _Known(target, neutral=self.tiles))
                self.accumulators.add(target.name)

    @contextmanager
    def _lanes(self, position: Variable, mask: Variable, carried: frozenset[str]) -> Iterator[str]:
        """Inside a body for blocks of lanes, the last of which may stand out of the range."""
        if len(spread(position)) != 1 or spread(mask) != spread(position) or mask.dtype is not torch.bool:
            raise VerifyError(f"{position.name} and {mask.name} are not the lanes of one tile")
        (tile,) = spread(position)
        with self._inside(carried=carried):
            self.frame.open |= {tile}
            self._define(position, _Known(position))
            self._define(mask, _Known(mask, covers=frozenset({tile})))
            yield tile

    def _for_lanes(self, statement: ForLanes) -> None:
        self._bound(statement.start)
        self._bound(statement.stop)
        for variable in statement.carried:
            self._read(variable)
            if variable.name not in self.accumulators:
                raise VerifyError(f"{variable.name} is carried from lane to lane, but no accumulator")
        carried = frozenset(variable.name for variable in statement.carried)
        with self._lanes(statement.position, statement.mask, carried) as tile:
            self._block(statement.body)
            for variable in statement.carried:
                if tile not in self._known(variable.name).neutral:
                    raise VerifyError(f"{variable.name} does not stay neutral in the lanes outside of {tile}")

    def _squares(self, statement: Squares) -> None:
        for part in (statement.size, statement.start, statement.stop):
            self._bound(part)
        with self._lanes(statement.position, statement.mask, frozenset()):
            self._define(statement.row_position, _Known(statement.row_position))
            for panel in statement.panels:
                self._pointer(panel.memory)
                self._value(panel.index)
                self._bound(panel.step)
                if panel.array.dtype is not panel.memory.dtype:
                    raise VerifyError(f"{panel.array} is a panel of {panel.memory}")
                self._array(panel.array)
            self._define(statement.row, _Known(statement.row))
            self._block(statement.body)

    def _array(self, pointer: Pointer) -> None:
        if pointer.name in self.pointers:
            raise VerifyError(f"{pointer.name} is defined twice")
        self.pointers[pointer.name] = self.local[pointer.name] = pointer

    def _local_array(self, statement: LocalArray) -> None:
        self._bound(statement.length)
        self._array(statement.pointer)
        if statement.whole:
            if not isinstance(statement.length, Number) or statement.length.value % _MOST_LANES:
                raise VerifyError(
                    f"{statement.pointer.name}[{node_text(statement.length)}] has no room for whole registers"
                )
            self.whole.add(statement.pointer.name)
        if statement.start is not None:
            self._value(statement.start)
            if statement.start.dtype is not statement.pointer.dtype or spread(statement.start):
                raise VerifyError(f"{statement.pointer} does not begin as {node_text(statement.start)}")

    def _run_in_place(self, statement: RunInPlace) -> None:
        self._bound(statement.count)
        self._pointer(statement.array)
        self._read(statement.running)
        self._carried(statement.running)
        if statement.array.name not in self.local or statement.kind not in KINDS - PLACED:
            raise VerifyError(f"{statement.array.name} does not run by {statement.kind}")
        kinds = (statement.running.dtype, statement.array.dtype)
        if kinds[0] is not kinds[1] and kinds != (torch.float64, torch.float32):
            raise VerifyError(f"{statement.running} is no last of {statement.array}")

    def _filled(self, statement: Pack | CopyRows) -> None:
        _check_matrix(self, statement.array)
        self._pointer(statement.memory)
        if statement.memory.dtype is not torch.float32:
            raise VerifyError(f"{statement.memory} is no memory of float32")
        self._bound(statement.index)
        if isinstance(statement, CopyRows):
            for part in (statement.row_step, statement.column_step, statement.count):
                self._bound(part)
        if not self.waited:
            raise VerifyError(f"{statement.memory.name} is accessed before the kernel waits")

    def _multiply_rows(self, statement: MultiplyRows) -> None:
        arrays = (statement.result, statement.left, statement.packed)
        for array in arrays:
            _check_matrix(self, array)
        for part in (statement.count, statement.first, statement.last):
            self._bound(part)
        if len({array.name for array in arrays}) < len(arrays):
            raise VerifyError(f"{statement.result.name} is an operand of the product that it becomes")
        if statement.left_step < statement.terms or statement.result_step < statement.columns:
            raise VerifyError("rows that overlap")

    def _pipelined(self, statement: Pipelined) -> None:
        with self._inside(carried=frozenset(target.name for target, _ in statement.moves)):
            self._define(statement.variable, _Known(statement.variable))
            with self._inside():
                self._block(statement.ahead)
                if not all(isinstance(part, Assign) for part in statement.ahead):
                    raise VerifyError("what is done ahead defines variables and does nothing else")
                for target, source in statement.moves:
                    self._read(target)
                    self._read(source)
                    if source.name not in self.frame.variables:
                        raise VerifyError(f"{source.name} is not computed ahead")
                    if (target.dtype, target.tiles, target.layout) != (source.dtype, source.tiles, source.layout):
                        raise VerifyError(f"{target.name} takes the value of {source.name}, which has another type")
            with self._inside():
                self._block(statement.body)

    def _run(self, statement: Run) -> None:
        for argument in statement.arguments:
            if isinstance(argument, Pointer):
                self._pointer(argument)
            else:
                self._value(argument)

    def _wait(self, statement: Wait) -> None:
        self.waited = True

    def _nothing(self, statement: Return | Barrier | Text) -> None:
        pass


def _around(block: Block, number: int) -> str:
    lines = []
    for n in range(max(0, number - 2), min(len(block), number + 3)):
        lines.append(f"    {'>' if n == number else ' '} {statement_lines(block[n])[0]}")
    return "\n".join(lines)


def _check_matrix(checker: _Checker, array: Pointer) -> None:
    checker._pointer(array)
    if array.name not in checker.local or array.dtype is not torch.float32:
        raise VerifyError(f"{array} is no array of float32")


_STATEMENTS: dict[type[Statement], Callable[[Any, Any], None]] = {
    Assign: _Checker._assign,
    Update: _Checker._update,
    Alias: _Checker._alias,
    Store: _Checker._store,
    Atomic: _Checker._store,
    Check: _Checker._check,
    If: _Checker._if,
    For: _Checker._for,
    Pipelined: _Checker._pipelined,
    Points: _Checker._points,
    Begin: _Checker._begin,
    ForLanes: _Checker._for_lanes,
    Squares: _Checker._squares,
    LocalArray: _Checker._local_array,
    RunInPlace: _Checker._run_in_place,
    Pack: _Checker._filled,
    CopyRows: _Checker._filled,
    MultiplyRows: _Checker._multiply_rows,
    Run: _Checker._run,
    Return: _Checker._nothing,
    Wait: _Checker._wait,
    Barrier: _Checker._nothing,
    Text: _Checker._nothing,
}
