"""Autocast and gradient scaling around and inside of what is compiled."""

from __future__ import annotations

import copy

import torch
from tests.documented.facts import documented, largest_difference
from torch import nn


@documented("a compiled model under `torch.autocast` computes in the lower precision, as eager does")
def autocast_around() -> None:
    model = nn.Linear(8, 4)
    compiled = torch.compile(model)
    x = torch.randn(3, 8)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        expected, found = model(x), compiled(x)
    assert found.dtype == expected.dtype == torch.bfloat16
    assert largest_difference(found, expected) < 2e-2
    assert compiled(x).dtype == torch.float32


@documented("autocast inside of a compiled function holds for its block alone")
def autocast_inside() -> None:
    @torch.compile(backend="aot_eager", fullgraph=True)
    def step(x, w):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            low = x @ w
        return low, x @ w

    low, full = step(torch.randn(3, 3), torch.randn(3, 3))
    assert (low.dtype, full.dtype) == (torch.bfloat16, torch.float32)
    assert not torch.is_autocast_enabled("cpu")


@documented("the loop with autocast and `GradScaler` trains a compiled model as it trains the model")
def scaled_gradients() -> None:
    def train(model, called):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
        for _ in range(2):
            optimizer.zero_grad()
            with torch.autocast("cpu", dtype=torch.bfloat16):
                loss = called(torch.ones(3, 8)).float().pow(2).mean()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
        return model.weight

    model = nn.Linear(8, 4)
    twin = copy.deepcopy(model)
    expected = train(model, model)
    assert largest_difference(train(twin, torch.compile(twin)), expected) < 2e-2
