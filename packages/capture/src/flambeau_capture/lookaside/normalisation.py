"""Normalisations whose input and parameters have different dtypes.

In: calls of `batch_norm`, `layer_norm`, `group_norm` and `instance_norm`. Out: a node, or a break where eager's kernels may refuse a mixture of
dtypes that a run on fakes lets pass, or where a run on fakes crashes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F

from ..replacements import replaces
from ..signals import GraphBreak
from ..values.base import Value
from ..values.tensor import TensorValue

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..values.base import Tracer

    Args = Sequence[Value]
    Kwargs = Mapping[str, Value]

_LOW = (torch.float16, torch.bfloat16)


def _normalisation(target: Any) -> None:
    @replaces(target)
    def replacement(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
        tensors = [
            value.fake
            for value in (arg.realise(t) for arg in (*args, *kwargs.values()))
            if isinstance(value, TensorValue)
        ]
        if target.__name__ == "batch_norm" and tensors and tensors[0].ndim < 2:
            # torch reads a second size all the same, which on fakes may end the process.
            raise GraphBreak("operator-error", "batch_norm of a tensor without channels")
        given = [tensor.dtype for tensor in tensors]
        for dtype in given[1:]:
            if dtype is not given[0] and not (given[0] in _LOW and dtype is torch.float32):
                raise GraphBreak("operator-error", f"{target.__name__} of {given[0]} with parameters of {dtype}")
        return t.recorder.record("call_function", target, args, kwargs)


for _target in (
    *(F.batch_norm, F.layer_norm, F.group_norm, F.instance_norm),
    *(torch.batch_norm, torch.layer_norm, torch.group_norm, torch.instance_norm),
):
    _normalisation(_target)
