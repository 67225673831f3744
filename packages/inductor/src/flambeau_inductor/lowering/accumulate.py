"""Sums of large matrix products, each added to the memory of the sum before it.

In: operations, among them calls of the library that add a product to a matrix that nobody else reads. Out: the same, without the copy that such a
call takes of the matrix first: it is read and written where it lies.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import torch
from attrs import evolve

from ..expr import hint
from ..ir.layout import Buffer, Ref
from ..ir.loops import Extern, Operation, refs, written
from ..ir.verify import reads_of
from .builder import Builder

aten = torch.ops.aten

#: Fewest bytes of a sum. A smaller one is copied in no time, and a product that is small may become part of a kernel.
LEAST = 16 << 20
#: The overload that writes to a tensor that it is given.
_INTO = {aten.addmm.default: aten.addmm.out, aten.addmm.dtype: aten.addmm.dtype_out}


def add_in_place(b: Builder, operations: Sequence[Operation], outputs: Any) -> tuple[Operation, ...]:
    """``operations`` with such calls in the memory of what they add to; the buffers of ``b`` say so."""
    found = [at for at, op in enumerate(operations) if isinstance(op, Extern) and op.op in _INTO]
    if not found:
        return tuple(operations)
    result = list(operations)
    readers = Counter(name for op in operations for name in reads_of(op))
    readers.update(ref.buffer for ref in refs(outputs))
    makers = {out.name: op for op in operations for out in written(op)}
    for at in found:
        call: Any = result[at]
        over = _sum_before(b, call, readers, makers)
        if over is not None:
            (out,) = call.outs
            changed = b.buffers[out.name] = evolve(out, storage=over.storage)
            kwargs = {**call.kwargs, "out": Ref.whole(over)}
            result[at] = makers[out.name] = evolve(
                call, op=_INTO[call.op], kwargs=kwargs, outs=(None,), changed=(changed,)
            )
    return tuple(result)


def _sum_before(b: Builder, call: Extern, readers: Counter[str], makers: dict[str, Operation]) -> Buffer | None:
    """What ``call`` adds to, where that is memory of the graph's own that nobody looks at again."""
    added, (out,) = call.args[0], call.outs
    if out is None or not isinstance(added, Ref) or hint(out.layout.numel) * out.layout.dtype.itemsize < LEAST:
        return None
    over = b.buffers[added.buffer]
    maker = makers.get(over.name)
    own = isinstance(maker, Extern) and maker.op in (aten.mm.default, aten.mm.dtype, *_INTO, *_INTO.values())
    whole = added == Ref.whole(over) and over.layout == out.layout
    once = readers[over.name] == 1 and sum(ref.buffer == over.name for ref in refs(call.args)) == 1
    return over if own and whole and once else None
