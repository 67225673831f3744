"""`while_loop`: a body that is called as long as a condition holds.

In: two bodies, values that are carried, operands that every step sees. Out: `while_loop` over functional bodies with equal signatures.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.fx import GraphModule, Node

from ...errors import UnsupportedGraph
from . import calls
from .cut import Graphed, cut, rewired, united
from .scans import trace_loop
from .trace import Replays, Trace, trace

_WHILE = torch.ops.higher_order.while_loop


def while_loop(
    replay: Replays, condition: GraphModule, body: GraphModule, carried: Sequence[Any], additional: Sequence[Any]
) -> Any:
    """Record one `while_loop`."""
    if not all(isinstance(value, torch.Tensor) for value in carried):
        raise UnsupportedGraph("while_loop carries a number")
    recorder = replay.recorder
    init = [calls.resolved(operand).contiguous() for operand in carried]
    others = list(map(calls.resolved, additional))
    stepped = trace_loop(replay, body, init, others)
    if stepped.differentiable:
        raise UnsupportedGraph("while_loop has a gradient, of as many steps as its values decide")
    asked = trace(replay, condition, [*init, *others])
    _refuse_other_conditions(asked)
    known = recorder.bodies
    key = ("while_loop", stepped, asked)
    if key not in known:
        with calls.apart(recorder):
            known[key] = _with_one_signature(asked, stepped)
    asks, steps = known[key]
    given = [calls.operand_of(recorder, key, [*init, *others]) for key in steps.takes]
    args = (asks.module, steps.module, tuple(given[: len(init)]), tuple(given[len(init) :]))
    return tuple(calls.record(recorder, _WHILE, args, steps.results()))


def _refuse_other_conditions(asked: Trace) -> None:
    """Eager takes one truth value without dimensions."""
    answer = asked.results[0] if len(asked.results) == 1 else None
    if answer is None or answer.dtype is not torch.bool or answer.dim():
        raise UnsupportedGraph("the condition of while_loop is no truth value")


def _with_one_signature(asked: Trace, stepped: Trace) -> tuple[Graphed, Graphed]:
    graphs = [cut(asked).forward, cut(stepped).forward]
    takes = united(g.takes for g in graphs)
    values = {key: value for g in graphs for key, value in g.values().items()}
    asks, steps = (rewired(g, takes, g.gives, values) for g in graphs)
    (output,) = asks.module.graph.find_nodes(op="output")
    answer = output.args[0][0]
    assert isinstance(answer, Node)
    output.args = (answer,)
    asks.module.recompile()
    return asks, steps
