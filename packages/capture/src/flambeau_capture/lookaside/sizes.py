"""`torch.Size(...)`: a tuple of integers, which may be symbolic.

In: its construction in a traced program. Out: a tuple value of that class.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from ..replacements import replaces
from ..signals import GraphBreak
from ..values.base import Value
from ..values.sequences import TupleValue
from ..values.symbolic import SymbolicValue

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..values.base import Tracer

    Args = Sequence[Value]
    Kwargs = Mapping[str, Value]

_SIZE_NEW: Any = torch.Size.__new__


@replaces(torch.Size)
def make_size(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    """`torch.Size(items)`."""
    if len(args) != 1 or kwargs:
        return t.folder.fold(torch.Size, args, kwargs)
    items = list(t.operators.iterate_all(args[0]))
    if any(isinstance(item, SymbolicValue) for item in items) and all(item.python_type() is int for item in items):
        return TupleValue(items, torch.Size)
    if not all(isinstance(item, SymbolicValue) or t.wrapper.is_foldable(item) for item in items):
        raise GraphBreak("unsupported-call", "a torch.Size of something else than integers")
    numbers = [
        t.wrapper.from_python(t.folder.concrete(item)) if isinstance(item, SymbolicValue) else item for item in items
    ]
    return t.folder.fold(torch.Size, [t.wrapper.sequence(numbers, tuple)], {})


@replaces(_SIZE_NEW)
def new_size(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    """`torch.Size.__new__(torch.Size, items)`."""
    if t.folder.concrete(args[0]) is not torch.Size:
        raise GraphBreak("unsupported-call", "making an instance of a subclass of torch.Size")
    return make_size(t, args[1:], kwargs)
