"""A graph run for its history alone.

In: calls of ops on tensors, in some of which nothing is left of what the program computed with. Out: zeros of the sizes, strides and type of the
results, and no kernel called: one might raise for such values. What autograd saves of them is put right by who asks for this (`recovery.py`).
"""

from __future__ import annotations

from typing import Any

import torch
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
)
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode


class Uncomputed(TorchDispatchMode):
    """Views are taken and writes are made, on zeros. Raises `reason` where a value decides what comes next."""

    def __init__(self, reason: Exception) -> None:
        super().__init__()
        self._reason = reason
        self._fakes = FakeTensorMode()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        schema = func._schema
        if schema.is_mutable or any(result.alias_info is not None for result in schema.returns):
            return func(*args, **(kwargs or {}))
        if not schema.returns:
            return None  # a check, which held in the forward
        try:
            with self._fakes:
                made = func(*pytree.tree_map(self._fake, args), **pytree.tree_map(self._fake, kwargs or {}))
        except (DataDependentOutputException, DynamicOutputShapeException):
            raise self._reason from None
        return pytree.tree_map(_zeros, made)

    def _fake(self, value: Any) -> Any:
        return self._fakes.from_tensor(value, static_shapes=True) if isinstance(value, torch.Tensor) else value


def _zeros(value: Any) -> Any:
    if not isinstance(value, FakeTensor):
        return value
    return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=value.fake_device).zero_()
