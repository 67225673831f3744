"""Rows that are kept in registers piece by piece, where the next power of two would be far longer than the row.

In: the statements of a kernel whose configuration is ``pieces``. Out: straight code in its emitter. Each stage of the plan goes over
the pieces of the row in turn; what a piece loaded or computed in one stage is there in the later ones.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import TypeVar

from attrs import field, frozen

from ... import kernel_ir as kir
from ...expr import Expr
from ...ir.kernel import Reduce, ScanStep, Statement, Store
from ...kernel_ir import LOOP, Node, Variable
from . import reduction
from .looped import MASK
from .passes import is_inner
from .statements import Statements
from .values import Scope

Key = TypeVar("Key", bound=Hashable)


@frozen(eq=False)
class Piece:
    """A block's worth of the row: the values that are known of it, what was stored to it and its running values."""

    start: int
    masked: bool
    scope: Scope = field(factory=Scope)
    stored: dict[tuple[str, Expr], Variable] = field(factory=dict)
    reduced: dict[str, Variable] = field(factory=dict)


class Pieces:
    """Writes all stages of one kernel."""

    def __init__(self, statements: Statements) -> None:
        self.statements = statements
        self.emitter = statements.emitter
        r = statements.space.tile("r")
        assert r is not None and r.numel.is_int
        self.length = int(r.numel)
        block = statements.config.blocks["r"]
        self.pieces = [Piece(at, at + block > self.length) for at in range(0, self.length, block)]
        self.segments = [part for part in statements.segments if part.tile is r]
        #: Names that an earlier piece defined.
        self.opened: set[str] = set()

    def stage(self, number: int) -> None:
        """The outer statements of a stage, then its inner ones for each piece."""
        statements, emitter = self.statements, self.emitter
        chosen = statements.begin(number)
        for statement in chosen:
            if isinstance(statement, Store) and not is_inner(statement):
                statements.store(statement)
        statements.flush()
        inner = [s for s in chosen if is_inner(s)]
        accumulators = {s.name: reduction.start(emitter, s) for s in inner if isinstance(s, Reduce)}
        carries = {s.name: reduction.scan_carry(emitter, s) for s in inner if isinstance(s, ScanStep)}
        for piece in self.pieces if inner else ():
            self._open(piece)
            for statement in inner:
                self._write(statement, accumulators, carries)
            statements.flush()
            self._close(piece)
        for name, accumulator in accumulators.items():
            emitter.reduced[name] = reduction.finish(emitter, accumulator)

    def _write(
        self, statement: Statement, accumulators: dict[str, reduction.Accumulator], carries: dict[str, Variable]
    ) -> None:
        if isinstance(statement, Reduce):
            reduction.step(self.emitter, accumulators[statement.name])
        elif isinstance(statement, Store):
            self.statements.store(statement)
        else:
            self.statements.check_scan()
            value = reduction.scan_block(self.emitter, statement, carries[statement.name])
            self.emitter.reduced[statement.name] = value

    def _open(self, piece: Piece) -> None:
        emitter = self.emitter
        emitter.masks.pop("r", None)
        if piece.masked:
            emitter.masks["r"] = MASK
        position = kir.position("ri", "r")
        self._set(position, kir.total(kir.Number(piece.start), self.statements.row_lanes()))
        for part in self.segments:
            number = piece.start // part.length
            self._set(kir.position("rn", LOOP), kir.Number(number))
            self._set(kir.position("rw", "r"), kir.arith("sub", position, kir.Number(number * part.length)))
        if piece.masked:
            self._set(MASK, kir.InRange("r", position, kir.Number(self.length)))
        emitter.piece = (piece.start, min(piece.start + self.statements.config.blocks["r"], self.length))
        emitter.stored.update(piece.stored)
        emitter.reduced.update(piece.reduced)
        emitter.scopes.append(piece.scope)

    def _set(self, variable: Variable, value: Node) -> None:
        """What each piece has another value of."""
        statement = kir.Update if variable.name in self.opened else kir.Assign
        self.opened.add(variable.name)
        self.emitter.scopes[0].body.append(statement((variable,), value))

    def _close(self, piece: Piece) -> None:
        """Put aside what holds for this piece alone."""
        emitter = self.emitter
        emitter.piece = None
        emitter.scopes.pop()
        emitter.scopes[0].body.extend(piece.scope.body)
        piece.scope.body.clear()
        _move(emitter.stored, piece.stored)
        _move(emitter.reduced, piece.reduced)


def _move(known: dict[Key, Variable], kept: dict[Key, Variable]) -> None:
    """From ``known`` to ``kept``: what varies along the row."""
    for key in [key for key, value in known.items() if value.tiles & {"r", LOOP}]:
        kept[key] = known.pop(key)
