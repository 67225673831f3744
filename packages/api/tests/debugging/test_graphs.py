"""Graphs as bytes and as scripts."""

from __future__ import annotations

import operator
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor, fx
from torch._subclasses.fake_tensor import FakeTensorMode

from flambeau.debugging.graphs import operations, pack, script, unpack


def _program(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    parts = torch.split(torch.relu(x @ y), [1, 2])
    written = torch.ops.aten.gelu.default(parts[1])[..., 0:2]
    return torch.nn.functional.layer_norm(written, (2,)), x.sum(dtype=torch.float64)


def test_a_graph_comes_back() -> None:
    gm = fx.symbolic_trace(_program)
    inputs = [torch.randn(3, 4, requires_grad=True), torch.randn(4, 4).t()]
    again, given = unpack(pack(gm, inputs))
    assert [(n.name, n.target) for n in again.graph.nodes] == [(n.name, n.target) for n in gm.graph.nodes]
    assert operations(again) == operations(gm)
    assert given[0].requires_grad and given[1].stride() == inputs[1].stride()
    for ours, theirs in zip(again(*given), gm(*inputs), strict=True):
        assert torch.equal(ours, theirs)


def test_writes_in_place_stay_writes() -> None:
    """The code of a graph, traced again, would make `x += y` a sum."""
    graph = fx.Graph()
    x = graph.placeholder("x")
    graph.call_function(operator.iadd, (x, 1))
    graph.output((x,))
    again, _ = unpack(pack(fx.GraphModule(torch.nn.Module(), graph), [torch.zeros(2)]))
    value = torch.zeros(2)
    again(value)
    assert torch.equal(value, torch.ones(2))


def test_fakes_become_tensors_of_their_layout() -> None:
    gm = fx.symbolic_trace(lambda x, n: x[n])
    with FakeTensorMode():
        fakes = [torch.empty_strided((3, 4), (1, 3)), torch.zeros(5, dtype=torch.int64)]
    _, (x, n) = unpack(pack(gm, fakes))
    assert type(x) is Tensor and (x.shape, x.stride()) == ((3, 4), (1, 3))
    assert n.dtype is torch.int64 and 0 <= int(n.min()) <= int(n.max()) < 2


def test_constants_go_along() -> None:
    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.held = torch.arange(3.0)

        def forward(self, x: Tensor) -> Tensor:
            return x + self.held

    again, (x,) = unpack(pack(fx.symbolic_trace(Model()), [torch.zeros(3)]))
    assert torch.equal(again(x), torch.arange(3.0))
    assert "self.held = torch.tensor([0.0, 1.0, 2.0]" in script(again, [x], "wrong")


def test_functions_that_torch_makes_at_import_go_along(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pools are local functions, known by what torch.nn.functional calls them."""
    monkeypatch.setenv("FLAMBEAU_SUPPRESS_ERRORS", "0")  # as the script does, for good
    gm = fx.symbolic_trace(lambda x: torch.nn.functional.max_pool2d(x, 2))
    again, (x,) = unpack(pack(gm, [torch.randn(1, 1, 4, 4)]))
    assert torch.equal(again(x), torch.nn.functional.max_pool2d(x, 2))
    namespace: dict[str, object] = {"__name__": "repro"}
    exec(script(again, [x], "wrong", backend="eager"), namespace)
    model = namespace["Model"]
    assert isinstance(model, type) and torch.equal(model()(x)[0], again(x)[0])


def test_a_script_stands_alone(tmp_path: Path) -> None:
    """It runs, and says nothing where the compiled graph is right."""
    gm = fx.symbolic_trace(_program)
    file = tmp_path / "alone.py"
    file.write_text(script(gm, [torch.randn(3, 4), torch.randn(4, 4).t()], "wrong", backend="eager"))
    done = subprocess.run([sys.executable, str(file)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
