"""Where the module is that calls an operation, as the graph tells."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from flambeau_capture import make_region
from flambeau_capture.graph.module_paths import module_path, module_step
from flambeau_capture.sources.source import Global, InstanceDict, Item, Local


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
        self.named = nn.ModuleDict({"last": nn.Tanh()})

    def forward(self, x: Tensor) -> Tensor:
        return self.named["last"](self.inner(x)) * 2


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Layer() for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return x + 1


def paths_of(function: Callable[..., Any]) -> list[tuple[str, str]]:
    """The calls of a graph and where they are made."""
    graphs = []

    def keep(gm: torch.fx.GraphModule, inputs: object) -> torch.fx.GraphModule:
        graphs.append(gm)
        return gm

    make_region(function, keep, fullgraph=True)(torch.ones(2, 4))
    calls = [node for node in graphs[0].graph.nodes if node.op.startswith("call")]
    return [(node.name.rstrip("_0123456789"), node.meta.get("module", "")) for node in calls]


def test_paths_are_those_of_named_modules() -> None:
    """Below the one whose `forward` is captured, or below what a variable holds; layers that are recorded once more have paths of their own."""
    model = Model()
    known = dict(model.named_modules())
    wanted = []
    for layer in range(3):
        inside = {"linear": "inner.0", "relu": "inner.1", "tanh": "named.last", "mul": ""}
        wanted += [(name, f"layers.{layer}.{path}".rstrip(".")) for name, path in inside.items()]
    assert all(path in known for _, path in wanted)
    assert paths_of(model.forward) == [*wanted, ("add", "")]
    assert paths_of(lambda x: model(x)) == [*wanted, ("add", "")]


def test_a_module_from_elsewhere_is_below_its_own_variable() -> None:
    """Not below the one that happens to call it."""
    model, other = Model(), nn.ModuleDict({"a": nn.Sigmoid()})
    model.layers[1].inner.append(other["a"])
    found = paths_of(lambda x: other["a"](model(x)))
    assert found[-1] == ("sigmoid", "a")
    assert [path for name, path in found if name == "sigmoid"] in (["layers.1.inner.2", "a"], ["a", "a"])


def test_steps() -> None:
    """From the module around; from the variable where that is another one; nothing of what is in no variable."""
    root = Local("self")

    def below(source: Any, *names: str) -> Any:
        for name in names:
            source = Item(Item(InstanceDict(source), "_modules"), name)
        return source

    deep = below(root, "layers", "3", "attention")
    assert module_step(deep, None) == "/layers.3.attention"
    assert module_step(deep, below(root, "layers", "3")) == "attention"
    assert module_step(deep, deep) == "" and module_step(None, root) == ""
    assert module_step(below(Global("other"), "a"), deep) == "/a"
    assert module_step(Item(root, "a"), root) == "/"
    assert module_path(["/", "layers.3", "", "attention"]) == "layers.3.attention"
    assert module_path(["/layers", "/a", "b"]) == "a.b" and module_path([]) == ""
