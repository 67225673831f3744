"""Models under torch's distributed wrappers, in a group of one process: their forward is compiled around what the wrapper does."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.nn.parallel import DataParallel, DistributedDataParallel

import flambeau
from flambeau.module import original_of
from tests.comparison import assert_same
from tests.groups import group_of_one


@pytest.fixture(autouse=True)
def group(tmp_path: Path) -> Iterator[None]:
    """A group of this process alone."""
    with group_of_one(tmp_path):
        yield


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(torch.relu(self.norm(self.first(x))))


def sharded(model: nn.Module) -> nn.Module:
    mesh = init_device_mesh("cpu", (1,))
    for child in (model.first, model.last):
        fully_shard(child, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model


WRAPPERS: dict[str, tuple[Callable[[nn.Module], nn.Module], int]] = {
    "DataParallel": (DataParallel, 1),
    "DistributedDataParallel": (DistributedDataParallel, 1),
    "DistributedDataParallel, unused": (lambda m: DistributedDataParallel(m, find_unused_parameters=True), 1),
    "FullyShardedDataParallel": (lambda m: FullyShardedDataParallel(m, device_id=torch.device("cpu")), 1),
    "fully_shard": (sharded, 2),
}
"""How each wraps a module, and at least how many graphs are compiled."""


HOOKS = pytest.mark.falls_back("FSDPState._pre_forward")
"""The hooks of a sharded module run in Python; its forward is compiled."""


def values(model: nn.Module) -> list[Any]:
    """Parameters, buffers and gradients, local parts of sharded ones."""
    found = [*model.parameters(), *(p.grad for p in model.parameters()), *model.buffers()]
    return [None if t is None else (t.to_local() if hasattr(t, "to_local") else t).detach().clone() for t in found]


def trained(model: nn.Module, run: nn.Module) -> tuple[list[Tensor], list[Any]]:
    """Three steps; the losses, then everything that changed."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.manual_seed(1)
    losses = []
    for _ in range(3):
        loss = run(torch.randn(5, 4)).square().mean()
        loss.backward()
        losses.append(loss.detach())
        optimizer.step()
        kept = values(model)
        optimizer.zero_grad()
    return losses, kept


@pytest.mark.filterwarnings("ignore:FSDP is switching", "ignore:FSDP.state_dict", "ignore:.*find_unused_parameters")
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=HOOKS if name == "fully_shard" else ()) for name in WRAPPERS]
)
@pytest.mark.parametrize("backend", ["inductor", "eager"])
def test_training_under_a_wrapper(name: str, backend: str) -> None:
    """Losses, weights, gradients and running statistics are those of the wrapper in eager, and graphs were compiled."""
    wrap, least = WRAPPERS[name]
    torch.manual_seed(0)
    plain = Net()
    eager, model = wrap(copy.deepcopy(plain)), wrap(plain)
    graphs = []

    def counted(gm: Any, inputs: Any) -> Any:
        graphs.append(gm)
        return flambeau.compiler.lookup_backend(backend)(gm, inputs)

    counted.wants_real_inputs = False  # type: ignore[attr-defined]
    compiled = flambeau.compile(model, backend=counted)
    assert type(compiled).__name__ == type(model).__name__ and isinstance(compiled, type(model))
    assert original_of(compiled) is model
    assert_same(trained(model, compiled), trained(eager, eager), rtol=1e-5, atol=1e-6)
    assert len(graphs) >= least
    assert sum(node.op.startswith("call") for gm in graphs for node in gm.graph.nodes) >= 4


@HOOKS
def test_methods_of_a_sharded_model_reach_its_state() -> None:
    """What torch keeps about the object is found from the compiled one."""
    compiled = flambeau.compile(sharded(Net()), backend="eager")
    compiled.set_requires_gradient_sync(False)
    compiled(torch.randn(3, 4)).sum().backward()
    compiled.reshard()
    compiled.unshard()
