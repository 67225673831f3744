"""The recorder of graphs with wrapper tensors.

In: ATen calls as `Recorder` gets them, some of them on wrappers. Out: nodes for what the wrappers' own `__torch_dispatch__` calls on the tensors inside.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx import GraphModule

from .recorder import Recorder

_OWN = frozenset((FakeTensor, torch.Tensor, torch.nn.Parameter))


class WrappedRecorder(Recorder):
    """Leaves calls on wrappers to their classes, and records what these call."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if not _OWN.issuperset(types):
            return NotImplemented
        return super().__torch_dispatch__(func, types, args, kwargs)


def recorder_of(
    gm: GraphModule, fake_mode: FakeTensorMode, table: dict[OpOverload, Callable[..., Any]]
) -> tuple[Recorder, AbstractContextManager[Any]]:
    """What records a graph, and in what it is replayed: outside of torch functions, but for those of wrappers."""
    if gm.meta.get("wrappers"):
        return WrappedRecorder(fake_mode, table), nullcontext()
    return Recorder(fake_mode, table), torch._C.DisableTorchFunction()
