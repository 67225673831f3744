"""`map_impl`: a body for each slice of its operands.

In: a body, tensors that are cut into slices along their first dimension, operands that every slice sees. Out: `map_impl` over a functional body;
it gives what its gradient needs of each slice, stacked, besides its results. The gradient is a `map_impl` over the slices of those and of the
tangents; what it gives for an operand that every slice sees is summed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.fx import GraphModule

from ...functional.recorder import Recorder
from . import calls
from .cut import Cut, Graphed, Key, cut, rewired
from .trace import Replays, trace

aten = torch.ops.aten
_MAP = torch.ops.higher_order.map_impl


def map_impl(replay: Replays, body: GraphModule, xs: Sequence[Any], args: Sequence[Any]) -> Any:
    """Record one `map_impl`."""
    operands = [calls.resolved(operand) for operand in (*xs, *args)]
    wanted = [place for place, operand in enumerate(operands) if calls.is_wanted(operand)]
    seen = [calls.slice_of(replay.recorder, operand) for operand in operands[: len(xs)]]
    traced = trace(replay, body, [*seen, *operands[len(xs) :]], wanted)
    known = replay.recorder.bodies
    key = ("map_impl", len(xs), traced)
    if key not in known:
        with calls.apart(replay.recorder):
            known[key] = _Mapped(cut(traced), len(xs))
    made = _Map(replay.recorder, known[key], operands)
    return calls.run_control_flow(made, operands)


class _Mapped:
    """Both bodies, with what is sliced before what is not."""

    def __init__(self, made: Cut, sliced: int) -> None:
        self.sliced, self.forward, self.backward = sliced, made.forward, made.backward
        self.count = len(made.trace.results)
        self.differentiable: Sequence[int] = ()
        if made.backward is None or not made.backward.gives:
            return
        self.differentiable = made.trace.differentiable
        apart = [key for key in made.backward.takes if self.is_sliced(key)]
        alike = [key for key in made.backward.takes if not self.is_sliced(key)]
        self.apart, self.alike = tuple(apart), tuple(alike)
        self.backward = rewired(made.backward, (*apart, *alike), made.backward.gives)

    def is_sliced(self, key: Key) -> bool:
        """Whether each slice has one of its own."""
        return key.what < self.sliced if key.kind == "input" else key.kind != "number"


class _Map:
    """One call; see `calls.Call`."""

    def __init__(self, recorder: Recorder, mapped: _Mapped, operands: Sequence[Any]) -> None:
        self.recorder, self.mapped, self.count = recorder, mapped, len(operands)
        self.length = operands[0].shape[0]
        self.differentiable = mapped.differentiable

    def _record(self, graphed: Graphed, sliced: Sequence[Any], others: Sequence[Any]) -> list[Any]:
        stacks = [r if r is None else calls.like(self.recorder, r, (self.length,)) for r in graphed.results()]
        return calls.record(self.recorder, _MAP, (graphed.module, list(sliced), list(others)), stacks)

    def forward(self, operands: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """As `Call` defines it."""
        mapped, recorder = self.mapped, self.recorder
        given = [calls.operand_of(recorder, key, operands) for key in mapped.forward.takes]
        results = self._record(mapped.forward, given[: mapped.sliced], given[mapped.sliced :])
        if not self.differentiable or mapped.backward is None:
            return results[: mapped.count], []
        values = dict(zip(mapped.forward.gives, results))
        kept = [calls.kept_value(recorder, key, operands, values) for key in mapped.backward.kept]
        return results[: mapped.count], kept

    def backward(self, kept: list[Any], tangents: Sequence[Any]) -> list[Any]:
        """As `Call` defines it."""
        mapped, recorder = self.mapped, self.recorder
        assert mapped.backward is not None
        values = dict(zip(mapped.backward.kept, kept))
        fakes = mapped.backward.values()
        for key in mapped.apart:
            if key.kind == "tangent":
                stack = calls.like(recorder, fakes[key], (self.length,))
                values[key] = calls.tangent_of(recorder, tangents[key.what], stack)
        grads = self._record(mapped.backward, [values[k] for k in mapped.apart], [values[k] for k in mapped.alike])
        summed = [
            grad if key.what < mapped.sliced else recorder.call(aten.sum.dim_IntList, grad, [0])
            for key, grad in zip(mapped.backward.gives, grads)
        ]
        return calls.by_place(mapped.backward.gives, summed, self.count)
