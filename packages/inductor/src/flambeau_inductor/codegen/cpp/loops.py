"""The loops of a kernel as C++ lines: over points, over inner axes, over vectors.

In: the loop plan. Out: lines in the emitter's innermost scope.
"""

from __future__ import annotations

from collections.abc import Sequence

from ... import expr as ex
from ...expr import Expr
from ...ir.kernel import Statement
from ...ir.scalar import Scalar
from .statements import StatementWriter

#: Attribute of the lambdas that loops call.
INLINE = "__attribute__((always_inline))"


class LoopWriter(StatementWriter):
    """Opens and closes loops around statements."""

    def _pieces(self, size: Expr, length: int | None) -> str:
        return self._text(ex.floor_div(size + ((length or 1) - 1), ex.Int(length or 1)))

    def _open_points(self, extra: list[tuple[str, str]]) -> None:
        """Enter the loop over the slice of the parallel extent."""
        em = self.emitter
        self.counters = [(axis.symbol.name, self._text(axis.size)) for axis in self.plan.outer] + extra
        em.push(1)
        for axis in self.plan.outer:
            em.depth_of[axis.symbol] = 1
            em.spelling[axis.symbol] = axis.symbol.name

    def _close_points(self) -> None:
        """Leave it; the axes are counted without a division a point."""
        lines = self.emitter.pop()
        counters = self.counters
        if not counters:
            self._block("", lines)
            return
        if len(counters) == 1:
            name = counters[0][0]
            self._block(f"for (int64_t {name} = begin; {name} < end; ++{name})", lines)
            return
        self._line(f"int64_t {', '.join(f'q_{name} = 0' for name, _ in counters)}, rest = begin;")
        for name, size in reversed(counters[1:]):
            self._line(f"q_{name} = rest % {size}; rest /= {size};")
        self._line(f"q_{counters[0][0]} = rest;")
        step = f"++q_{counters[0][0]};"
        for name, size in counters[1:]:
            step = f"if (++q_{name} == {size}) {{ q_{name} = 0; {step} }}"
        known = [f"const int64_t {name} = q_{name};" for name, _ in counters]
        self._block("for (int64_t point = begin; point < end; ++point)", [*known, step, *lines])

    def _open_inner(self, first: tuple[str, str] | None = None) -> None:
        em = self.emitter
        self.inner_bounds: list[tuple[str, str, str]] = []
        for n, axis in enumerate(self.plan.inner):
            name = axis.symbol.name
            em.depth_of[axis.symbol] = 2 + n
            em.spelling[axis.symbol] = name
            low, high = first if first is not None and n == 0 else ("0", self._text(axis.size))
            self.inner_bounds.append((name, low, high))
            em.push(2 + n)

    def _close_inner(self) -> None:
        for name, low, high in reversed(self.inner_bounds):
            lines = self.emitter.pop()
            self._block(f"for (int64_t {name} = {low}; {name} < {high}; ++{name})", lines)

    def _vector_loop(self, low: str, high: str, body: str) -> None:
        calls = [
            f"int64_t at = {low};",
            f"for (; at + W <= {high}; at += W) {body}(fb::Full{{}}, at);",
            f"if (at < {high}) {body}(fb::first<W>({high} - at), at);",
        ]
        self._block("", calls)

    def _vector_body(
        self,
        depth: int,
        variables: list[str],
        statements: Sequence[Statement],
        name: str = "body",
        accumulators: int | None = None,
        extra: Sequence[Scalar] = (),
    ) -> list[str]:
        """The lines of a lambda that does ``statements`` for W lanes from ``variables[0]`` on; what is the same for all its calls is written already."""
        em, vector = self.emitter, self.plan.vector
        assert vector is not None
        em.vector_axis, em.lambda_depth = vector.symbol, depth
        em.depth_of[vector.symbol] = depth
        em.spelling[vector.symbol] = variables[0]
        for reduced_name in em.lane_reduced:
            em.depth_of[reduced_name] = depth
        em.push(depth)
        for node in extra:
            em.emit(node)
        self._statements(statements)
        lines = em.pop()
        parameters = "".join(f", const int64_t {v}" for v in variables)
        acc = f", A{accumulators}& a" if accumulators is not None else ""
        head = f"const auto {name} = [&](auto t{parameters}{acc}) {INLINE} {{"
        return [head, *("  " + line for line in lines), "};"]
