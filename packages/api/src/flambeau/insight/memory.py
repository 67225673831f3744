"""Peak memory of a call, tensor by tensor.

In: a function. Out: the most bytes that its tensors held at one time, beyond those that were there before. What a library takes for itself
inside of a call is not seen; on a CUDA device the allocator is asked instead, which sees that too.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode


class _Tracker(TorchDispatchMode):
    """Follows the storages that operations make."""

    def __init__(self, before: set[int]) -> None:
        super().__init__()
        self.known = before
        self.now = self.peak = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for value in pytree.tree_leaves(result):
            if isinstance(value, Tensor):
                self._enter(value.untyped_storage())
        return result

    def _enter(self, storage: torch.UntypedStorage) -> None:
        key = storage._cdata
        if key in self.known:
            return
        size = storage.nbytes()
        self.known.add(key)
        self.now += size
        self.peak = max(self.peak, self.now)
        weakref.finalize(storage, self._leave, key, size)

    def _leave(self, key: int, size: int) -> None:
        self.known.discard(key)
        self.now -= size


def peak_bytes(function: Callable[[], Any], given: list[Any], device: torch.device) -> int:
    """The peak of `function()`; `given` are tensors that exist before."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        before = torch.cuda.memory_allocated(device)
        torch.cuda.reset_peak_memory_stats(device)
        function()
        torch.cuda.synchronize(device)
        return torch.cuda.max_memory_allocated(device) - before
    before_ids = {value.untyped_storage()._cdata for value in given if isinstance(value, Tensor)}
    tracker = _Tracker(before_ids)
    with tracker:
        kept = function()
    del kept
    return tracker.peak
