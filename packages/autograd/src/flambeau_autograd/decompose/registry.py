"""The decomposition table: which overloads are rewritten into simpler ones while tracing.

In: the core set of this package and what the caller adds. Out: one dict `OpOverload -> callable`. The caller's entries
win; an entry of `None` takes an op out of the table.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch._ops import OpOverload, OpOverloadPacket

Table = dict[OpOverload, Callable[..., Any]]


def overloads(op: Any) -> list[OpOverload]:
    """The overload itself, or every functional overload of a packet."""
    if isinstance(op, OpOverloadPacket):
        return [o for o in (getattr(op, name) for name in op.overloads()) if not o._schema.is_mutable]
    return [op]


@functools.cache
def core_table() -> Table:
    """The core set; see `core.py` for the list."""
    from .core import CORE_NAMES, EXTRA

    known = torch._decomp.decomposition_table
    table: Table = {}
    for name in CORE_NAMES:
        packet = getattr(torch.ops.aten, name, None)
        if packet is None:
            continue
        for overload in overloads(packet):
            if overload in known:
                table[overload] = known[overload]
    table.update({k: v for k, v in EXTRA.items() if k is not None})
    return table


def merged(user: Mapping[Any, Callable[..., Any] | None] | None) -> Table:
    """The core table with the caller's entries laid over it."""
    table = dict(core_table())
    for op, function in (user or {}).items():
        for overload in overloads(op):
            if function is None:
                table.pop(overload, None)
            else:
                table[overload] = function
    return table
