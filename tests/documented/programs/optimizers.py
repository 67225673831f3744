"""Compiled optimizer steps."""

from __future__ import annotations

import copy

import torch
from tests.documented.facts import documented, largest_difference
from torch import nn
from torch._dynamo.testing import CompileCounter


def pair() -> tuple[nn.Module, nn.Module]:
    model = nn.Sequential(nn.Linear(4, 4, False), nn.Linear(4, 4, False))
    return model, copy.deepcopy(model)


def backward(model: nn.Module) -> None:
    model.zero_grad()
    model(torch.ones(4)).pow(2).sum().backward()


@documented("a function that calls `optimizer.step()` is compiled, and steps as eager does")
def compiled_step() -> None:
    model, twin = pair()
    optimizers = [torch.optim.Adam(one.parameters(), lr=0.01) for one in (model, twin)]

    @torch.compile(fullgraph=False)
    def step():
        optimizers[1].step()

    for _ in range(3):
        backward(model)
        optimizers[0].step()
        backward(twin)
        step()
    assert largest_difference(twin[0].weight, model[0].weight) < 1e-5


@documented("with the learning rate in a tensor, a scheduler changes it without a recompile")
def learning_rate_in_a_tensor() -> None:
    counter = CompileCounter()
    model, twin = pair()
    optimizers = [torch.optim.Adam(one.parameters(), lr=torch.tensor(0.01)) for one in (model, twin)]
    schedulers = [torch.optim.lr_scheduler.LinearLR(optimizer, total_iters=5) for optimizer in optimizers]

    @torch.compile(fullgraph=False, backend=counter)
    def step():
        optimizers[1].step()

    compiles = []
    for _ in range(5):
        backward(model)
        optimizers[0].step()
        backward(twin)
        step()
        for scheduler in schedulers:
            scheduler.step()
        compiles.append(counter.frame_count)
    # The first step makes the optimizer's state; from the second on there is nothing new.
    assert compiles[1] == compiles[-1]
    assert largest_difference(twin[0].weight, model[0].weight) < 1e-5


@documented(
    "forward, loss, `backward()` and `step()` of a training loop with a compiled model: losses are those of eager"
)
def training_loop() -> None:
    losses = []
    model, twin = pair()
    for one, called in ((model, model), (twin, torch.compile(twin))):
        optimizer = torch.optim.SGD(one.parameters(), lr=0.05, momentum=0.9)
        found = []
        for _ in range(3):
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(called(torch.ones(2, 4)), torch.zeros(2, 4))
            loss.backward()
            optimizer.step()
            found.append(loss.detach())
        losses.append(torch.stack(found))
    assert largest_difference(losses[1], losses[0]) < 1e-5
