"""Graphs compiled without capture, and what is kept of them, as torch's documentation (and vLLM) use them."""

from __future__ import annotations

import pytest
import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import ShapeEnv

import flambeau
from flambeau import inductor
from tests import scripts

from .rows import calls

pytestmark = pytest.mark.compiles(graphs=0)


def _function(x, w):
    return torch.relu(x @ w) + 1, (x * 2).sum()


def _graph(*inputs):
    return make_fx(_function)(*inputs)


@pytest.fixture
def given():
    torch.manual_seed(0)
    return torch.randn(4, 8), torch.randn(8, 3)


@calls("entry_points", "inductor.compile", "make_fx")
def test_a_graph_is_compiled_directly(given) -> None:
    """ATen or torch-level, whatever its results are put together in, with options, and left as it was."""
    expected = _function(*given)
    graph = _graph(*given)
    before = graph.code
    compiled = inductor.compile(graph, list(given), options={"max_fusion_size": 8})
    for found, wanted in zip(compiled(*given), expected, strict=True):
        assert torch.allclose(found, wanted, atol=1e-6)
    assert graph.code == before

    traced = fx.symbolic_trace(lambda x, w: {"sum": (x @ w).sum(), "all": [x + 1]})
    answer = inductor.compile(traced, list(given))(*given)
    assert torch.allclose(answer["sum"], (given[0] @ given[1]).sum(), atol=1e-5)
    assert torch.equal(answer["all"][0], given[0] + 1)
    with pytest.raises(ValueError, match="max_fusion_sise"):
        inductor.compile(graph, list(given), options={"max_fusion_sise": 8})
    with pytest.raises(TypeError, match="2 inputs"):
        inductor.compile(graph, [given[0]])


@calls("entry_points", "inductor.compile")
def test_a_compiled_graph_has_gradients(given) -> None:
    """As the graph has."""
    x, w = (value.clone().requires_grad_() for value in given)
    traced = fx.symbolic_trace(lambda x, w: (torch.tanh(x @ w),))
    (result,) = inductor.compile(traced, [x, w])(x, w)
    result.sum().backward()
    found, x.grad, w.grad = (x.grad, w.grad), None, None
    torch.tanh(x @ w).sum().backward()
    assert torch.allclose(found[0], x.grad, atol=1e-6) and torch.allclose(found[1], w.grad, atol=1e-6)


_LOADS = """
import sys, torch, flambeau.inductor
compiled = flambeau.inductor.CompiledArtifact.load(path=sys.argv[1], format=sys.argv[2])
x, w = torch.load(sys.argv[3])
first, second = compiled(x, w)
assert torch.allclose(first, torch.relu(x @ w) + 1, atol=1e-6)
assert torch.allclose(second, (x * 2).sum(), atol=1e-5)
"""


@calls("entry_points", "standalone_compile", "CompiledArtifact.save", "CompiledArtifact.load")
@pytest.mark.parametrize("format", ["binary", "unpacked"])
def test_an_artifact_runs_in_another_process(given, tmp_path, format) -> None:
    """Saved in both formats; what is damaged or something else is told."""
    artifact = inductor.standalone_compile(_graph(*given), list(given))
    assert torch.allclose(artifact(*given)[0], _function(*given)[0], atol=1e-6)
    path = tmp_path / "artifact"
    artifact.save(path=path, format=format)
    if format == "unpacked":
        assert "forward.txt" in {entry.name for entry in path.iterdir()}
    torch.save(given, tmp_path / "inputs")
    done = scripts.run(_LOADS, tmp_path, path, format, tmp_path / "inputs")
    assert done.status == 0, done.stderr
    other = "unpacked" if format == "binary" else "binary"
    with pytest.raises(ValueError, match="cannot be read"):
        inductor.CompiledArtifact.load(path=path, format=other)
    with pytest.raises(ValueError, match="folded"):
        artifact.save(path=path, format="folded")


@calls("entry_points", "standalone_compile")
def test_symbolic_sizes_come_from_the_graph(given) -> None:
    """One artifact serves all sizes that the graph's fakes leave open, or the inputs' alone, as was asked for."""
    x, w = given
    mode = FakeTensorMode(shape_env=ShapeEnv(), static_shapes=False)
    graph = make_fx(_function, tracing_mode="symbolic")(x, w)
    assert mode is not None
    artifact = inductor.standalone_compile(graph, [x, w], dynamic_shapes="from_graph")
    for rows in (4, 7):
        given = torch.randn(rows, 8)
        assert torch.allclose(artifact(given, w)[0], _function(given, w)[0], atol=1e-5)
    static = inductor.standalone_compile(_graph(x, w), [x, w], dynamic_shapes="from_example_inputs")
    assert torch.allclose(static(x, w)[0], _function(x, w)[0], atol=1e-6)
    with pytest.raises(ValueError, match="from_graph"):
        inductor.standalone_compile(graph, [x, w], dynamic_shapes="from_grap")
    with pytest.raises(ValueError, match="not here yet"):
        inductor.standalone_compile(graph, [x, w], aot=True)


def test_large_constants_are_saved(tmp_path) -> None:
    """Those that a cached graph would not carry."""
    table = torch.randn(600, 600)
    graph = make_fx(lambda x: (x + table,))(torch.ones(600, 600))
    artifact = inductor.standalone_compile(graph, [torch.ones(600, 600)])
    artifact.save(path=tmp_path / "artifact")
    loaded = inductor.CompiledArtifact.load(path=tmp_path / "artifact")
    assert torch.equal(loaded(torch.ones(600, 600))[0], 1 + table)


@calls("entry_points", "list_options", "list_mode_options")
def test_listings() -> None:
    """Names that options take, and what modes set."""
    assert inductor.list_options() == flambeau.compiler.list_options()
    for options in inductor.list_mode_options().values():
        assert set(options) <= set(inductor.list_options())
    assert inductor.list_mode_options("reduce-overhead")["triton.cudagraphs"] is True
