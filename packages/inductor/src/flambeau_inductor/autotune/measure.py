"""Ways to compute a product or a kernel as programs that can be timed.

In: steps of a schedule, the buffers that they use. Out: an artifact of what they read, with operands of the real layouts, each in memory of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from attrs import evolve

from flambeau_runtime import Artifact

from ..codegen.errors import UnsupportedKernel
from ..codegen.generate import generate
from ..config import Config
from ..ir.graph import Graph, TensorInput
from ..ir.kernel import KernelBody
from ..ir.layout import Buffer, Ref
from ..program.build import build
from ..schedule import Schedule, Step
from ..schedule.steps import step_reads, step_writes


def program_of(
    steps: Sequence[Step], buffers: Mapping[str, Buffer], wanted: Sequence[str], config: Config
) -> Artifact | None:
    """``steps`` as a program of what they read, giving ``wanted``; None for a kernel that its language cannot express."""
    steps = [with_own_memory(step) if isinstance(step, KernelBody) else step for step in steps]
    made = {name for step in steps for name in step_writes(step)}
    read = dict.fromkeys(name for step in steps for name in sorted(step_reads(step)) if name not in made)
    own = {name: _alone(buffers[name]) for name in (*read, *sorted(made))}
    inputs = tuple(TensorInput(own[name]) for name in read)
    outputs = tuple(Ref.whole(own[name]) for name in wanted)
    graph = Graph(inputs, (), (), outputs, own)
    plan = Schedule(tuple(steps), own)
    try:
        sources = generate(steps, config)
    except UnsupportedKernel:
        return None
    return build(graph, plan, sources.kernels, sources.libraries).artifact


def with_own_memory(body: KernelBody) -> KernelBody:
    """``body`` with each buffer in memory of its own, whatever it is part of in its program."""
    return evolve(body, buffers=tuple(map(_alone, body.buffers)))


def _alone(buffer: Buffer) -> Buffer:
    return evolve(buffer, storage=buffer.name)
