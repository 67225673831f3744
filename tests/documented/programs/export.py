"""Exported programs beside compiled ones."""

from __future__ import annotations

from pathlib import Path

import torch
from tests.documented.facts import documented, largest_difference
from torch import nn
from torch.export import Dim, export


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 4)

    def forward(self, x):
        return torch.tanh(self.layer(x))


@documented("the module of an exported program is compiled as any module is")
def compiled_program() -> None:
    model, x = Model(), torch.randn(3, 8)
    program = export(model, (x,))
    assert largest_difference(torch.compile(program.module(), backend="aot_eager")(x), model(x)) < 1e-6


@documented("one that was exported with a dynamic dimension, saved and loaded is compiled, and takes other sizes")
def saved_program(folder: Path) -> None:
    model = Model()
    program = export(model, (torch.randn(3, 8),), dynamic_shapes={"x": {0: Dim("batch")}})
    torch.export.save(program, folder / "model.pt2")
    loaded = torch.export.load(folder / "model.pt2").module()
    compiled = torch.compile(loaded, backend="eager", dynamic=True)
    for size in (3, 5):
        x = torch.randn(size, 8)
        assert largest_difference(compiled(x), model(x)) < 1e-6


@documented("code asks what is going on: `is_compiling()` under both, `is_exporting()` under `torch.export` alone")
def code_that_asks() -> None:
    class Asks(nn.Module):
        def forward(self, x):
            if torch.compiler.is_exporting():
                return x + 2
            return x + 1 if torch.compiler.is_compiling() else x

    zeros = torch.zeros(1)
    assert Asks()(zeros).item() == 0
    assert torch.compile(Asks(), backend="eager", fullgraph=True)(zeros).item() == 1
    assert export(Asks(), (zeros,)).module()(zeros).item() == 2


@documented(
    "`torch._inductor.compile(graph, inputs)` compiles an FX graph of ATen ops without capture",
    judges_itself="no frame is captured",
)
def a_graph_alone() -> None:
    from torch.fx.experimental.proxy_tensor import make_fx
    from torch.utils._python_dispatch import TorchDispatchMode

    x = torch.randn(6)
    graph = make_fx(lambda x: (torch.tanh(x) * 2,))(x)
    compiled = torch._inductor.compile(graph, [x])
    called = []

    class Called(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            called.append(str(function))
            return function(*args, **kwargs or {})

    with Called():
        compiled(x)
    assert "aten.tanh.default" not in called
    with Called():
        graph(x)
    assert "aten.tanh.default" in called
    assert largest_difference(compiled(x)[0], torch.tanh(x) * 2) < 1e-6
