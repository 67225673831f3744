"""A compiled function keeps nothing of a call alive once the call is over: neither its arguments nor what it computed."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import flambeau


class Batch:
    """An argument that holds a tensor, as data loaders make them."""

    def __init__(self, x: Tensor) -> None:
        self.x = x


def plain(batch: Batch, extra: list[Tensor]) -> Tensor:
    return F.gelu(batch.x * 2) + extra[0]


def breaks(batch: Batch, extra: list[Tensor]) -> Tensor:
    y = batch.x * 2
    print(end="")
    return y.sin() + extra[0]


def changes(batch: Batch, extra: list[Tensor]) -> Tensor:
    batch.x.add_(1)
    extra.append(batch.x * 3)
    return extra[-1].cos()


def loops(batch: Batch, extra: list[Tensor]) -> Tensor:
    for _ in range(3):
        extra = [extra[0] + batch.x.sum().item()]
    return extra[0]


@pytest.mark.parametrize("backend", ["eager", "inductor"])
@pytest.mark.parametrize("program", [plain, breaks, changes, loops])
def test_arguments_and_results_go_with_the_call(program: Callable[..., Any], backend: str) -> None:
    """Also those that the call was compiled for, static and dynamic."""
    compiled = flambeau.compile(program, backend=backend)
    for size in (8, 9, 10):
        batch, extra = Batch(torch.ones(size)), [torch.ones(size)]
        result = compiled(batch, extra)
        held = [weakref.ref(o) for o in (batch, batch.x, extra[0], extra[-1], result)]
        del batch, extra, result
        gc.collect()
        assert [reference() for reference in held] == [None] * 5


def test_activations_go_with_the_step() -> None:
    """Training: the input, the loss, and the module itself once the compiled one is dropped."""
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))
    compiled = flambeau.compile(model)
    x = torch.ones(3, 4, requires_grad=True)
    loss = compiled(x).sum()
    loss.backward()
    held = [weakref.ref(o) for o in (x, x.grad, loss)]
    del x, loss
    gc.collect()
    assert [reference() for reference in held] == [None] * 3
    gone = weakref.ref(model)
    del model, compiled
    gc.collect()
    assert gone() is None
