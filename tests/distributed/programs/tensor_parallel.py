"""Distributed tensors over two ranks: parallel models, and operations on tensors that are sharded, also unevenly."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Partial, Placement, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    loss_parallel,
    parallelize_module,
)

from . import Here, plain, program, values


def mesh_of(here: Here) -> DeviceMesh:
    return init_device_mesh(here.device.type, (2,))


class Attention(nn.Module):
    """Heads are divided among the ranks."""

    def __init__(self, width: int = 16, heads: int = 4) -> None:
        super().__init__()
        self.width = width // heads
        self.q, self.k, self.v, self.out = (nn.Linear(width, width) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (part(x).unflatten(-1, (-1, self.width)).transpose(1, 2) for part in (self.q, self.k, self.v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        result: Tensor = self.out(y.transpose(1, 2).flatten(2))
        return result


class Layer(nn.Module):
    """A layer of a transformer."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.attention = nn.LayerNorm(16), Attention()
        self.norm2, self.up, self.down = nn.LayerNorm(16), nn.Linear(16, 32), nn.Linear(32, 16)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm(x))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


COLUMNS_AND_ROWS = {
    "attention.q": ColwiseParallel,
    "attention.k": ColwiseParallel,
    "attention.v": ColwiseParallel,
    "attention.out": RowwiseParallel,
    "up": ColwiseParallel,
    "down": RowwiseParallel,
}


def train(here: Here, model: nn.Module, run: Callable[..., Any], *sizes: tuple[int, int], same: bool = True) -> Any:
    """A step for each size, batch and length; ranks have the same data but where the batch is divided."""
    # Some parameters are distributed, some are not: torch's functions over lists of both raise.
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, foreach=False)
    kept: list[Any] = []
    for number, (batch, length) in enumerate(sizes):
        optimizer.zero_grad()
        loss = run(here.data(number, batch, length, 16, same=same)).exp().mean()
        loss.backward()
        kept.append(plain(loss))
        optimizer.step()
    return kept + values(model)


@program()
def columns_and_rows(here: Here) -> Any:
    """A transformer's layer, in two lengths."""
    model = here.made(Layer)
    parallelize_module(model, mesh_of(here), {name: style() for name, style in COLUMNS_AND_ROWS.items()})
    return train(here, model, here.compile(model), (2, 4), (2, 4), (2, 6))


@program()
def sequences(here: Here) -> Any:
    """What lies between the products is divided along the sequence."""
    model = here.made(
        lambda: nn.Sequential(nn.LayerNorm(16), nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 16), nn.LayerNorm(16))
    )
    plan = {
        "0": SequenceParallel(),
        "1": ColwiseParallel(input_layouts=Shard(1)),
        "3": RowwiseParallel(output_layouts=Shard(1)),
        "4": SequenceParallel(),
    }
    parallelize_module(model, mesh_of(here), plan)

    def whole(x: Tensor) -> Tensor:
        y = model(x)
        return y.full_tensor() if isinstance(y, DTensor) else y

    return train(here, model, here.compile(whole), (2, 4), (2, 4), same=True)


@program()
def prepared_inputs(here: Here) -> Any:
    """Inputs are distributed by a hook."""
    model = here.made(lambda: nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 16)))
    plan = {
        "": PrepareModuleInput(input_layouts=(Shard(0),), desired_input_layouts=(Replicate(),)),
        "0": ColwiseParallel(),
        "2": RowwiseParallel(output_layouts=Shard(0)),
    }
    parallelize_module(model, mesh_of(here), plan)
    return train(here, model, here.compile(model), (2, 4), (2, 4), same=False)


@program()
def words_and_losses(here: Here) -> Any:
    """Rows of an embedding and columns of the logits are divided, and the loss of divided logits is taken."""
    model = here.made(lambda: nn.Sequential(nn.Embedding(10, 16), nn.Linear(16, 10)))
    plan = {
        "0": RowwiseParallel(input_layouts=Replicate()),
        "1": ColwiseParallel(output_layouts=Shard(-1), use_local_output=False),
    }
    parallelize_module(model, mesh_of(here), plan)
    run = here.compile(model)
    kept: list[Any] = []
    for number in range(2):
        model.zero_grad()
        words = torch.randint(0, 10, (2, 5), generator=torch.Generator().manual_seed(number)).to(here.device)
        with loss_parallel():
            loss = F.cross_entropy(run(words).flatten(0, 1), words.flatten())
            loss.backward()
        kept += [plain(loss), *values(model)]
    return kept


@program(falls_back=("a wrapper tensor that requires grad is written",), slow=True)
def whole_steps(here: Here) -> Any:
    """Forward and backward in one compiled function, then the optimizer compiled."""
    model = here.made(Layer)
    parallelize_module(model, mesh_of(here), {name: style() for name, style in COLUMNS_AND_ROWS.items()})
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    def step(x: Tensor) -> Tensor:
        loss: Tensor = model(x).exp().mean()
        loss.backward()
        return loss.detach()

    run, update = here.compile(step), here.compile(optimizer.step)
    kept: list[Any] = []
    for number in range(3):
        optimizer.zero_grad()
        kept.append(plain(run(here.data(number, 2, 4, 16, same=True))))
        update()
    return kept + values(model)


@program(falls_back=("FSDPState._pre_forward",), slow=True)
def parallel_and_sharded(here: Here) -> Any:
    """A mesh of two dimensions."""
    kept: list[Any] = []
    for sizes in ((1, 2), (2, 1)):
        mesh = init_device_mesh(here.device.type, sizes, mesh_dim_names=("data", "model"))
        model = here.made(Layer)
        parallelize_module(model, mesh["model"], {name: style() for name, style in COLUMNS_AND_ROWS.items()})
        fully_shard(model, mesh=mesh["data"])
        kept += train(here, model, here.compile(model), (2, 4), (2, 4))
    return kept


def spread(here: Here, mesh: DeviceMesh, to: Placement, *sizes: int, grad: bool = False) -> DTensor:
    made = distribute_tensor(here.data(0, *sizes, same=True), mesh, [to])
    return made.requires_grad_() if grad else made


@program(graphs=4)
def placed_anew(here: Here) -> Any:
    """Between all placements, of sizes that do not divide."""
    mesh = mesh_of(here)
    kept: list[Any] = []
    for rows in (4, 5, 1):
        for before in (Shard(0), Shard(1), Replicate()):
            for after in (Shard(0), Shard(1), Replicate()):

                def move(x: DTensor, after: Placement = after) -> Any:
                    y = (x * 2).redistribute(x.device_mesh, [after])
                    return y.sin(), y.to_local()

                kept.append(here.compile(move)(spread(here, mesh, before, rows, 3)))
    return kept


@program(graphs=3)
def sums_of_parts(here: Here) -> Any:
    """Local tensors that are parts of a sum; results of a whole; gradients of both."""
    mesh = mesh_of(here)

    def summed(x: Tensor, to: Placement) -> Tensor:
        part = DTensor.from_local(x * 3, mesh, [Partial()], run_check=False)
        return part.redistribute(mesh, [to]).to_local()

    def normed(x: DTensor) -> Any:
        y = x.softmax(0)
        return y.mean(), y.full_tensor().amax(1)

    def product(x: DTensor, w: DTensor) -> Tensor:
        return (x @ w).full_tensor()

    kept: list[Any] = []
    for to in (Replicate(), Shard(0)):
        x = here.data(1, 4, 3).requires_grad_()
        y = here.compile(summed)(x, to)
        y.square().sum().backward()
        kept += [y, x.grad]
    for placement in (Shard(0), Shard(1)):
        x = spread(here, mesh, placement, 5, 4, grad=True)
        y, z = here.compile(normed)(x)
        (y.full_tensor() + z.square().sum()).backward()
        kept += [y, z, x.grad]
    for left, right in ((Shard(0), Replicate()), (Shard(1), Shard(0)), (Replicate(), Shard(1))):
        x, w = spread(here, mesh, left, 4, 6, grad=True), spread(here, mesh, right, 6, 4, grad=True)
        y = here.compile(product)(x, w)
        y.square().sum().backward()
        kept += [y, x.grad, w.grad]
    return kept
