"""Writes at computed positions that go into an input itself.

In: operations whose last result is written back to an input, like ``x.index_add_(0, rows, values)`` once it has been made functional: a
copy of ``x``, the additions to the copy, and the copy back. Out: the additions to ``x``, without the copies.

Only where nobody can see a difference: after the copy was taken, nothing else reads what the input held. That an input which is written
shares its memory with no other is what graphs come with: capture guards it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from attrs import evolve
from torch._ops import OpOverload

from ..effects import may_fail
from ..ir.layout import Buffer, Layout, Ref
from ..ir.loops import Extern, Nested, Operation, Pointwise, Scatter, written
from ..ir.verify import reads_of
from ..ops.aten import twin_in_place
from .builder import Builder
from .values import canonical_index


def changed_copies(b: Builder) -> frozenset[str]:
    """The buffers that are a changed copy of something: those that `write_in_place` may do without."""
    makers = (
        op
        for op in b.operations
        if isinstance(op, Scatter) or (isinstance(op, Extern) and (op.changed or _twin(op) is not None))
    )
    return frozenset(out.name for op in makers for out in written(op))


def write_in_place(b: Builder, target: str, ref: Ref, outputs: Sequence[Any]) -> bool:
    """Let the operations that make ``ref`` change input ``target`` itself; whether that could be done.

    ``outputs`` are the graph's: a result that is one of them has to have memory of its own.
    """
    layout = b.buffers[target].layout
    if not _same(ref.layout(), layout) or any(isinstance(o, Ref) and o.buffer == ref.buffer for o in outputs):
        return False
    makers = [at for at, op in enumerate(b.operations) if any(out.name == ref.buffer for out in written(op))]
    if len(makers) != 1 or not _same(b.buffers[ref.buffer].layout, layout):
        return False
    at = makers[0]
    maker = b.operations[at]
    if any(may_fail(operation) for operation in b.operations[at + 1 :]):
        return False
    if isinstance(maker, Extern) and not maker.changed:
        twin = _twin(maker)
        own = Ref.whole(b.buffers[target])
        others = evolve(maker, args=maker.args[1:])
        if (
            twin is None
            or maker.args[0] != own
            or maker.binds
            or target in reads_of(others)
            or _read(b, target, at + 1)
        ):
            return False
        changed = _over(b, ref.buffer, target)
        b.operations[at] = evolve(maker, op=twin, outs=(None,), changed=(changed,))
        return True
    if not isinstance(maker, Scatter | Extern):
        return False
    copy = b.buffers[ref.buffer].storage
    starts = [n for n, op in enumerate(b.operations[:at]) if any(out.name == copy for out in written(op))]
    if len(starts) != 1 or not _copies(b.operations[starts[0]], target, layout):
        return False
    if _read(b, target, starts[0] + 1) or any(copy in reads_of(op) for n, op in enumerate(b.operations) if n != at):
        return False
    over = _over(b, ref.buffer, target)
    b.operations[at] = evolve(maker, out=over) if isinstance(maker, Scatter) else _on(b, maker, copy, over)
    del b.operations[starts[0]]
    return True


def _twin(call: Extern) -> OpOverload | None:
    """The op that changes what ``call`` changes a copy of."""
    return None if isinstance(call.op, Nested) else twin_in_place(call.op)


def _over(b: Builder, name: str, target: str) -> Buffer:
    """Buffer ``name`` in the memory of ``target``."""
    b.buffers[name] = evolve(b.buffers[name], layout=b.buffers[target].layout, storage=target)
    return b.buffers[name]


def _on(b: Builder, call: Extern, copy: str, over: Buffer) -> Extern:
    """The call that writes to ``copy``, on the memory that ``over`` lies in."""
    own = Ref.whole(b.buffers[over.storage])

    def moved(argument: Any) -> Any:
        if isinstance(argument, tuple):
            return tuple(map(moved, argument))
        return own if isinstance(argument, Ref) and argument.buffer == copy else argument

    kwargs = {name: moved(argument) for name, argument in call.kwargs.items()}
    changed = tuple(over if buffer.name == over.name else buffer for buffer in call.changed)
    return evolve(call, args=moved(call.args), kwargs=kwargs, changed=changed)


def _copies(operation: Operation, target: str, layout: Layout) -> bool:
    """Whether the operation copies ``target`` as it lies."""
    if not isinstance(operation, Pointwise) or not _same(operation.out.layout, layout):
        return False
    value = operation.value
    return (
        value.kind == "load" and value.buffer == target and value.index is layout.index(canonical_index(layout.sizes))
    )


def _read(b: Builder, target: str, start: int) -> bool:
    """Whether an operation from ``start`` on reads ``target``."""
    return any(target in reads_of(op) for op in b.operations[start:])


def _same(a: Layout, b: Layout) -> bool:
    """Whether elements lie at the same distances; where the memory starts does not matter."""
    pairs = [*zip(a.sizes, b.sizes, strict=False), *zip(a.strides, b.strides, strict=False)]
    return a.dtype is b.dtype and len(a.sizes) == len(b.sizes) and all(x is y for x, y in pairs)
