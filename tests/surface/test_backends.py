"""Backends of others, as they are written for torch.compile."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

import flambeau
from flambeau import compiler
from flambeau.torchs_backends import PROVIDERS
from tests import scripts

from .rows import calls


@calls("helpers", "register_backend", "lookup_backend")
@calls("backends", "backend_options")
@calls("compiler", "list_backends")
def test_a_backend_is_given_its_own_options() -> None:
    """Options and mode under the names that it gives them, and guards filtered by what capture reads."""
    given = []

    @compiler.register_backend(name="surface_options", tags=("debug",))
    def backend(graph, inputs, *, mode=None, options=None):
        given.append((mode, options))
        return graph.forward

    assert compiler.lookup_backend("surface_options") is backend
    assert "surface_options" in compiler.list_backends(None) and "surface_options" not in compiler.list_backends()
    x = torch.ones(2)

    def keep(entries):
        return [True] * len(entries)

    flambeau.compile(lambda x: x + 1, backend=backend, options={"tiles": 3, "guard_filter_fn": keep})(x)
    flambeau.compile(lambda x: x + 1, backend="surface_options", mode="my-mode")(x)
    flambeau.compile(lambda x: x + 1, backend="surface_options", mode="default")(x)
    assert given == [(None, {"tiles": 3}), ("my-mode", None), (None, None)]


@pytest.mark.parametrize("backend", ["aot_eager_decomp_partition", "pre_dispatch_eager", "ts", "aot_ts"])
def test_backends_for_looking_for_faults(backend) -> None:
    """They give what eager gives, gradients too."""
    torch.manual_seed(0)
    net, x = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 2)), torch.randn(3, 4)
    expected = net(x)
    expected.sum().backward()
    wanted = net[0].weight.grad.clone()
    net.zero_grad()
    found = flambeau.compile(net, backend=backend)(x)
    found.sum().backward()
    assert torch.allclose(found, expected, atol=1e-6)
    assert torch.allclose(net[0].weight.grad, wanted, atol=1e-6)


@pytest.mark.parametrize("name", sorted(PROVIDERS))
def test_a_backend_whose_package_is_missing(name, monkeypatch) -> None:
    """The error says what to install."""
    monkeypatch.setattr("flambeau.torchs_backends.find_spec", lambda package: None)
    with pytest.raises(TypeError, match="pip install"):
        compiler.lookup_backend(name)


def _run(program: str, folder: Path) -> None:
    """In a process of its own, as it loads torch's own compiler; `folder` has what is installed beside."""
    done = scripts.run(program, folder)
    assert done.status == 0, done.stderr


def _publish(folder: Path, points: str) -> None:
    metadata = folder / "published-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: published\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(f"[torch_dynamo_backends]\n{points}\n")


@calls("backends", "entry_point")
def test_a_published_backend(tmp_path) -> None:
    """Found by its name, and loaded when it is used."""
    (tmp_path / "somebodys.py").write_text("def backend(graph, inputs):\n    print('used')\n    return graph.forward\n")
    _publish(tmp_path, "somebodys = somebodys:backend")
    _run(
        """
import sys, torch, flambeau
assert "somebodys" in flambeau.compiler.list_backends() and "somebodys" not in sys.modules
assert flambeau.compile(lambda x: x + 1, backend="somebodys")(torch.ones(2)).tolist() == [2, 2]
assert "somebodys" in sys.modules and "torch._dynamo" not in sys.modules
""",
        tmp_path,
    )


@calls("backends", "aot_autograd")
@calls("entry_points", "aot_function", "aot_module", "min_cut_rematerialization_partition", "default_partition")
def test_backends_written_with_torchs_helpers(tmp_path) -> None:
    """torch's `aot_autograd` and `aot_module_simplified`, boxed compilers, what is registered with torch's registry; and functorch's entry points
    over functions that call compiled ones."""
    _run(
        """
import torch, flambeau
from functorch.compile import (
    aot_function, aot_module, aot_module_simplified, default_partition, make_boxed_func, min_cut_rematerialization_partition,
)
from torch._dynamo import register_backend
from torch._dynamo.backends.common import aot_autograd

calls = []
def compiler(graph, inputs):
    calls.append(len(graph.graph.nodes))
    return make_boxed_func(graph.forward)

def simplified(graph, inputs):
    return aot_module_simplified(graph, inputs, fw_compiler=compiler, bw_compiler=compiler)

register_backend(aot_autograd(fw_compiler=compiler), name="of_torchs_registry")
assert "of_torchs_registry" in flambeau.compiler.list_backends()
net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
x = torch.randn(3, 4)
expected = net(x)
expected.sum().backward()
wanted = [p.grad.clone() for p in net.parameters()]
partitions = [
    flambeau.backends.aot_autograd(fw_compiler=compiler, partition_fn=one)
    for one in (default_partition, min_cut_rematerialization_partition)
]
for backend in (aot_autograd(fw_compiler=compiler), simplified, "of_torchs_registry", *partitions):
    net.zero_grad(); calls.clear()
    found = flambeau.compile(net, backend=backend)(x)
    found.sum().backward()
    assert torch.allclose(found, expected)
    assert all(torch.allclose(p.grad, w) for p, w in zip(net.parameters(), wanted))
    assert len(calls) == 2, (backend, calls)

compiled = flambeau.compile(lambda x: torch.tanh(x) * 2)
y = torch.randn(3, requires_grad=True)
aot_function(lambda x: compiled(x) + 1, fw_compiler=compiler)(y).sum().backward()
found, y.grad = y.grad, None
(torch.tanh(y) * 2 + 1).sum().backward()
assert torch.allclose(found, y.grad)
module = aot_module(flambeau.compile(net), fw_compiler=compiler)
assert torch.allclose(module(x), expected, atol=1e-6)
""",
        tmp_path,
    )


@calls("backends", "under_torch_compile")
@calls("entry_points", "torch.export")
def test_under_torch_compile(tmp_path) -> None:
    """`backend="flambeau"` through the entry point: forward and backward; and torch.export of what calls a compiled function."""
    _publish(tmp_path, "flambeau = flambeau.torch_backend:flambeau")
    _run(
        """
import torch, flambeau
net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
x = torch.randn(3, 4)
expected = net(x)
expected.sum().backward()
wanted = [p.grad.clone() for p in net.parameters()]
net.zero_grad()
found = torch.compile(net, backend="flambeau")(x)
found.sum().backward()
assert torch.allclose(found, expected, atol=1e-6)
assert all(torch.allclose(p.grad, w, atol=1e-6) for p, w in zip(net.parameters(), wanted))
found = flambeau.compiler.counters["inductor"]
assert found["fxgraph_cache_hit"] + found["fxgraph_cache_miss"] == 1, found
class Calls(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = flambeau.compile(lambda x: torch.tanh(x) * 2)
    def forward(self, x):
        return self.inner(x) + 1
exported = torch.export.export(Calls(), (x,), strict=False)
assert torch.allclose(exported.module()(x), torch.tanh(x) * 2 + 1)
""",
        tmp_path,
    )
