"""`invoke_subgraph`: a body that is called in several places, a layer that is repeated.

In: the body, its identifier, operands. Out: `invoke_subgraph` over one functional body for all calls whose operands look the same. The forward body
gives what its gradient needs besides its results, as the partition of that body alone chooses; the gradient is one body as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.fx import GraphModule

from ...functional.recorder import Recorder
from . import calls
from .cut import Cut, cut
from .trace import Replays, trace

_INVOKE = torch.ops.higher_order.invoke_subgraph


def invoke_subgraph(replay: Replays, body: GraphModule, identifier: str | None, *operands: Any) -> Any:
    """Record one call of a body."""
    operands = tuple(map(calls.resolved, operands))
    wanted = [place for place, operand in enumerate(operands) if calls.is_wanted(operand)]
    traced = trace(replay, body, operands, wanted, inlined=True)
    known = replay.recorder.bodies
    key = ("invoke_subgraph", identifier, traced)
    if key not in known:
        variants = sum(isinstance(other, tuple) and other[:2] == key[:2] for other in known)
        with calls.apart(replay.recorder):
            # Operands of another kind have a body of another name.
            known[key] = (cut(traced), f"{identifier}_{variants}" if variants else str(identifier))
    body_cut, name = known[key]
    made = _Invoke(replay.recorder, body_cut, name, len(operands))
    return tuple(calls.run(made, operands, traced.summary))


class _Invoke:
    """One call; see `calls.Call`."""

    def __init__(self, recorder: Recorder, made: Cut, identifier: str, count: int) -> None:
        self.recorder, self.made, self.identifier, self.count = recorder, made, identifier, count
        self.differentiable = made.trace.differentiable if made.backward is not None and made.backward.gives else ()
        self.summary = made.trace.summary

    def forward(self, operands: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """As `Call` defines it."""
        made, recorder = self.made, self.recorder
        given = [calls.operand_of(recorder, key, operands) for key in made.forward.takes]
        args = (made.forward.module, f"forward_{self.identifier}", *given)
        results = calls.record(recorder, _INVOKE, args, made.forward.results())
        count = len(made.trace.results)
        if not self.differentiable or made.backward is None:
            return results[:count], []
        values = dict(zip(made.forward.gives, results))
        kept = [calls.kept_value(recorder, key, operands, values) for key in made.backward.kept]
        return results[:count], kept

    def backward(self, kept: list[Any], tangents: Sequence[Any]) -> list[Any]:
        """As `Call` defines it."""
        made, recorder = self.made, self.recorder
        assert made.backward is not None
        fakes = made.backward.values()
        given = []
        for key in made.backward.takes:
            if key.kind == "tangent":
                given.append(calls.tangent_of(recorder, tangents[key.what], fakes[key]))
            elif key.kind == "given":
                given.append(calls.is_given(recorder, [tangents[place] for place in key.what], fakes[key].device))
        args = (made.backward.module, f"backward_{self.identifier}", *kept, *given)
        grads = calls.by_place(
            made.backward.gives, calls.record(recorder, _INVOKE, args, made.backward.results()), self.count
        )
        assert self.summary is not None
        decided = (any(tangents[result] is not None for result in results) for results in self.summary.decided)
        return [grad if is_decided else None for grad, is_decided in zip(grads, decided)]
