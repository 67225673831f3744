"""Data-parallel wrappers around what is compiled, and what is compiled inside of them; a group of one process."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator
from pathlib import Path

import torch
import torch.distributed as dist
from tests.documented.facts import difference, documented
from torch import nn
from torch.nn.parallel import DistributedDataParallel


@contextlib.contextmanager
def group(folder: Path) -> Iterator[None]:
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=0, world_size=1)
    try:
        yield
    finally:
        dist.destroy_process_group()


def gradient(model, called, x):
    model.zero_grad()
    called(x).pow(2).sum().backward()
    return model.weight.grad.clone()


@documented("`torch.compile(DistributedDataParallel(model))`: gradients are those of eager")
def compiled_around(folder: Path) -> None:
    model, x = nn.Linear(6, 3), torch.randn(4, 6)
    expected = gradient(model, model, x)
    with group(folder):
        compiled = torch.compile(DistributedDataParallel(model), backend="aot_eager")
        assert difference(gradient(model, compiled, x), expected) < 1e-5


@documented("`DistributedDataParallel(torch.compile(model))`: so they are with the model compiled inside")
def compiled_inside(folder: Path) -> None:
    model, x = nn.Linear(6, 3), torch.randn(4, 6)
    expected = gradient(model, model, x)
    with group(folder):
        wrapped = DistributedDataParallel(torch.compile(model, backend="aot_eager"))
        assert difference(gradient(model, wrapped, x), expected) < 1e-5


@documented(
    "a training step of a compiled `DistributedDataParallel` model with an optimizer changes parameters as in eager"
)
def training_step(folder: Path) -> None:
    model, x = nn.Linear(6, 3), torch.randn(4, 6)
    twin = copy.deepcopy(model)
    with group(folder):
        for one, called in ((model, model), (twin, torch.compile(DistributedDataParallel(twin), backend="aot_eager"))):
            optimizer = torch.optim.Adam(one.parameters(), lr=0.01)
            for _ in range(2):
                optimizer.zero_grad()
                called(x).pow(2).mean().backward()
                optimizer.step()
    assert difference(twin.weight, model.weight) < 1e-5
