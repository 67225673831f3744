"""`while_loop` and `while_loop_stack_output`: a body that is called as long as a condition holds.

In: two bodies, values that are carried, operands that every step sees. Out: `while_loop` over functional bodies with equal signatures. Where it has a
gradient, it counts its steps besides, and a `scan` of as many takes them again, now that there is room for what each step is given; a `cond` around
that leaves it out where there is none. The gradient is a `while_loop` that counts back to the first step, and computes each again from that.
A loop that stacks what its steps give has no gradient, in torch neither.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from operator import getitem
from typing import Any

import torch
from attrs import frozen
from torch.fx import Graph, GraphModule, Node
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from ...errors import UnsupportedGraph
from ...functional.recorder import Recorder
from . import calls
from .branches import COND
from .cut import Graphed, Key, call, composed, cut, inlined, operand, recomputing, rewired, united, zeros_like
from .scans import SCAN, Step, step, trace_loop
from .trace import Replays, Trace, trace

aten = torch.ops.aten
_WHILE = torch.ops.higher_order.while_loop
_STACK = torch.ops.higher_order.while_loop_stack_output
#: How many steps were made; its place among the carries is the first.
_COUNT = Key("count", 0)


def while_loop(
    replay: Replays, condition: GraphModule, body: GraphModule, carried: Sequence[Any], additional: Sequence[Any]
) -> Any:
    """Record one `while_loop`."""
    return tuple(calls.run_control_flow(*_loop(replay, condition, body, carried, additional)))


def while_loop_stack_output(
    replay: Replays, condition: GraphModule, body: GraphModule, carried: Sequence[Any], additional: Sequence[Any]
) -> Any:
    """Record one `while_loop_stack_output`."""
    if any(map(calls.is_wanted, (*carried, *additional))):
        raise UnsupportedGraph("while_loop_stack_output has no gradient")
    loop, operands = _loop(replay, condition, body, carried, additional)
    return tuple(loop.stacked(operands))


def _loop(
    replay: Replays, condition: GraphModule, body: GraphModule, carried: Sequence[Any], additional: Sequence[Any]
) -> tuple[_While, list[Any]]:
    """The call of a loop, and its operands."""
    if not all(isinstance(value, torch.Tensor) for value in carried):
        raise UnsupportedGraph("while_loop carries a number")
    recorder = replay.recorder
    operands = [
        *(calls.resolved(value).contiguous() for value in carried),
        *map(calls.resolved, additional),
    ]
    stepped = trace_loop(replay, body, operands[: len(carried)], operands[len(carried) :])
    asked = trace(replay, condition, operands)
    _refuse_other_conditions(asked)
    known = recorder.bodies
    key = ("while_loop", stepped, asked)
    if key not in known:
        with calls.apart(recorder):
            known[key] = _bodies(asked, stepped, len(carried))
    return _While(recorder, known[key], len(operands)), operands


def _refuse_other_conditions(asked: Trace) -> None:
    """Eager takes one truth value without dimensions."""
    answer = asked.results[0] if len(asked.results) == 1 else None
    if answer is None or answer.dtype is not torch.bool or answer.dim():
        raise UnsupportedGraph("the condition of while_loop is no truth value")


@frozen(eq=False)
class _Bodies:
    """`asks`, `steps`: of one signature, which begins with a count where there is a gradient, and with the carries. `back`: a step of that gradient
    around what a step was given; `again`: a step of the scan that gives this."""

    asks: Graphed
    steps: Graphed
    carried: int
    differentiable: tuple[int, ...] = ()
    back: Step | None = None
    again: Graphed | None = None


def _bodies(asked: Trace, stepped: Trace, carried: int) -> _Bodies:
    after = recomputing(stepped) if stepped.differentiable else cut(stepped)
    graphs = [cut(asked).forward, after.forward]
    takes = united(g.takes for g in graphs)
    values = {key: value for g in graphs for key, value in g.values().items()}
    asks, steps = (rewired(g, takes, g.gives, values) for g in graphs)
    if after.backward is None or not after.backward.gives:
        return _Bodies(_of_one(asks), steps, carried)
    back = step(after.backward, carried, 0)
    again = _again(steps, carried, back.apart)
    asks, steps = (_counting(g, is_step) for g, is_step in ((asks, False), (steps, True)))
    return _Bodies(_of_one(asks), steps, carried, stepped.differentiable, back, again)


def _again(steps: Graphed, carried: int, shown: Sequence[Key]) -> Graphed:
    """The same step, as a scan takes it, which gives as extras some of what it is given."""
    graph = Graph()
    values = list(steps.values().items())
    values.insert(carried, (_COUNT, torch.empty((), dtype=torch.int64)))
    given = {key: operand(graph, f"operand_{place}", fake) for place, (key, fake) in enumerate(values)}
    results = inlined(graph, steps, given)
    graph.output((*results.values(), *(given[key] for key in shown)))
    return composed(steps, graph, tuple(given), (*steps.gives, *(Key("extra", key) for key in shown)))


def _operands_of_steps(graph: Graph, again: Graphed, rows: torch.Tensor) -> dict[Key, Node]:
    """Operands of a body around all steps of a scan: what it walks through, in the place of its row."""
    fakes = {**again.values(), _COUNT: rows}
    return {key: operand(graph, f"operand_{place}", fakes[key]) for place, key in enumerate(again.takes)}


def _taking_again(again: Graphed, rows: torch.Tensor, stacks: Sequence[torch.Tensor]) -> Graphed:
    """The scan of a step for each of the rows, which gives what is stacked."""
    graph = Graph()
    given = _operands_of_steps(graph, again, rows)
    nodes, carried = list(given.values()), again.takes.index(_COUNT)
    body = graph.get_attr("body")
    body.meta.update(val=None, stack=(), body=again.module)
    scanned = graph.call_function(SCAN, (body, nodes[:carried], nodes[carried : carried + 1], nodes[carried + 1 :]))
    scanned.meta.update(val=(*again.results()[:carried], *stacks), stack=())
    parts = [call(graph, getitem, scanned, carried + place) for place in range(len(stacks))]
    graph.output(tuple(parts))
    root = torch.nn.Module()
    root.body = again.module
    return Graphed(GraphModule(root, graph), tuple(given), again.gives[carried:])


def _without_steps(again: Graphed, rows: torch.Tensor, stacks: Sequence[torch.Tensor]) -> Graphed:
    """As much room, of zeros."""
    graph = Graph()
    given = _operands_of_steps(graph, again, rows)
    length = call(graph, aten.sym_size.int, given[_COUNT], 0)
    shown = [key.what for key in again.gives[again.takes.index(_COUNT) :]]
    made = []
    for key, stack in zip(shown, stacks):
        zeros = call(graph, aten.unsqueeze.default, zeros_like(graph, given[key]), 0)
        room = call(graph, aten.expand.default, zeros, [length, *[-1] * (stack.dim() - 1)])
        made.append(call(graph, aten.clone.default, room, memory_format=torch.contiguous_format))
    graph.output(tuple(made))
    return composed(again, graph, tuple(given), again.gives[again.takes.index(_COUNT) :])


def _of_one(asks: Graphed) -> Graphed:
    """The same graph, which gives its one result and no tuple."""
    (output,) = asks.module.graph.find_nodes(op="output")
    answer = output.args[0][0]
    assert isinstance(answer, Node)
    output.args = (answer,)
    asks.module.recompile()
    return asks


def _counted(graph: Graph) -> Node:
    return operand(graph, "count", torch.empty((), dtype=torch.int64))


def _counting(graphed: Graphed, is_step: bool) -> Graphed:
    """The same body, which is given a count first, and gives the next one if it makes a step."""
    graph = Graph()
    count = _counted(graph)
    given = {k: operand(graph, f"operand_{i}", fake) for i, (k, fake) in enumerate(graphed.values().items())}
    results = inlined(graph, graphed, given)
    counts = [call(graph, aten.add.Tensor, count, 1)] if is_step else []
    graph.output((*counts, *results.values()))
    gives = (_COUNT, *graphed.gives) if is_step else graphed.gives
    return composed(graphed, graph, (_COUNT, *graphed.takes), gives)


def _operands_back(graph: Graph, made: Step, stacks: Mapping[Key, torch.Tensor]) -> dict[Key, Node]:
    """Operands of the gradient's bodies: gradients and sums are carried, and of what steps were given there are `stacks`."""
    fakes = {**made.graphed.values(), **stacks}
    return {key: operand(graph, f"operand_{place}", fake) for place, (key, fake) in enumerate(fakes.items())}


def _asking_back(made: Step, stacks: Mapping[Key, torch.Tensor]) -> Graphed:
    """Whether there is a step before."""
    graph = Graph()
    count = _counted(graph)
    given = _operands_back(graph, made, stacks)
    graph.output((call(graph, aten.gt.Scalar, count, 0),))
    return _of_one(composed(made.graphed, graph, (_COUNT, *given), (Key("output", 0),)))


def _stepping_back(made: Step, stacks: Mapping[Key, torch.Tensor]) -> Graphed:
    """The gradient of the step before."""
    graph = Graph()
    count = _counted(graph)
    given = _operands_back(graph, made, stacks)
    before = call(graph, aten.sub.Tensor, count, 1)
    seen = {key: call(graph, aten.index.Tensor, given[key], [before]) for key in made.apart}
    results = inlined(graph, made.graphed, {**given, **seen})
    graph.output((before, *results.values()))
    return composed(made.graphed, graph, (_COUNT, *given), (_COUNT, *made.graphed.gives))


class _While:
    """One call; see `calls.Call`."""

    def __init__(self, recorder: Recorder, bodies: _Bodies, operands: int) -> None:
        self.recorder, self.bodies, self.operands = recorder, bodies, operands

    @property
    def differentiable(self) -> Sequence[int]:
        """As `Call` defines it."""
        return self.bodies.differentiable

    def _given(self, operands: Sequence[Any]) -> tuple[list[Any], tuple[Any, ...]]:
        keys = [key for key in self.bodies.steps.takes if key != _COUNT]
        given = [calls.operand_of(self.recorder, key, operands) for key in keys]
        return given[: self.bodies.carried], tuple(given[self.bodies.carried :])

    def forward(self, operands: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """As `Call` defines it."""
        bodies, recorder = self.bodies, self.recorder
        init, others = self._given(operands)
        graphs = (bodies.asks.module, bodies.steps.module)
        if bodies.back is None:
            return calls.record(recorder, _WHILE, (*graphs, tuple(init), others), bodies.steps.results()), []
        assert bodies.again is not None
        counted = (self._count(0), *init)
        count, *results = calls.record(recorder, _WHILE, (*graphs, counted, others), bodies.steps.results())
        return results, [count, *self._given_to_steps(bodies.again, count, init, others), *operands]

    def _given_to_steps(self, again: Graphed, count: Any, init: Sequence[Any], others: Sequence[Any]) -> list[Any]:
        """What each step is given, in one row at least."""
        recorder = self.recorder
        length = _number_of(recorder, recorder.call(aten.clamp_min.default, count, 1))
        rows = recorder.call(aten.arange.default, length, dtype=torch.int64, device="cpu")
        with calls.apart(recorder):
            stacks = [calls.like(recorder, fake, (length,)) for fake in again.results()[len(init) :]]
            walked = calls.like(recorder, rows)
            made, without = _taking_again(again, walked, stacks), _without_steps(again, walked, stacks)
        is_any = recorder.call(aten.gt.Scalar, count, 0)
        operands = (*init, rows, *others)
        return calls.record(recorder, COND, (is_any, made.module, without.module, operands), stacks)

    def stacked(self, operands: Sequence[Any]) -> list[Any]:
        """Record the operator that gives what every step gives, of a loop without a gradient."""
        bodies, recorder = self.bodies, self.recorder
        init, others = self._given(operands)
        with _new_symbols(recorder) as shapes:
            length = shapes.create_unbacked_symint()
        torch._check(length >= 1)
        stacks = [calls.like(recorder, fake, (length,)) for fake in bodies.steps.results()]
        return calls.record(recorder, _STACK, (bodies.asks.module, bodies.steps.module, tuple(init), others), stacks)

    def _count(self, number: int) -> torch.Tensor:
        made: torch.Tensor = self.recorder.call(aten.full.default, [], number, dtype=torch.int64, device="cpu")
        return made

    def backward(self, kept: list[Any], tangents: Sequence[Any]) -> list[Any]:
        """As `Call` defines it."""
        recorder, made = self.recorder, self.bodies.back
        assert made is not None
        count, stacks, operands = kept[0], kept[1 : 1 + len(made.apart)], kept[1 + len(made.apart) :]
        fakes = made.graphed.values()
        gradients = [calls.tangent_of(recorder, tangents[key.what], fakes[key]) for key in made.carries]
        sums = [calls.zeros(recorder, fakes[key]) for key in made.sums]
        alike = [calls.operand_of(recorder, key, operands) for key in made.alike]
        stacked = {key: calls.like(recorder, stack) for key, stack in zip(made.apart, stacks)}
        with calls.apart(recorder):
            asks, steps = _asking_back(made, stacked), _stepping_back(made, stacked)
        args = (asks.module, steps.module, (count, *gradients, *sums), (*stacks, *alike))
        _, *grads = calls.record(recorder, _WHILE, args, steps.results())
        return calls.by_place(made.graphed.gives, grads, self.operands)


def _number_of(recorder: Recorder, count: torch.Tensor) -> torch.SymInt:
    """A number that nothing before the loop tells."""
    with _new_symbols(recorder):
        number: torch.SymInt = recorder.call(aten._local_scalar_dense.default, count)
    torch._check(number >= 1)
    return number


@contextmanager
def _new_symbols(recorder: Recorder) -> Iterator[ShapeEnv]:
    """Inside, symbols are made that nothing but the loop tells."""
    mode = recorder.fake_mode
    if mode.shape_env is None:
        mode.shape_env = ShapeEnv()
    with mode.shape_env.ignore_fresh_unbacked_symbols():
        yield mode.shape_env
