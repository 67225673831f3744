"""Data-parallel wrappers around what is compiled, and what is compiled inside of them; a group of one process."""

from __future__ import annotations

import copy
from pathlib import Path

import torch
from tests.documented.facts import documented, largest_difference
from tests.groups import group_of_one
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def gradient(model, called, x):
    model.zero_grad()
    called(x).pow(2).sum().backward()
    return model.weight.grad.clone()


@documented("`torch.compile(DistributedDataParallel(model))`: gradients are those of eager")
def compiled_around(folder: Path) -> None:
    model, x = nn.Linear(6, 3), torch.randn(4, 6)
    expected = gradient(model, model, x)
    with group_of_one(folder):
        compiled = torch.compile(DistributedDataParallel(model), backend="aot_eager")
        assert largest_difference(gradient(model, compiled, x), expected) < 1e-5


@documented("`DistributedDataParallel(torch.compile(model))`: so they are with the model compiled inside")
def compiled_inside(folder: Path) -> None:
    model, x = nn.Linear(6, 3), torch.randn(4, 6)
    expected = gradient(model, model, x)
    with group_of_one(folder):
        wrapped = DistributedDataParallel(torch.compile(model, backend="aot_eager"))
        assert largest_difference(gradient(model, wrapped, x), expected) < 1e-5


@documented(
    "a training step of a compiled `DistributedDataParallel` model with an optimizer changes parameters as in eager"
)
def training_step(folder: Path) -> None:
    model, x = nn.Linear(6, 3), torch.randn(4, 6)
    twin = copy.deepcopy(model)
    with group_of_one(folder):
        for one, called in ((model, model), (twin, torch.compile(DistributedDataParallel(twin), backend="aot_eager"))):
            optimizer = torch.optim.Adam(one.parameters(), lr=0.01)
            for _ in range(2):
                optimizer.zero_grad()
                called(x).pow(2).mean().backward()
                optimizer.step()
    assert largest_difference(twin.weight, model.weight) < 1e-5
