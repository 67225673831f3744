"""Calls of ops that write to their arguments.

In: a node ``auto_functionalized(op, **arguments)`` of torch: what ``op`` returns, then the new contents of each written argument. Out: an
``Extern`` that runs ``op`` itself on a copy of what it writes. ``in_place`` later does without the copy of an input that is written back.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from ..ir.layout import Ref
from ..ir.loops import refs
from .builder import Builder
from .values import TensorValue


def call_writing(g: Builder, node: fx.Node, op: Any, given: dict[str, Any]) -> tuple[Any, ...]:
    """Append the call; what the node's readers take parts of."""
    arguments, val = op._schema.arguments, node.meta["val"]
    names = [a.name for a in arguments if a.alias_info is not None and a.alias_info.is_write]
    # The copies come last: what is computed for the call still reads the old contents, wherever they are.
    ready = {name: g.argument(value) for name, value in given.items() if name not in names}
    places = {name: val[len(val) - len(names) + place] for place, name in enumerate(names)}
    ready |= {name: _copy(g, given[name], places[name]) for name in names}
    changed = {
        ref: g.new_buffer(g.buffers[ref.buffer].layout, storage=ref.buffer)
        for name in names
        for ref in refs(ready[name])
    }
    positional = [ready[a.name] for a in arguments if not a.kwarg_only]
    keywords = {a.name: ready[a.name] for a in arguments if a.kwarg_only}
    count = len(op._schema.returns)
    returned = val[0] if count < 2 else tuple(val[:count])
    out = g.library(op, positional, keywords, returned, "writes to its arguments", tuple(changed.values()))
    after = {ref: TensorValue.of_ref(Ref.whole(buffer)) for ref, buffer in changed.items()}
    return (*(out if count > 1 else (out,)), *(_replaced(ready[name], after) for name in names))


def _copy(g: Builder, value: Any, val: Any) -> Any:
    if isinstance(value, TensorValue):
        assert isinstance(val, torch.Tensor)
        return g.copy(value, g.exprs(val.stride()))
    return tuple(_copy(g, *pair) for pair in zip(value, val, strict=True)) if isinstance(value, list) else value


def _replaced(value: Any, after: dict[Ref, TensorValue]) -> Any:
    if isinstance(value, tuple):
        return tuple(_replaced(part, after) for part in value)
    return after[value] if isinstance(value, Ref) else value
