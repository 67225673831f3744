"""Which ATen ops are rewritten into simpler ones while the graph is traced, so that lowering sees a small set.

In: the records of ``ops/aten.py``. Out: ``decompositions()``, a dict ``OpOverload -> callable``; ``None`` means "leave this op whole": lowering
has a better rule than the decomposition, or the library is faster. The callables are torch's own decompositions, and those that a program registered.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from torch._decomp import decomposition_table
from torch._ops import OpOverload

from .extensions.decompositions import own_decompositions
from .lowering import RULES_LOADED
from .ops.aten import decomposed_ops, kept_ops

assert RULES_LOADED


@functools.cache
def _table() -> dict[OpOverload, Callable[..., Any] | None]:
    table: dict[OpOverload, Callable[..., Any] | None] = dict.fromkeys(kept_ops())
    for op, record in decomposed_ops():
        formula = decomposition_table.get(op)
        if formula is not None:
            table[op] = formula if record.adapt is None else record.adapt(formula)
    return table


def decompositions() -> dict[OpOverload, Callable[..., Any] | None]:
    """The table to trace with; the caller may change its copy."""
    return _table() | own_decompositions()
