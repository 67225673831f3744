"""Whether a program that raises leaves its inputs as they were.

In: a graph and its schedule. Out: yes or no. A caller that may run the graph again in eager wants to know.
"""

from __future__ import annotations

from ..effects import divides, may_fail, writes_last
from ..ir.graph import Graph, TensorInput
from ..ir.kernel import Combined, Gemm, KernelBody
from ..schedule import Schedule, Step
from ..schedule.nest import values
from ..schedule.steps import step_writes


def writes_inputs_last(graph: Graph, plan: Schedule) -> bool:
    """Whether no step that may raise for values comes after the first write to an input."""
    steps = ((step_writes(step), _may_fail(step)) for step in plan.steps)
    return writes_last(steps, plan.buffers, {i.buffer.name for i in graph.inputs if isinstance(i, TensorInput)})


def _may_fail(step: Step) -> bool:
    if isinstance(step, Combined):
        return any(map(_may_fail, step.bodies))
    if isinstance(step, Gemm):
        return _may_fail(step.body)
    if isinstance(step, KernelBody):
        return divides(*(value for statement in step.statements for value in values(statement)))
    return may_fail(step)
