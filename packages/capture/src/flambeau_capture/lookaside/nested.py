"""Jagged tensors made of values and offsets.

In: a call of `torch.nested.nested_tensor_from_jagged` met while tracing. Out: a node for the whole call. Which parts there are is told by the tensor of
offsets itself: two jagged tensors of one tensor of offsets fit each other, others do not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.nested
from torch.nested._internal.nested_tensor import _nt_view_dummy

from ..replacements import replaces

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..values.base import Tracer, Value


@replaces(torch.nested.nested_tensor_from_jagged)
def from_jagged(t: Tracer, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Any:
    """`nested_tensor_from_jagged(values, offsets, ...)`."""
    _nt_view_dummy()  # torch keeps the first that it makes, which may be no fake
    t.graph.need_shape_env()
    return t.recorder.record("call_function", torch.nested.nested_tensor_from_jagged, args, kwargs)
