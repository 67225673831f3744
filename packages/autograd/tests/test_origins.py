"""Nodes of the forward and of the backward tell where they come from in the program."""

from __future__ import annotations

import torch
from lifting import fakes, lift_function

from flambeau_autograd import default_partition, prepare
from flambeau_autograd.functional.origins import UNKNOWN, Origin, Origins


def test_gradients_come_from_what_they_are_the_gradient_of() -> None:
    """The engine's nodes have numbers; a later call of the same place does not take over an earlier one's."""
    origins, x = Origins(), torch.ones(3, requires_grad=True)
    assert origins.of_gradient() is UNKNOWN
    origins.enter(Origin(("first",), "a"))
    y = (x * 2).sin()  # two nodes of one call
    origins.enter(Origin(("nothing",), "none"))
    origins.enter(Origin(("second",), "b"))
    z = y.exp()
    origins.enter(UNKNOWN)
    seen = []

    class Watch(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            seen.append((func.overloadpacket.__name__, origins.of_gradient().module))
            return func(*args, **(kwargs or {}))

    with torch.autograd.set_multithreading_enabled(False), Watch():
        torch.autograd.grad(z, x, torch.ones(3))
    assert ("cos", "a") in seen and ("b" in [module for name, module in seen if name == "mul"])
    assert {module for _, module in seen} <= {"a", "b", ""}
    assert origins.of_gradient() is UNKNOWN


def test_both_graphs_carry_modules_and_positions() -> None:
    """Each backward node has those of the forward node that it differentiates; sums that the engine makes have none."""
    x = torch.randn(4, requires_grad=True)
    gm = lift_function(lambda x: x.sin().exp() * x, [x])
    places = {}
    for node in gm.graph.nodes:
        if node.op.startswith("call"):
            node.meta["module"] = f"layers.{len(places)}"
            node.meta["stack"] = places[node.name] = (("file.py", len(places), "forward"),)
    prepared = prepare(gm, fakes([x]), partitioner=default_partition)
    for graph in (prepared.forward, prepared.backward):
        found = [node for node in graph.graph.nodes if node.op == "call_function"]
        assert found
        for node in found:
            module, stack = node.meta.get("module", ""), node.meta["stack"]
            assert (module, stack) == ("", ()) or module == f"layers.{stack[0][1]}"
    backward = {node.meta.get("module"): node.target for node in found}
    assert backward.keys() >= {"layers.0", "layers.2"} and torch.ops.aten.cos.default not in {backward["layers.2"]}
    cosine = next(node for node in (*prepared.forward.graph.nodes, *found) if node.target is torch.ops.aten.cos.default)
    assert cosine.meta["module"] == "layers.0"
