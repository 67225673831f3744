"""Distributed tensors and collectives, in a group of one process: each step is one graph."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed import _functional_collectives as functional
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Placement, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

import flambeau
from flambeau.testing import CompileCounter
from tests.groups import group_of_one

both = pytest.mark.parametrize("backend", ["eager", "aot_eager"])
Compile = Callable[[Callable[..., Any]], Callable[..., Any]]


@pytest.fixture
def mesh(tmp_path: Path) -> Iterator[DeviceMesh]:
    """A mesh of this process alone."""
    with group_of_one(tmp_path):
        yield init_device_mesh("cpu", (1,))


def distributed(mesh: DeviceMesh, *sizes: int, to: Placement | None = None, grad: bool = False) -> DTensor:
    made = distribute_tensor(torch.randn(*sizes), mesh, [to or Shard(0)] * mesh.ndim)
    return made.requires_grad_() if grad else made


def told(value: Any) -> Any:
    if isinstance(value, (tuple, list)):
        return tuple(map(told, value))
    if isinstance(value, DTensor):
        return ("distributed", value.placements, value.requires_grad, told(value._local_tensor))
    if isinstance(value, Tensor):
        return (type(value), value.requires_grad, value.shape, value.stride(), value.detach().tolist())
    return value


def check(program: Callable[[Compile], Any], backend: str, **options: Any) -> None:
    """The program gives the same compiled, each function as one graph, and as it is; an error is the same error."""
    found = []
    for compile in (lambda f: f, lambda f: flambeau.compile(f, backend=backend, **({"fullgraph": True} | options))):
        torch.manual_seed(0)
        try:
            found.append(told(program(compile)))
        except RuntimeError as error:
            found.append(" ".join(str(error).split()[4:12]))
    assert found[0] == found[1]


@both
def test_arguments(backend: str, mesh: DeviceMesh) -> None:
    check(lambda c: c(lambda x: x.sin() + x * 2)(distributed(mesh, 4, 3)), backend)
    check(lambda c: c(lambda x: x.redistribute(mesh, [Replicate()]).relu())(distributed(mesh, 4, 3)), backend)
    check(lambda c: c(lambda x: x.full_tensor() * 2)(distributed(mesh, 4, 3)), backend)
    check(
        lambda c: c(lambda x: (x.placements == (Shard(0),), x.placements[0].dim, x * 2))(distributed(mesh, 4)), backend
    )


@both
def test_what_is_guarded(backend: str, mesh: DeviceMesh) -> None:
    """Placements and mesh."""

    def run(compile: Compile) -> Any:
        f = compile(lambda x: x * 2 if x.placements[0].is_shard() else x * 3)
        square = init_device_mesh("cpu", (1, 1))
        given = [distributed(mesh, 4, 3, to=to) for to in (Shard(0), Replicate(), Shard(1), Shard(0))]
        return [*map(f, given), f(distributed(square, 4, 3))]

    check(run, backend)


@both
def test_placements_that_change(backend: str, mesh: DeviceMesh) -> None:
    def run(compile: Compile) -> Any:
        placements: list[Placement] = [Replicate()]
        f = compile(lambda x: x.redistribute(mesh, placements))
        first = f(distributed(mesh, 4, 3))
        placements[0] = Shard(1)
        return first, f(distributed(mesh, 4, 3))

    check(run, backend)


@both
def test_local_tensors(backend: str, mesh: DeviceMesh) -> None:
    def product(compile: Compile) -> Any:
        """The gradient of the weight is placed otherwise than the weight."""
        x, w = torch.randn(4, 3), distributed(mesh, 3, 5, to=Replicate(), grad=True)
        y = compile(lambda x, w: (DTensor.from_local(x, mesh, [Shard(0)], run_check=False) @ w).to_local())(x, w)
        y.sum().backward()
        return y, w.grad

    def partial(compile: Compile) -> Any:
        def function(x: Tensor) -> Tensor:
            whole = DTensor.from_local(x, mesh, [Partial()], run_check=False)
            return whole.redistribute(mesh, [Replicate()]).to_local()

        return compile(function)(torch.randn(4, 3))

    def written(compile: Compile) -> Any:
        """Autograd refuses to write to a local tensor."""
        compile(lambda x: (x * 2).to_local())(distributed(mesh, 4, 3, grad=True)).mul_(2)

    for program in (product, partial, written):
        check(program, backend)


@both
def test_gradients_of_parts_of_sums(backend: str, mesh: DeviceMesh) -> None:
    """A result that is summed over the ranks has a gradient that is whole; the rows of a table are divided, their gradient is not."""

    def mean(compile: Compile) -> Any:
        x = distributed(mesh, 4, 3, grad=True)
        y = compile(lambda x: x.mean())(x)
        (y.full_tensor() * 2).backward()
        return y, x.grad

    def rows(compile: Compile) -> Any:
        table = distributed(mesh, 6, 3, grad=True)
        words = distribute_tensor(torch.tensor([1, 4, 1]), mesh, [Replicate()])
        y = compile(nn.functional.embedding)(words, table)
        y.full_tensor().square().sum().backward()
        return y, table.grad

    for program in (mean, rows):
        check(program, backend)


@pytest.mark.parametrize("backend", ["eager"])
def test_the_mesh_that_is_active_is_asked_for_at_each_call(backend: str, mesh: DeviceMesh) -> None:
    def run(compile: Compile) -> Any:
        f = compile(lambda x: DTensor.from_local(x) * 2)
        found = []
        for active in (mesh, init_device_mesh("cpu", (1, 1))):
            with active:
                found.append(f(torch.randn(4, 3)))
        return found

    check(run, backend, fullgraph=False)


@both
def test_gradients(backend: str, mesh: DeviceMesh) -> None:
    def run(compile: Compile) -> Any:
        x = distributed(mesh, 4, 3, grad=True)
        y = compile(lambda x: (x * x).exp())(x)
        y.sum().backward()
        return y, x.grad

    check(run, backend)


@both
def test_a_parallel_model(backend: str, mesh: DeviceMesh) -> None:
    def train(compile: Compile) -> Any:
        model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 4))
        parallelize_module(model, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
        step, optimizer = compile(model), torch.optim.SGD(model.parameters(), 0.1)
        for size in (2, 2, 3):
            step(torch.randn(size, 4)).pow(2).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
        return list(model.parameters())

    check(train, backend)


@both
def test_collectives(backend: str, mesh: DeviceMesh) -> None:
    def computed(x: Tensor) -> Tensor:
        y = x * 2
        dist.all_reduce(y)
        return y / dist.get_world_size() + dist.get_rank()

    def given(x: Tensor) -> Tensor:
        dist.all_reduce(x, op=dist.ReduceOp.MAX)
        return x + 1

    check(lambda c: c(computed)(torch.randn(3)), backend)
    x = torch.randn(3)
    check(lambda c: (c(given)(x), x), backend)


def test_groups_of_collectives(mesh: DeviceMesh) -> None:
    """Each is a graph of its own, which knows the group's name; a group that was met before is known."""
    counter = CompileCounter()

    def step(x: Tensor, group: Any) -> Tensor:
        y = functional.all_reduce(x * 2, "sum", group)
        if isinstance(group, dist.ProcessGroup):
            dist.all_reduce(y, group=group)
            return y + dist.get_world_size(group) + dist.get_rank(group=group)
        return y + 1

    f = flambeau.compile(step, backend=counter, fullgraph=True)
    given = [dist.new_group([0]), dist.new_group([0]), mesh, (mesh, 0), dist.group.WORLD.group_name]
    for _ in range(2):
        for group in given:
            assert f(torch.ones(2), group).tolist() == [3, 3]
    assert counter.frame_count == len(given)
    with pytest.raises(flambeau.errors.GraphBreakError, match="collective among"):
        f(torch.ones(2), [0])


def test_a_collective_beside_the_program(mesh: DeviceMesh) -> None:
    """A handle, and what autograd does not see."""

    def waits(x: Tensor) -> Tensor:
        y = x * 2
        dist.all_reduce(y, async_op=True).wait()
        return y

    check(lambda c: c(waits)(torch.randn(3)), "eager", fullgraph=False)
    with pytest.raises(flambeau.errors.GraphBreakError, match="in a graph with gradients"):
        flambeau.compile(lambda x: dist.all_reduce(x * 2), backend="eager", fullgraph=True)(
            torch.ones(3, requires_grad=True)
        )
