"""What a schedule is made of, and which buffers each step reads and fills."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from ..errors import VerifyError
from ..expr import Expr
from ..ir.kernel import Combined, Gemm, KernelBody, Store
from ..ir.loops import Assert, Extern, ReadItem, Template, refs, written
from ..ir.scalar import loads
from .nest import values

#: A step that is one launch of a generated kernel.
LaunchStep: TypeAlias = KernelBody | Combined | Template | Gemm
Step: TypeAlias = LaunchStep | Extern | ReadItem | Assert


def step_reads(step: Step) -> set[str]:
    """Buffers a step reads."""
    if isinstance(step, Combined):
        return {name for body in step.bodies for name in step_reads(body)}
    if isinstance(step, KernelBody):
        return {node.buffer for node in loads(*(v for s in step.statements for v in values(s)))}
    if isinstance(step, Extern):
        return {r.buffer for r in refs((step.args, step.kwargs))}
    if isinstance(step, Template | Gemm):
        return set(step.reads)
    return {step.source.buffer} if isinstance(step, ReadItem) else set()


def step_writes(step: Step) -> set[str]:
    """Buffers a step fills."""
    if isinstance(step, Combined):
        return {name for body in step.bodies for name in step_writes(body)}
    if isinstance(step, KernelBody):
        return {s.buffer for s in step.statements if isinstance(s, Store)}
    if isinstance(step, Gemm):
        return set(step.writes)
    return {out.name for out in written(step)} if isinstance(step, Extern | Template) else set()


def check_order(steps: Sequence[Step]) -> None:
    """Raises VerifyError where a step reads what only later ones fill: an order that a transformation broke."""
    first: dict[str, int] = {}
    for position, step in enumerate(steps):
        for name in step_writes(step):
            first.setdefault(name, position)
    for position, step in enumerate(steps):
        early = [name for name in sorted(step_reads(step)) if first.get(name, -1) > position]
        if early:
            raise VerifyError(f"step {position} reads {', '.join(early)}, which step {first[early[0]]} fills")


def step_defines(step: Step) -> tuple[Expr | str, ...]:
    """Symbols and parameters that have a value after ``step`` only."""
    if isinstance(step, Extern):
        return tuple(symbol for symbol, _, _ in step.binds)
    if isinstance(step, ReadItem):
        return (step.name,) if step.symbol is None else (step.name, step.symbol)
    return ()
