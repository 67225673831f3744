"""Marks of dimensions, and hints, that a captured frame sets itself.

In: the traced program calls `mark_static` or `override_optimization_hint`. Out: symbolic sizes become constants; the shape environment knows the hint. The
other marks come before a call: they are errors here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from ..graph.dimension_marks import (
    mark_dynamic,
    mark_static,
    mark_static_address,
    mark_unbacked,
    maybe_mark_dynamic,
    override_optimization_hint,
)
from ..replacements import FORBID_MARK, replaces
from ..signals import GraphBreak
from ..values.base import Value
from ..values.constants import ConstantValue
from ..values.symbolic import SymbolicValue
from ..values.tensor import TensorValue

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..values.base import Tracer

    Args = Sequence[Value]
    Kwargs = Mapping[str, Value]

for _function in (mark_dynamic, maybe_mark_dynamic, mark_unbacked, mark_static_address):
    setattr(_function, FORBID_MARK, True)


@replaces(mark_static)
def make_static(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    tensor = args[0].realise(t)
    if not isinstance(tensor, TensorValue):
        raise GraphBreak("unsupported-call", f"mark_static of {tensor.describe()}")
    index = t.folder.concrete(args[1]) if len(args) > 1 else t.folder.concrete(kwargs.get("index", ConstantValue(None)))
    dims = range(tensor.fake.ndim) if index is None else (index,) if isinstance(index, int) else index
    for dim in dims:
        size = tensor.fake.shape[dim]
        if isinstance(size, torch.SymInt):
            t.graph.specialise(size)
    return ConstantValue(None)


@replaces(override_optimization_hint)
def override_hint(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    number = args[0].realise(t)
    hint = t.folder.concrete(args[1] if len(args) > 1 else kwargs["val"])
    try:
        override_optimization_hint(
            number.symbol if isinstance(number, SymbolicValue) else t.folder.concrete(number), hint
        )
    except (TypeError, ValueError) as error:
        raise t.exceptions.raised(error) from None
    return ConstantValue(None)
