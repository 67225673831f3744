"""What `flambeau.compile` gives back, in-place compiles, and helpers for tests, as torch's documentation has them used."""

from __future__ import annotations

import copy
import functools
import pickle

import pytest
import torch
from torch import nn

import flambeau
from flambeau import compiler
from flambeau.testing import (
    AotEagerAndRecordGraphs,
    CompileCounter,
    CompileCounterWithBackend,
    EagerAndRecordGraphs,
)

from .rows import calls


class Net(nn.Module):
    """A small model with a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.register_buffer("scale", torch.full((4,), 2.0))

    def forward(self, x):
        return torch.relu(self.linear(x)) * self.scale


class Slotted(Net):
    """Has slots beside its dict."""

    __slots__ = ("kept",)


class Counted(type):
    """A metaclass that counts the instances of its classes and gives them attributes."""

    made = 0

    def __call__(cls, *args, **kwargs):
        Counted.made += 1
        return super().__call__(*args, **kwargs)


class WithMetaclass(Net, metaclass=Counted):
    """Made by its metaclass."""


def _double(x):
    return x * 2


@calls("compile", "get_compiler_config")
def test_the_configuration_of_what_comes_back() -> None:
    """Of functions: every option with its value, or what a backend of others says."""
    config = flambeau.compile(_double, options={"max_fusion_size": 7}).get_compiler_config()
    assert config["max_fusion_size"] == 7
    assert set(config) == set(compiler.list_options())

    class Backend:
        def __call__(self, graph, inputs):
            return graph.forward

        def get_compiler_config(self):
            return {"of": "this backend"}

    assert flambeau.compile(_double, backend=Backend()).get_compiler_config() == {"of": "this backend"}
    assert not hasattr(flambeau.compile(_double, backend="eager"), "get_compiler_config")
    assert flambeau.compile(_double)(torch.ones(2)).tolist() == [2, 2]


@calls("compile", "_torchdynamo_orig_callable", "_orig_mod")
def test_the_original_of_what_comes_back() -> None:
    """As programs unwrap it; keys of the state are those of the original."""
    compiled = flambeau.compile(_double, backend="eager")
    assert compiled._torchdynamo_orig_callable is _double
    net = Net()
    module = flambeau.compile(net, backend="eager")
    assert module._orig_mod is net
    assert list(module.state_dict()) == list(net.state_dict()) == ["scale", "linear.weight", "linear.bias"]
    x = torch.ones(2, 4)
    assert torch.equal(module(x), net(x)) and compiled(x).sum() == 16


@calls("compile", "Module.compile")
def test_a_module_compiled_in_place() -> None:
    """The same object, keys and class; graphs are made, breaks are errors where that was asked for, and copies are not compiled."""
    net, x = Net(), torch.ones(3, 4)
    expected = net(x)
    backend = CompileCounter()
    assert flambeau.compile_in_place(net, backend=backend, fullgraph=True) is None
    assert type(net) is Net and list(net.state_dict()) == ["scale", "linear.weight", "linear.bias"]
    assert torch.equal(net(x), expected)
    assert backend.frame_count == 1
    seen = []
    net.register_forward_hook(lambda module, given, result: seen.append(1))
    assert torch.equal(net(x), expected) and seen
    frames = backend.frame_count
    for copied in (copy.deepcopy(net), pickle.loads(pickle.dumps(Net()))):
        copied(x)
    assert backend.frame_count == frames
    with pytest.raises(TypeError, match="compile_in_place"):
        flambeau.compile_in_place(_double)


@calls("compile", "Module.compile")
def test_a_compiled_function_calls_a_module_compiled_in_place() -> None:
    """One graph holds both."""
    net, x = Net(), torch.ones(3, 4)
    expected = net(x) + 1
    flambeau.compile_in_place(net, backend="eager")
    counter = CompileCounter()
    assert torch.equal(flambeau.compile(lambda x: net(x) + 1, backend=counter, fullgraph=True)(x), expected)
    assert counter.frame_count == 1


@calls("helpers", "CompileCounter", "CompileCounterWithBackend")
def test_helpers_that_count() -> None:
    """Graphs and calls, from 0 again after `clear`."""

    def breaks(x):
        y = x.sin() + 1
        compiler.graph_break()
        return y.cos()

    x = torch.ones(2)
    for counter in (CompileCounter(), CompileCounterWithBackend("aot_eager")):
        assert torch.equal(flambeau.compile(breaks, backend=counter)(x), breaks(x))
        assert (counter.frame_count, counter.op_count) == (2, 3)
        graphs = getattr(counter, "graphs", None)
        assert graphs is None or [len(graph.graph.find_nodes(op="placeholder")) for graph in graphs] == [1, 1]
        counter.clear()
        assert (counter.frame_count, counter.op_count) == (0, 0)


@calls("backends", "aot_autograd")
def test_helpers_that_keep_graphs() -> None:
    """As captured, and what autograd made of them."""
    captured, aot = EagerAndRecordGraphs(), AotEagerAndRecordGraphs()
    x = torch.ones(2, requires_grad=True)
    flambeau.compile(torch.sin, backend=captured)(x)
    flambeau.compile(torch.sin, backend=aot)(x).sum().backward()
    assert torch.allclose(x.grad, x.detach().cos())
    assert len(captured.graphs) == len(aot.graphs) == len(aot.fw_graphs) == len(aot.bw_graphs) == 1
    targets = [node.target for node in aot.bw_graphs[0].graph.nodes if node.op == "call_function"]
    assert torch.ops.aten.cos.default in targets


def _copies(compiled):
    yield copy.deepcopy(compiled)
    yield pickle.loads(pickle.dumps(compiled))


@pytest.mark.parametrize("cls", [Net, Slotted, WithMetaclass])
def test_classes_of_all_kinds(cls) -> None:
    """Slots and metaclasses; copies are compiled again and share nothing."""
    net, x = cls(), torch.randn(3, 4)
    made = Counted.made
    counter = CompileCounter()
    compiled = flambeau.compile(net, backend=counter)
    assert isinstance(compiled, cls) and Counted.made == made
    assert torch.equal(compiled(x), net(x)) and counter.frame_count == 1
    copied = copy.deepcopy(compiled)
    assert torch.equal(copied(x), net(x))
    with torch.no_grad():
        net.linear.weight.zero_()
    assert not torch.equal(copied(x), compiled(x))


@pytest.mark.parametrize(
    "target", [_double, torch.sin, functools.partial(torch.mul, other=2), nn.ReLU(), Net().forward]
)
def test_everything_that_is_called(target) -> None:
    """Functions of Python and of torch, partials, modules, methods."""
    counter = CompileCounter()
    x = torch.randn(3, 4)
    assert torch.equal(flambeau.compile(target, backend=counter)(x), target(x))
    assert counter.frame_count == 1


def test_compiled_functions_and_modules_are_pickled() -> None:
    """As the function or module and how it was compiled; `torch.save` and `torch.load` too."""
    x = torch.randn(3, 4)
    for target in (_double, Net()):
        for copied in _copies(flambeau.compile(target, backend="eager")):
            assert torch.equal(copied(x), target(x))


def test_what_changes_after_the_first_call() -> None:
    """Hooks that are added later, sub-modules that are replaced, and parameters given for one call."""
    net, x = Net(), torch.randn(3, 4)
    compiled = flambeau.compile(net, backend="eager")
    assert torch.equal(compiled(x), net(x))
    seen = []
    handle = net.linear.register_forward_hook(lambda module, given, result: seen.append(1) or result + 1)
    assert torch.equal(compiled(x), net(x)) and len(seen) == 2
    handle.remove()
    net.linear = nn.Identity()
    assert torch.equal(compiled(x), torch.relu(x) * 2)
    net = Net()
    compiled = flambeau.compile(net, backend="eager")
    state = {name: torch.ones_like(value) for name, value in net.state_dict().items()}
    found = torch.func.functional_call(compiled, state, (x,))
    assert torch.equal(found, torch.func.functional_call(net, state, (x,)))


@pytest.mark.filterwarnings("ignore:.*torch.jit.script.*:DeprecationWarning")
def test_torchscript_inside_and_around() -> None:
    """A scripted function inside is part of the call; a scripted module is told not to be captured, and runs."""
    scripted = torch.jit.script(nn.Sequential(nn.Linear(4, 4), nn.ReLU()))
    x = torch.randn(3, 4)
    assert torch.equal(flambeau.compile(lambda x: scripted(x) + 1, backend="eager")(x), scripted(x) + 1)
