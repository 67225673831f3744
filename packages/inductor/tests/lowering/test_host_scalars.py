"""CPU numbers that meet GPU tensors become arguments of the kernel."""

from __future__ import annotations

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from flambeau_inductor.context import CompileContext
from flambeau_inductor.ir.evaluate import run_graph
from flambeau_inductor.ir.loops import Extern, ReadItem
from flambeau_inductor.lowering.run import lower_graph
from flambeau_inductor.schedule import schedule


def step(x: torch.Tensor, count: torch.Tensor, power: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """An optimizer's arithmetic: a counter on the CPU, a correction computed from it, used twice."""
    size = 0.1 / (1 - torch.pow(0.9, count + 1))
    return x * size + power, x.exp() / size


def test_no_library_call_and_one_read_a_number() -> None:
    """One kernel on the device, numbers read after what computes them; values equal eager's."""
    with FakeTensorMode():
        fakes = [torch.empty(4, 5, device="cuda"), torch.empty(()), torch.empty((), dtype=torch.int64)]
        gm = make_fx(step)(*fakes)
    context = CompileContext()
    graph = lower_graph(gm, fakes, context)
    assert not any(isinstance(o, Extern) for o in graph.operations), context.library_calls
    assert sum(isinstance(o, ReadItem) for o in graph.operations) == 2
    kinds = [getattr(s, "device", None) for s in schedule(graph).steps]
    assert [str(k.type) for k in kinds if k is not None] == ["cpu", "cuda"]
    real = [torch.randn(4, 5), torch.tensor(3.0), torch.tensor(7)]
    for ours, theirs in zip(run_graph(graph, real), step(*real), strict=True):
        torch.testing.assert_close(ours, theirs)
