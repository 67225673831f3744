"""`DTensor` on a mesh of one process."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

from ..registry import Made, program

SECTION = "tensor subclasses"


def _mesh() -> DeviceMesh:
    if not dist.is_initialized():
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    return init_device_mesh("cpu", (1,))


@program(SECTION)
def dtensor_as_an_argument() -> Made:
    x = distribute_tensor(torch.randn(4, 3), _mesh(), [Shard(0)])
    return lambda y: y.sin() + y * 2, [(x,)]


@program(SECTION)
def dtensor_from_a_local_tensor() -> Made:
    mesh = _mesh()

    def f(x: Tensor) -> Tensor:
        return (DTensor.from_local(x, mesh, [Shard(0)], run_check=False) * 2).to_local() + 1

    return f, [(torch.randn(4, 3),)]


@program(SECTION)
def dtensor_redistributed() -> Made:
    mesh = _mesh()
    x = distribute_tensor(torch.randn(4, 3), mesh, [Shard(0)])
    return lambda y: y.redistribute(mesh, [Replicate()]).relu(), [(x,)]


@program(SECTION)
def dtensor_product_with_gradients() -> Made:
    mesh = _mesh()
    w = distribute_tensor(torch.randn(3, 3), mesh, [Replicate()]).requires_grad_()

    def f(x: Tensor) -> Tensor:
        return (DTensor.from_local(x, mesh, [Shard(0)], run_check=False) @ w).to_local()

    return f, [(torch.randn(4, 3),)], w


@program(SECTION)
def tensor_parallel_mlp() -> Made:
    mesh = _mesh()
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 4))
    parallelize_module(model, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    return model, [(torch.randn(2, 4),)]


@program(SECTION)
def all_reduce_of_a_tensor() -> Made:
    _mesh()

    def f(x: Tensor) -> Tensor:
        y = x * 2
        dist.all_reduce(y)
        return y / dist.get_world_size()

    return f, [(torch.randn(3),)]
