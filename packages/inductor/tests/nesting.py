"""Graphs made by hand that hold bodies: what tests of higher-order operators start from."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext
from tracing import TABLE

from flambeau_inductor.context import CompileContext
from flambeau_inductor.ir.evaluate import run_graph
from flambeau_inductor.ir.graph import Graph
from flambeau_inductor.ir.verify import verify
from flambeau_inductor.lowering.run import lower_graph
from flambeau_inductor.passes.order import OPENING, PASSES
from flambeau_inductor.passes.runner import run_passes
from flambeau_inductor.pipeline import compile_graph
from flambeau_runtime import Artifact, load


class Outer:
    """A graph under construction; with ``symbolic`` every size of its inputs is a symbol."""

    def __init__(self, symbolic: bool = False) -> None:
        self.mode = FakeTensorMode(shape_env=ShapeEnv())
        self.symbolic = symbolic
        self.root = torch.nn.Module()
        self.graph = fx.Graph()
        self.count = 0

    def input(self, tensor: torch.Tensor, device: str = "cpu") -> fx.Node:
        """A placeholder for ``tensor``, or for one like it on another device."""
        kind = DimDynamic.DYNAMIC if self.symbolic else DimDynamic.STATIC
        context = StatelessSymbolicContext([kind] * tensor.dim())
        node = self.graph.placeholder(f"arg_{self.number()}")
        val = node.meta["val"] = self.mode.from_tensor(tensor, symbolic_context=context)
        if device != "cpu":
            with self.mode:
                node.meta["val"] = torch.empty_strided(val.shape, val.stride(), dtype=val.dtype, device=device)
        return node

    def unbacked(self) -> torch.SymInt:
        """A size that is found while the program runs."""
        env = self.mode.shape_env
        with env.ignore_fresh_unbacked_symbols():
            size = env.create_unbacked_symint()
        torch._check(size >= 0)
        return size

    def number(self) -> int:
        """A fresh number."""
        self.count += 1
        return self.count

    def body(self, function: Callable[..., Any], *vals: Any) -> fx.GraphModule:
        """``function`` as a nested graph for fakes (of nodes, or other fakes)."""
        fakes = [val.meta["val"] if isinstance(val, fx.Node) else val for val in vals]
        with self.mode:
            return make_fx(function, decomposition_table=TABLE)(*fakes)

    def call(self, target: Any, *args: Any, val: Any) -> fx.Node:
        """A call; bodies among ``args`` become attributes, the same one always the same attribute."""
        node = self.graph.call_function(target, tuple(map(self.attribute, args)))
        node.meta["val"] = val
        return node

    def attribute(self, value: Any) -> Any:
        """A body as a node that reads it."""
        if not isinstance(value, fx.GraphModule):
            return value
        known = next((name for name, module in self.root.named_children() if module is value), None)
        name = known or f"body_{self.number()}"
        self.root.add_module(name, value)
        return self.graph.get_attr(name)

    def part(self, node: fx.Node, position: int) -> fx.Node:
        """One of a call's results."""
        return self.call(operator.getitem, node, position, val=node.meta["val"][position])

    def parts(self, node: fx.Node) -> list[fx.Node]:
        """All of them."""
        return [self.part(node, position) for position in range(len(node.meta["val"]))]

    def op(self, target: Any, *args: Any) -> fx.Node:
        """A call of an ATen op on nodes and numbers."""
        with self.mode:
            val = target(*(arg.meta["val"] if isinstance(arg, fx.Node) else arg for arg in args))
        return self.call(target, *args, val=val)

    def finish(self, *outputs: fx.Node) -> fx.GraphModule:
        """The graph that returns these."""
        self.graph.output(tuple(outputs))
        return fx.GraphModule(self.root, self.graph)


def lowered(gm: fx.GraphModule, *, rewritten: bool = False, **options: Any) -> Graph:
    """The verified loop IR of ``gm``, as it is or after the passes."""
    context = CompileContext(CompileContext().config.with_options(options))
    graph = lower_graph(run_passes(run_passes(gm, OPENING, context), PASSES, context) if rewritten else gm, [], context)
    verify(graph)
    return graph


def check(
    gm: fx.GraphModule, inputs: Sequence[Any], wanted: Sequence[Any], *, only_rewritten: bool = False, **options: Any
) -> Artifact:
    """The loop IR's interpreter, before and after the passes (or after them alone), and both executors, before and after bytes, give ``wanted``.

    Returns the artifact.
    """
    artifact = compile_graph(gm, inputs, options)
    loaded = Artifact.from_bytes(artifact.to_bytes())
    assert loaded.digest == artifact.digest
    constants = [operator.attrgetter(spec.name)(gm) for spec in artifact.constants if spec.data is None]
    graphs = (
        [lowered(gm, rewritten=True, **options)]
        if only_rewritten
        else [lowered(gm, rewritten=rewritten, **options) for rewritten in (False, True)]
    )
    runs: list[Callable[..., Any]] = [lambda *given, graph=graph: run_graph(graph, given) for graph in graphs]
    runs += [
        load(part, constants=constants, executor=executor)
        for part in (artifact, loaded)
        for executor in ("native", "python")
    ]
    before = [value.clone() if isinstance(value, torch.Tensor) else value for value in inputs]
    for run in runs:
        torch.testing.assert_close(run(*inputs), tuple(wanted), equal_nan=True)
        torch.testing.assert_close(list(inputs), before, equal_nan=True)
    return artifact
