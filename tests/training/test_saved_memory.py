"""What a compiled forward keeps for its backward is never more than what eager keeps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import flambeau
from tests.models import zoo


def kept_bytes(call: Callable[[], Any], held: list[Tensor]) -> int:
    """Bytes of the storages that autograd saves during `call`, without those of `held` (parameters, buffers, inputs)."""
    known = {tensor.untyped_storage().data_ptr() for tensor in held}
    found: dict[int, Tensor] = {}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in known:
            found[storage.data_ptr()] = tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        result = call()
    total = sum(tensor.untyped_storage().nbytes() for tensor in found.values())
    del result
    return total


@pytest.mark.parametrize("name", [name for name in zoo.ZOO if name != "moe"])
def test_model_keeps_no_more_than_eager(name: str) -> None:
    """Every shared model in training mode; the second compiled call, after everything was compiled."""
    case = zoo.make(name)
    model = case.model.train()
    held = [*model.parameters(), *model.buffers(), *(v for v in case.inputs.values() if isinstance(v, Tensor))]
    eager = kept_bytes(lambda: case.loss(model(**case.inputs)), held)
    compiled = flambeau.compile(model)
    case.loss(compiled(**case.inputs)).backward()
    ours = kept_bytes(lambda: case.loss(compiled(**case.inputs)), held)
    assert 0 < ours <= eager
