"""Rows too long for registers: one loop over the row for each stage of the plan.

In: the statements of a kernel that loops over ``r``. Out: lines in its emitter: accumulators, the loops, what follows from them.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...expr import Expr
from ...ir.kernel import Reduce, ScanStep, Statement, Store
from . import edges, pairs, reduction
from .passes import is_inner
from .statements import Statements
from .values import LOOP, Scope


class Loops:
    """Writes the walks of one kernel."""

    def __init__(self, statements: Statements) -> None:
        self.statements = statements
        self.emitter = statements.emitter
        r = statements.space.tile("r")
        assert r is not None
        self.r = r
        self.emitter.together = 4 if statements.config.blocks["x"] <= 2 else 1
        self.numel = str(int(r.numel)) if r.numel.is_int else "rnumel"
        self.segments = [part for part in statements.segments if part.tile is r]
        self.wide = ".to(tl.int64)" if statements.index_bits == 64 else ""

    def walk(self, stage: int) -> None:
        """The outer statements of ``stage``, then one loop for its inner ones."""
        statements, emitter = self.statements, self.emitter
        chosen = statements.begin(stage)
        for statement in chosen:
            if isinstance(statement, Store) and not is_inner(statement):
                statements.store(statement)
        statements.flush()
        inner = [s for s in chosen if is_inner(s)]
        if not inner:
            return
        states = self._open_pairs(stage)
        single = [s for s in inner if id(s) not in states]
        accumulators = {s.name: reduction.start(emitter, s) for s in single if isinstance(s, Reduce)}
        carries = {s.name: reduction.scan_carry(emitter, s) for s in inner if isinstance(s, ScanStep)}

        def block() -> Scope:
            emitter.scopes.append(Scope())
            for statement in inner:
                if id(statement) in states:
                    if statement is states[id(statement)].first:
                        pairs.step(emitter, states[id(statement)])
                elif isinstance(statement, Reduce):
                    reduction.step(emitter, accumulators[statement.name])
                elif isinstance(statement, ScanStep):
                    statements.check_scan()
                    emitter.reduced[statement.name] = reduction.scan_block(emitter, statement, carries[statement.name])
                elif isinstance(statement, Store):
                    statements.store(statement)
            statements.flush()
            # What a loop stored cannot be forwarded to another: its variables hold the last block only.
            emitter.stored = {key: value for key, value in emitter.stored.items() if not value.dims & {"r", LOOP}}
            return emitter.scopes.pop()

        inside = self._inside(inner, any(state.pair.kind == "moments" for state in states.values()))
        if inside is None:
            self._plain(block())
        else:
            rows = edges.open_rows(emitter, inside, stage, self._program())
            emitter.masks.pop("r", None)
            emitter.aligned = rows[1]
            whole = block()
            emitter.aligned = {}
            emitter.masks["r"] = "rmask"
            self._with_edges(whole, block(), rows[0])
        for name, accumulator in accumulators.items():
            emitter.reduced[name] = reduction.finish(emitter, accumulator)
        for state in {state.pair: state for state in states.values()}.values():
            pairs.finish(emitter, state)

    def _open_pairs(self, stage: int) -> dict[int, pairs.PairState]:
        """The states of the pairs that are reduced in ``stage``, by the identities of both statements."""
        plan, statements = self.statements.plan, self.statements.body.statements
        found: dict[int, pairs.PairState] = {}
        for number, pair in plan.pairs.items():
            if number == pair.first and plan.stages[number] == stage:
                first, second = statements[pair.first], statements[pair.second]
                assert isinstance(first, Reduce) and isinstance(second, Reduce)
                found[id(first)] = found[id(second)] = pairs.start(self.emitter, pair, first, second)
        return found

    def _inside(self, inner: Sequence[Statement], counted: bool) -> edges.Inside | None:
        """How to treat the row's edges; None for one mask everywhere."""
        if counted or self.segments or self.statements.config.blocks["x"] != 1:
            return None
        inside = edges.inside_of(inner, self.r, self.statements.dtypes)
        if inside is None or self.statements.config.blocks["r"] % inside.vector:
            return None
        return inside

    def _program(self) -> dict[Expr, str]:
        """The tile symbols of a program of one row, as scalars."""
        texts = {tile.symbol: "pid" for tile in self.statements.space.tiles if tile.prefix == "x"}
        for part in self.statements.segments:
            texts |= {part.number: "xn", part.within: f"(pid - xn * {part.length})"}
        return texts

    def _plain(self, scope: Scope) -> None:
        lines = [f"ri = start + {self.statements.range('r')}{self.wide}"]
        for part in self.segments:
            lines.append(f"rn = start // {part.length}")
            lines.append(f"rw = ri - rn * {part.length}")
        if "r" in self.emitter.masks:
            lines.append(f"rmask = ri < {self.numel}")
        self._loop(self.numel, [*lines, *scope.lines])

    def _with_edges(self, whole: Scope, edge: Scope, shift: str) -> None:
        """A loop that counts from the first whole vector, ``shift`` elements before the row."""
        behind = f" + {shift}" if shift else ""
        before = f"(start >= {shift}) & " if shift else ""
        lines = [
            f"at = start + {self.statements.range('r')}{self.wide}",
            f"ri = at - {shift}" if shift else "ri = at",
            f"if {before}(start + RBLOCK <= {self.numel}{behind}):",
            *("    " + text for text in whole.lines),
            "else:",
            f"    rmask = (ri >= 0) & (ri < {self.numel})" if shift else f"    rmask = ri < {self.numel}",
            *("    " + text for text in edge.lines),
        ]
        self._loop(f"{self.numel}{behind}", lines)

    def _loop(self, stop: str, lines: Sequence[str]) -> None:
        head = f"for start in tl.range(0, {stop}, RBLOCK):"
        self.emitter.scopes[0].lines.extend([head, *("    " + text for text in lines)])
