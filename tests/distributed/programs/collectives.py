"""Collectives inside compiled functions: functional ones, in place, with gradients, in groups, in another order than results are read."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import _functional_collectives as functional
from torch.distributed.device_mesh import init_device_mesh

from . import Here, plain, program


@program(graphs=11)
def functional_ones(here: Here) -> Any:
    """Each alone, in a graph of its own."""
    group, mesh = dist.group.WORLD, init_device_mesh(here.device.type, (2,))
    calls = (
        lambda x: functional.all_reduce(x * 2, "sum", group) + 1,
        lambda x: functional.all_reduce(x * 2, "max", group) + 1,
        lambda x: functional.all_gather_tensor(x.sin(), 0, group) * 2,
        lambda x: functional.all_gather_tensor(x.sin(), 1, group) * 2,
        lambda x: functional.reduce_scatter_tensor(x.sin(), "sum", 0, group) * 2,
        lambda x: functional.broadcast(x + 1, 1, group) * 3,
        lambda x: functional.all_to_all_single(x * 2, None, None, group).cos(),
        lambda x: functional.all_to_all_single(x * 2, [1, 2], [1 + here.rank] * 2, group).cos(),
        lambda x: functional.reduce_scatter_tensor(x.sin().T, "sum", 1, mesh) * 2,
        lambda x: functional.all_reduce(x * 2, "sum", (mesh, 0)) + 1,
        lambda x: functional.all_reduce(x * 2, "sum", dist.group.WORLD) + 1,
    )
    sizes = [(4, 3)] * 7 + [(2 + 2 * here.rank, 3)] + [(4, 3)] * 3
    return [here.compile(call, fullgraph=True)(here.data(0, *size)) for call, size in zip(calls, sizes, strict=True)]


@program()
def with_gradients(here: Here) -> Any:
    """Those that autograd knows."""
    group = dist.group.WORLD

    def step(x: Tensor) -> Tensor:
        y = functional.all_gather_tensor_autograd(x.sin(), 0, group)
        z = functional.reduce_scatter_tensor_autograd(y * y, "sum", 0, group)
        return functional.all_to_all_single_autograd(z.exp(), None, None, group)

    kept = []
    run = here.compile(step, fullgraph=True)
    for number in range(2):
        x = here.data(number, 4, 3).requires_grad_()
        y = run(x)
        y.square().sum().backward()
        kept += [y, x.grad]
    return kept


@program()
def in_place(here: Here) -> Any:
    """`all_reduce` of an input, of a result, of a part of a tensor, with operations and sizes that change."""

    def step(x: Tensor, y: Tensor) -> Any:
        dist.all_reduce(x)
        z = y * 2
        dist.all_reduce(z, op=dist.ReduceOp.MAX)
        dist.all_reduce(z[1:], op=dist.ReduceOp.SUM)
        return x + 1, z / dist.get_world_size() + dist.get_rank()

    run = here.compile(step)
    kept: list[Any] = []
    for rows in (3, 4, 5):
        x, y = here.data(rows, rows, 2), here.data(rows + 1, rows, 2)
        kept += [run(x, y), x, y]
    return kept


@program()
def results_that_nobody_reads(here: Here) -> Any:
    """A collective is called on all ranks, also by the one that does not read the result."""
    group = dist.group.WORLD

    def step(x: Tensor) -> Tensor:
        y = functional.all_reduce(x * 2, "sum", group)
        z = functional.all_reduce(x * 3, "sum", group)
        return z + 1 if here.rank else y - 1

    return [here.compile(step, fullgraph=True)(here.data(0, 4, 3))]


@program()
def orders(here: Here) -> Any:
    """Ranks that read results in other orders call them in the same, also among values of other shapes and after a loop."""
    group = dist.group.WORLD

    def step(x: Tensor) -> Tensor:
        parts = [functional.all_reduce(x * n, "sum", group) for n in range(4)]
        whole = functional.all_gather_tensor(x.cos(), 0, group)
        total = x
        for part in parts if here.rank else parts[::-1]:
            total = total.sin() * part
        return total + whole.sum() if here.rank else whole.sum() - total

    kept = []
    run = here.compile(step, fullgraph=True)
    for rows in (4, 4, 6):
        kept.append(run(here.data(rows, rows, 3)))
    return kept


@program()
def beside_and_between(here: Here) -> Any:
    """Handles, lists, messages from one to the other: what is no part of a graph runs between graphs."""

    def step(x: Tensor) -> Any:
        y = x * 2
        work = dist.all_reduce(y, async_op=True)
        z = x.cos() + 1
        work.wait()
        found = [torch.empty_like(z) for _ in range(2)]
        dist.all_gather(found, z)
        out = torch.empty_like(z)
        if dist.get_rank():
            dist.send(z, 0)
            dist.recv(out, 0)
        else:
            dist.recv(out, 1)
            dist.send(z, 1)
        objects: list[Any] = [None, None]
        dist.all_gather_object(objects, dist.get_rank() + 5)
        dist.broadcast(y, 1)
        flat = torch.empty(2 * z.shape[0], *z.shape[1:], device=z.device)
        dist.all_gather_into_tensor(flat, z)
        return y + 1, torch.stack(found).sin(), out * 2, objects, flat.cos()

    run = here.compile(step)
    return [run(here.data(number, 4, 3)) for number in range(2)]


@program()
def groups(here: Here) -> Any:
    """Groups of fewer, and of the same, ranks."""
    alone = [dist.new_group([rank]) for rank in range(2)][here.rank]
    both = dist.new_group([0, 1])

    def step(x: Tensor) -> Any:
        y, z = x * 2, x * 3
        dist.all_reduce(y, group=alone)
        dist.all_reduce(z, group=both)
        return functional.all_reduce(y, "sum", both) + z, dist.get_world_size(alone), dist.get_rank(both)

    run = here.compile(step)
    return [run(here.data(number, 4, 3)) for number in range(2)]


@program(falls_back=("c10d.allreduce_.default",))
def in_functions_of_autograd(here: Here) -> Any:
    """A program's own function whose backward calls a collective, as layers of parallel models have them."""

    class Copied(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return x.clone()

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            grad = grad.clone()
            dist.all_reduce(grad)
            return grad

    class Reduced(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            y = x.clone()
            dist.all_reduce(y)
            return y

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            return grad

    def step(x: Tensor, w: Tensor, v: Tensor) -> Tensor:
        result: Tensor = Reduced.apply(torch.tanh(Copied.apply(x) @ w) @ v)
        return result

    run = here.compile(step)
    kept: list[Any] = []
    for number in range(2):
        x = here.data(number, 4, 6, same=True).requires_grad_()
        w, v = here.data(5, 6, 3).requires_grad_(), here.data(6, 3, 6).requires_grad_()
        y = run(x, w, v)
        y.square().sum().backward()
        kept += [plain(y), x.grad, w.grad, v.grad]
    return kept
