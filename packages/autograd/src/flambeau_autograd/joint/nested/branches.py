"""`cond`: one of two bodies, by a value.

In: predicate, two bodies, operands. Out: `cond` over functional bodies with equal signatures. Its gradient is a `cond` by the same predicate over
the gradients of the bodies, which compute again what they need; a gradient that one of them does not have is zeros there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from ...errors import UnsupportedGraph
from ...functional.recorder import Recorder
from . import calls
from .cut import Cut, Graphed, Key, call, recomputing, rewired, united, zeros_like
from .trace import Replays, same_kind, same_strides, trace

COND = torch.ops.higher_order.cond


def cond(replay: Replays, pred: Any, true_body: GraphModule, false_body: GraphModule, operands: Sequence[Any]) -> Any:
    """Record one `cond`; where the predicate is known, only the body that it chooses."""
    if isinstance(pred, bool):
        return replay.run(true_body if pred else false_body, list(operands))
    operands = [calls.resolved(operand) for operand in operands]
    wanted = [place for place, operand in enumerate(operands) if calls.is_wanted(operand)]
    traces = [trace(replay, body, operands, wanted) for body in (true_body, false_body)]
    uneven = _uneven(*(t.results for t in traces))
    if uneven:
        traces = [trace(replay, body, operands, wanted, uneven) for body in (true_body, false_body)]
    with calls.apart(replay.recorder):
        known = replay.recorder.bodies
        key = ("cond", *traces)
        if key not in known:
            known[key] = _Branches([recomputing(t) for t in traces])
        branches: _Branches = known[key]
    made = _Cond(replay.recorder, pred, branches, len(operands))
    return tuple(calls.run_control_flow(made, operands))


def _uneven(ones: Sequence[Any], others: Sequence[Any]) -> list[int]:
    """The results that the bodies lay out in two ways; raises `UnsupportedGraph` where they differ in more."""
    if len(ones) != len(others) or not all(map(same_kind, ones, others)):
        raise UnsupportedGraph("the branches of cond give results of different shapes or types")
    pairs = enumerate(zip(ones, others))
    return [place for place, (one, other) in pairs if one is not None and not same_strides(one, other)]


class _Branches:
    """Two bodies with equal signatures."""

    def __init__(self, cuts: Sequence[Cut]) -> None:
        forwards = [c.forward for c in cuts]
        self.results = cuts[0].trace.results
        self.takes = united(f.takes for f in forwards)
        values = {key: value for f in forwards for key, value in f.values().items()}
        gives = forwards[0].gives
        self.forward = [rewired(f, self.takes, gives, values).module for f in forwards]
        self.differentiable = sorted({place for c in cuts for place in c.trace.differentiable})
        backwards = [c.backward for c in cuts if c.backward is not None]
        self.gives = tuple(sorted(united(b.gives for b in backwards), key=lambda key: int(key.what)))
        if not self.gives:
            self.differentiable = []
            return
        given = united(b.takes for b in backwards)
        # The operands whose shapes zeros may have, and tangents last.
        self.needs = (
            *united(([key for key in given if key.kind != "tangent"], self.gives)),
            *(Key("tangent", place) for place in self.differentiable),
        )
        for b in backwards:
            values.update(b.values())
        self.backward = [self._gradients(c.backward, values) for c in cuts]
        self.gradients = self.backward[0].results()
        self.tangents = {key.what: values[key] for key in self.needs if key.kind == "tangent"}

    def _gradients(self, backward: Graphed | None, values: Mapping[Key, Any]) -> Graphed:
        if backward is None:
            backward = Graphed(GraphModule(torch.nn.Module(), _empty()), (), ())
        return _row_major(rewired(backward, self.needs, self.gives, values, self._zeros))

    def _zeros(self, graph: Graph, key: Key, given: Mapping[Key, Node]) -> Node:
        return zeros_like(graph, given[key])


def _empty() -> Graph:
    graph = Graph()
    graph.output(())
    return graph


def _row_major(graphed: Graphed) -> Graphed:
    """With results that lie one way, whichever body they come from."""
    graph = graphed.module.graph
    (output,) = graph.find_nodes(op="output")
    with graph.inserting_before(output):
        output.args = (tuple(map(_contiguous, output.args[0])),)
    graphed.module.recompile()
    return graphed


def _contiguous(node: Node) -> Node:
    if node.meta["val"].is_contiguous():
        return node
    copy: Node = call(node.graph, torch.ops.aten.clone.default, node, memory_format=torch.contiguous_format)
    return copy


class _Cond:
    """One call of it; see `calls.Call`."""

    def __init__(self, recorder: Recorder, pred: Any, branches: _Branches, count: int) -> None:
        self.recorder, self.pred, self.branches, self.count = recorder, pred, branches, count
        self.differentiable = branches.differentiable

    def forward(self, operands: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """As `Call` defines it."""
        branches = self.branches
        given = tuple(calls.operand_of(self.recorder, key, operands) for key in branches.takes)
        args = (self.pred, *branches.forward, given)
        results = calls.record(self.recorder, COND, args, branches.results)
        if not branches.differentiable:
            return results, []
        kept = [key for key in branches.needs if key.kind != "tangent"]
        return results, [self.pred, *(calls.operand_of(self.recorder, key, operands) for key in kept)]

    def backward(self, kept: list[Any], tangents: Sequence[Any]) -> list[Any]:
        """As `Call` defines it."""
        branches, recorder = self.branches, self.recorder
        pred, *saved = kept
        given = [
            calls.tangent_of(recorder, tangents[place], branches.tangents[place]) for place in branches.differentiable
        ]
        args = (pred, *(b.module for b in branches.backward), (*saved, *given))
        grads = calls.record(recorder, COND, args, branches.gradients)
        return calls.by_place(branches.gives, grads, self.count)
