"""`scan`: a body that is called slice after slice, with values that it carries along.

In: a body, first carries, tensors that are cut into slices, operands that every step sees. Out: `scan` over a functional body; where it has a
gradient it gives besides its results what that needs of each step, its carries among it, stacked. The gradient is a `scan` over the slices of
those in reverse: it carries the gradients of the carries, and sums of those of the operands that every step sees.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from attrs import frozen
from torch.fx import Graph, GraphModule, Node

from ...errors import UnsupportedGraph
from ...functional.recorder import Recorder
from . import calls
from .cut import Cut, Graphed, Key, call, composed, cut, inlined, operand, zeros_like
from .trace import Replays, Trace, same_kind, trace

aten = torch.ops.aten
SCAN = torch.ops.higher_order.scan


def scan(replay: Replays, body: GraphModule, init: Sequence[Any], xs: Sequence[Any], additional: Sequence[Any]) -> Any:
    """Record one `scan`."""
    if not xs or not all(isinstance(value, torch.Tensor) for value in (*init, *xs)):
        raise UnsupportedGraph("scan carries a number, or has no slices")
    carried = [calls.resolved(value).contiguous() for value in init]
    operands = [*carried, *map(calls.resolved, (*xs, *additional))]
    seen = [calls.slice_of(replay.recorder, stack) for stack in operands[len(init) : len(init) + len(xs)]]
    traced = trace_loop(replay, body, carried, [*seen, *operands[len(init) + len(xs) :]])
    known = replay.recorder.bodies
    key = ("scan", len(init), len(xs), traced)
    if key not in known:
        with calls.apart(replay.recorder):
            known[key] = _Scanned(cut(traced), len(init), len(xs))
    made = _Scan(replay.recorder, known[key], operands)
    return calls.run_control_flow(made, operands)


def trace_loop(replay: Replays, body: GraphModule, carried: Sequence[Any], others: Sequence[Any]) -> Trace:
    """The trace of a body whose first results are its first operands of the next step. A carry has a gradient where any step gives it one."""
    operands = [*carried, *others]
    wanted = {place for place, value in enumerate(operands) if calls.is_wanted(value)}
    while True:
        traced = trace(replay, body, operands, sorted(wanted), range(len(carried)))
        for place, value in enumerate(carried):
            if place >= len(traced.results) or not same_kind(value, traced.results[place]):
                raise UnsupportedGraph("the body of a loop gives a carry another shape or type than it has")
        more = {place for place in traced.differentiable if place < len(carried)} - wanted
        if not more:
            return traced
        wanted |= more


@frozen
class Step:
    """One step of the backward. Operands: `carries` (gradients), `sums`, slices for `apart`, `alike`; results: carries, sums, gradients of slices."""

    graphed: Graphed
    carries: tuple[Key, ...]
    sums: tuple[Key, ...]
    apart: tuple[Key, ...]
    alike: tuple[Key, ...]
    slices: tuple[Key, ...]


class _Scanned:
    """Both bodies of a scan."""

    def __init__(self, made: Cut, carried: int, sliced: int) -> None:
        self.carried, self.sliced = carried, sliced
        self.count = len(made.trace.results)
        self.differentiable: Sequence[int] = ()
        self.forward, self.step = made.forward, None
        if made.backward is None or not made.backward.gives:
            return
        self.differentiable = made.trace.differentiable
        # A carry is another one at each step: what the backward takes of it is given, as a result, by each.
        seen = tuple(key for key in made.backward.kept if key.kind in ("input", "output") and key.what < carried)
        self.forward = _giving(made.forward, seen)
        self.step = step(made.backward, carried, sliced, forward=made.forward)


def _giving(graphed: Graphed, more: Sequence[Key]) -> Graphed:
    """The same graph, which gives as extras some of its operands and results."""
    graph = Graph()
    given: dict[Key, Any] = {}
    for node, key in zip(graphed.module.graph.find_nodes(op="placeholder"), graphed.takes):
        given[key] = graph.node_copy(node)
    results = inlined(graph, graphed, given)
    stacks = [given[key] if key.kind == "input" else results[key] for key in more]
    graph.output((*results.values(), *stacks))
    gives = (*graphed.gives, *(Key("extra", key) for key in more))
    return composed(graphed, graph, graphed.takes, gives)


def step(
    backward: Graphed, carried: int, sliced: int, shown: Sequence[int] = (), forward: Graphed | None = None
) -> Step:
    """The body of the reverse scan, around the gradients of one step; the carries at the places `shown` are results of each step as well.

    Where the gradients need nothing of a step, slices of `forward` tell how many there are.
    """

    def is_apart(key: Key) -> bool:
        if key.kind == "input":
            return bool(key.what < carried + sliced)
        return key.kind != "number" and not (key.kind == "tangent" and key.what < carried)

    apart = (*(key for key in backward.takes if is_apart(key)), *(Key("shown", place) for place in shown))
    values = backward.values()
    if not apart and forward is not None:
        apart = (Key("input", carried),)
        values[apart[0]] = forward.values()[apart[0]]
    alike = tuple(key for key in backward.kept if not is_apart(key))
    tangents = {key.what for key in backward.takes if key.kind == "tangent" and key.what < carried}
    own = {key.what for key in backward.gives if key.what < carried}
    carries = tuple(Key("carry", place) for place in sorted(tangents | own))
    sums = tuple(Key("sum", key.what) for key in backward.gives if key.what >= carried + sliced)
    slices = tuple(key for key in backward.gives if carried <= key.what < carried + sliced)
    graph = Graph()
    given: dict[Key, Any] = {}
    fakes = dict(zip(backward.gives, backward.results()))
    for key in (*carries, *sums, *apart, *alike):
        fake = values.get(Key("tangent", key.what) if key.kind == "shown" else key)
        if key.kind in ("carry", "sum"):
            like: Any = fakes.get(Key("input", key.what), values.get(Key("tangent", key.what)))
            fake = torch.empty(like.shape, dtype=like.dtype, device=like.device)
        given[key] = operand(graph, f"{key.kind}_{len(given)}", fake)
    for key in carries:
        place = key.what
        given[Key("tangent", place)] = (
            call(graph, aten.add.Tensor, given[key], given[Key("shown", place)]) if place in shown else given[key]
        )
    grads = inlined(graph, backward, given)
    after = [grads.get(Key("input", key.what)) for key in carries]
    totals = [call(graph, aten.add.Tensor, given[key], grads[Key("input", key.what)]) for key in sums]
    made = [
        zeros_like(graph, given[key]) if grad is None else _contiguous(graph, grad) for key, grad in zip(carries, after)
    ]
    graph.output((*made, *(_contiguous(graph, t) for t in totals), *(grads[key] for key in slices)))
    takes = (*carries, *sums, *apart, *alike)
    return Step(composed(backward, graph, takes, (*carries, *sums, *slices)), carries, sums, apart, alike, slices)


def _contiguous(graph: Graph, node: Node) -> Node:
    if node.meta["val"].is_contiguous():
        return node
    copy: Node = call(graph, aten.clone.default, node, memory_format=torch.contiguous_format)
    return copy


def run_back(
    recorder: Recorder, made: Step, carries: Sequence[Any], slices: Sequence[Any], others: Sequence[Any], length: Any
) -> dict[Key, Any]:
    """Record the reverse scan: slices in the order of the forward. Gradients by `carry`, `sum`, and, in that order again, `input` keys."""
    fakes = dict(zip(made.graphed.gives, made.graphed.results()))
    init = [*carries, *(calls.zeros(recorder, fakes[key]) for key in made.sums)]
    flipped = [recorder.call(aten.flip.default, stack, [0]) for stack in slices]
    results = [fakes[key] for key in (*made.carries, *made.sums)]
    results += [calls.like(recorder, fakes[key], (length,)) for key in made.slices]
    found = calls.record(recorder, SCAN, (made.graphed.module, init, flipped, list(others)), results)
    grads = dict(zip(made.graphed.gives, found))
    for key in made.slices:
        grads[key] = recorder.call(aten.flip.default, grads[key], [0])
    return grads


class _Scan:
    """One call; see `calls.Call`."""

    def __init__(self, recorder: Recorder, scanned: _Scanned, operands: Sequence[Any]) -> None:
        self.recorder, self.scanned, self.operands = recorder, scanned, len(operands)
        self.length = operands[scanned.carried].shape[0]
        self.differentiable = scanned.differentiable

    def forward(self, operands: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """As `Call` defines it."""
        scanned, recorder = self.scanned, self.recorder
        carried, sliced = scanned.carried, scanned.sliced
        given = [calls.operand_of(recorder, key, operands) for key in scanned.forward.takes]
        args = (scanned.forward.module, given[:carried], given[carried : carried + sliced], given[carried + sliced :])
        fakes = [
            fake if place < carried or fake is None else calls.like(recorder, fake, (self.length,))
            for place, fake in enumerate(scanned.forward.results())
        ]
        results = calls.record(recorder, SCAN, args, fakes)
        if scanned.step is None:
            return results[: scanned.count], []
        values = dict(zip(scanned.forward.gives, results))
        kept = [
            values[Key("extra", key)]
            if Key("extra", key) in values
            else calls.kept_value(recorder, key, operands, values)
            for key in self._kept(scanned.step)
        ]
        return results[: scanned.count], kept

    def _kept(self, made: Step) -> list[Key]:
        return [key for key in (*made.apart, *made.alike) if key.kind != "tangent"]

    def backward(self, kept: list[Any], tangents: Sequence[Any]) -> list[Any]:
        """As `Call` defines it."""
        recorder, made = self.recorder, self.scanned.step
        assert made is not None
        values = dict(zip(self._kept(made), kept))
        fakes = made.graphed.values()
        for key in made.apart:
            if key.kind == "tangent":
                stack = calls.like(recorder, fakes[key], (self.length,))
                values[key] = calls.tangent_of(recorder, tangents[key.what], stack)
        carries = [calls.tangent_of(recorder, tangents[key.what], fakes[key]) for key in made.carries]
        slices, others = [values[key] for key in made.apart], [values[key] for key in made.alike]
        grads = run_back(recorder, made, carries, slices, others, self.length)
        found: list[Any] = [None] * self.operands
        for key, grad in grads.items():
            found[key.what] = grad
        return found
