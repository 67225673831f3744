"""`associative_scan`: all partial combinations of slices.

In: a body that combines two values, element by element, tensors that are cut into slices, operands that every combination sees. Out:
`associative_scan` over a functional body. Its gradient is that of the recurrence `y[t] = body(y[t - 1], x[t])`, whatever the order in which the
forward combines: a `scan` in reverse over the slices of results and operands, which computes each combination again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.fx import GraphModule

from ...errors import UnsupportedGraph
from ...functional.recorder import Recorder
from . import calls
from .cut import Cut, Key, recomputing
from .scans import Step, run_back, step, trace_loop
from .trace import Replays, Trace, is_pointwise

aten = torch.ops.aten
_ASSOCIATIVE_SCAN = torch.ops.higher_order.associative_scan


def associative_scan(replay: Replays, body: GraphModule, xs: Sequence[Any], additional: Sequence[Any]) -> Any:
    """Record one `associative_scan`."""
    operands = [calls.resolved(operand).contiguous() for operand in xs] + list(map(calls.resolved, additional))
    others = operands[len(xs) :]
    seen = [calls.slice_of(replay.recorder, operand) for operand in operands[: len(xs)]]
    traced = trace_loop(replay, body, seen, [*seen, *others])
    _refuse_more_than_pointwise(traced)
    if traced.symbols:
        raise UnsupportedGraph("the body of associative_scan uses a size")
    known = replay.recorder.bodies
    key = ("associative_scan", len(xs), traced)
    if key not in known:
        with calls.apart(replay.recorder):
            known[key] = _Combined(recomputing(traced), len(xs))
    made = _AssociativeScan(replay.recorder, known[key], operands)
    return calls.run_control_flow(made, operands)


def _refuse_more_than_pointwise(traced: Trace) -> None:
    """The body sees single slices here, and many at once where it runs."""
    for node in traced.joint.graph.nodes:
        if node.op != "call_function" or node.meta.get("backward"):
            continue
        if not is_pointwise(node):
            raise UnsupportedGraph(
                f"the body of associative_scan calls {node.target}, which is not done element by element"
            )


class _Combined:
    """Both bodies; to a step of the backward the result of the step before is what a scan carries."""

    def __init__(self, made: Cut, sliced: int) -> None:
        self.forward, self.sliced, self.step = made.forward, sliced, None
        self.fakes = made.forward.results()
        self.differentiable: Sequence[int] = ()
        if made.backward is not None and made.backward.gives:
            self.differentiable = made.trace.differentiable
            self.step = step(made.backward, sliced, sliced, made.trace.differentiable)


class _AssociativeScan:
    """One call; see `calls.Call`."""

    def __init__(self, recorder: Recorder, combined: _Combined, operands: Sequence[Any]) -> None:
        self.recorder, self.combined, self.operands = recorder, combined, len(operands)
        self.length = operands[0].shape[0]
        self.differentiable = combined.differentiable

    def forward(self, operands: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """As `Call` defines it."""
        combined, recorder = self.combined, self.recorder
        xs, others = list(operands[: combined.sliced]), list(operands[combined.sliced :])
        fakes = [calls.like(recorder, fake, (self.length,)) for fake in combined.fakes]
        results = calls.record(recorder, _ASSOCIATIVE_SCAN, (combined.forward.module, xs, others), fakes)
        if combined.step is None:
            return results, []
        return results, [(*results, *operands)[key.what] for key in self._kept(combined.step)]

    def _kept(self, made: Step) -> list[Key]:
        return [key for key in (*made.apart, *made.alike) if key.kind == "input"]

    def backward(self, kept: list[Any], tangents: Sequence[Any]) -> list[Any]:
        """As `Call` defines it."""
        recorder, made, count, length = self.recorder, self.combined.step, self.combined.sliced, self.length
        assert made is not None
        stacks = {place: calls.like(recorder, self.combined.fakes[place], (length,)) for place in self.differentiable}
        given = {place: calls.tangent_of(recorder, tangents[place], stack) for place, stack in stacks.items()}
        if isinstance(length, int) and length == 1:
            return [given.get(place) for place in range(self.operands)]
        values = dict(zip(self._kept(made), kept))
        slices = [
            recorder.call(aten.slice.Tensor, given[key.what], 0, 1, length)
            if key.kind == "shown"
            # A combination is of the result before and of the slice.
            else recorder.call(
                aten.slice.Tensor, values[key], 0, *((0, length - 1) if key.what < count else (1, length))
            )
            for key in made.apart
        ]
        fakes = made.graphed.values()
        carries = [calls.zeros(recorder, fakes[key]) for key in made.carries]
        grads = run_back(recorder, made, carries, slices, [values[key] for key in made.alike], length - 1)
        found: list[Any] = [None] * self.operands
        for key in made.sums:
            found[key.what - count] = grads[key]
        for place in range(count):
            found[place] = self._whole(place, given.get(place), grads)
        return found

    def _whole(self, place: int, given: Any, grads: Mapping[Key, Any]) -> Any:
        """The gradient of all slices: the first is the first result itself."""
        recorder, fake = self.recorder, self.combined.fakes[place]
        if not fake.is_floating_point() and not fake.is_complex():
            return None
        first = grads.get(Key("carry", place))
        if given is not None and first is not None:
            first = recorder.call(aten.add.Tensor, first, recorder.call(aten.select.int, given, 0, 0))
        if first is None:
            first = calls.zeros(recorder, fake)
        rest = grads.get(Key("input", self.combined.sliced + place))
        if rest is None:
            rest = calls.zeros(recorder, calls.like(recorder, fake, (self.length - 1,)))
        return recorder.call(aten.cat.default, [recorder.call(aten.unsqueeze.default, first, 0), rest])
