"""Tensors of classes with `__torch_function__` through the default backend: results, gradients, parameters, changing sizes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import flambeau


class Noted(Tensor):
    """Hands a note on to what is computed of it."""

    note: str

    def __new__(cls, data: Tensor, note: str = "new") -> Noted:
        return data.as_subclass(cls)

    def __init__(self, data: Tensor, note: str = "new") -> None:
        self.note = note

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = super().__torch_function__(func, types, args, kwargs or {})
        if isinstance(result, Noted):
            result.note = " ".join(getattr(each, "note", "?") for each in args if isinstance(each, Noted))
        return result


class Halved(Tensor):
    """Its products are halved."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = super().__torch_function__(func, types, args, kwargs or {})
        return result / 2 if func in (torch.matmul, Tensor.matmul, nn.functional.linear) else result


@pytest.mark.parametrize("dynamic", [None, True])
def test_attributes_go_along_and_sizes_change(dynamic: bool | None) -> None:
    def function(x: Noted, y: Tensor) -> tuple[Any, ...]:
        made = Noted(y * 2, "made")
        return (x + made).relu(), x.note, made.sum(), x.shape[0] * 2

    compiled = flambeau.compile(function, fullgraph=True, dynamic=dynamic)
    for rows, note in ((2, "a"), (3, "a"), (5, "b")):
        x, y = Noted(torch.randn(rows, 3), note), torch.randn(rows, 3)
        found, wanted = compiled(x, y), function(x, y)
        for ours, theirs in zip(found, wanted, strict=True):
            assert type(ours) is type(theirs)
            if isinstance(theirs, Noted):
                assert vars(ours) == vars(theirs)
                torch.testing.assert_close(ours.as_subclass(Tensor), theirs.as_subclass(Tensor))
            else:
                assert ours == theirs


def test_parameters_train_as_in_eager() -> None:
    def trained(compile: bool) -> list[Tensor]:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 1))
        model[0].weight = nn.Parameter(model[0].weight.detach().as_subclass(Halved))
        call = flambeau.compile(model, fullgraph=True) if compile else model
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            call(torch.ones(5, 4)).sum().backward()
            optimizer.step()
        assert type(model[0].weight) is Halved
        return [parameter.detach().as_subclass(Tensor) for parameter in model.parameters()]

    torch.testing.assert_close(trained(True), trained(False))
