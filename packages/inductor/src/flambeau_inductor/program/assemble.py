"""A lowered graph all the way to an artifact: schedule, share memory, generate kernels, build the program.

In: ``Graph``. Out: ``BuiltProgram``: an artifact whose libraries hold sources only, and the constants that ``load`` needs.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import chain
from typing import Any

from flambeau_runtime.artifact import Library

from ..codegen import cpp, triton
from ..codegen.kernel import GeneratedKernel
from ..codegen.triton.combine import generate_combined
from ..codegen.triton.templates import generate_templates
from ..effects import divides, may_fail, writes_last
from ..ir.graph import Graph, TensorInput
from ..ir.kernel import Combined, KernelBody
from ..ir.loops import Template
from ..ir.text import kernel_text, operation_text
from ..log import KERNEL_BODIES, Text, logger
from ..schedule import Step, schedule
from ..schedule.combine import combine, target_of
from ..schedule.merge import MOST_BUFFERS, MOST_LOOPS
from ..schedule.nest import values
from ..schedule.plan import Schedule
from .build import BuiltProgram, build
from .memory import share_memory, step_writes

_TARGETS = {"cpp": cpp, "triton": triton}


def assemble(
    graph: Graph,
    *,
    fuse: bool = True,
    cpu_target: str = "cpp",
    reuse: bool = True,
    in_place: bool = True,
    size_asserts: bool = True,
    most_buffers: int = MOST_BUFFERS,
    most_loops: int = MOST_LOOPS,
    meta: dict[str, Any] | None = None,
) -> BuiltProgram:
    """Compile ``graph`` and its bodies. CPU kernels are written in ``cpu_target`` ("cpp", or "triton" for its interpreter), others in Triton.

    ``reuse=False`` hands no dead buffer's memory on to a later one, ``in_place=False`` lets no kernel write over what it reads;
    with both, every result has memory of its own. A fused kernel touches at most ``most_buffers`` buffers and does the work of at
    most ``most_loops`` loops. ``size_asserts=False`` trusts library calls to return what was predicted.
    The artifact's ``meta["writes_last"]`` says that no step that may raise for values comes after the first write to an input.
    Raises ``codegen.triton.UnsupportedKernel`` for a body that Triton cannot express.
    """
    names: set[str] = set()

    def planned(part: Graph) -> Schedule:
        plan = schedule(part, fuse=fuse, most_buffers=most_buffers, most_loops=most_loops, names=names)
        if in_place:
            plan = share_memory(part, plan)
        return combine(plan, cpu_target) if fuse else plan

    bodies = {name: planned(body) for name, body in graph.bodies.items()}
    plan = planned(graph)
    logger.debug(KERNEL_BODIES, artifact="ir_post_fusion", text=Text(partial(_plans_text, (*bodies.values(), plan))))
    by_target: dict[str, list[KernelBody | Combined | Template]] = {}
    for step in chain.from_iterable(part.steps for part in (*bodies.values(), plan)):
        if isinstance(step, KernelBody | Combined | Template):
            by_target.setdefault(target_of(step, cpu_target), []).append(step)
    libraries: list[Library] = []
    kernels: dict[str, tuple[int, GeneratedKernel]] = {}
    for target, chosen in by_target.items():
        generated = _generate(target, chosen)
        unit = _TARGETS[target]
        libraries.append(Library(f"kernels_{target}", target, unit.translation_unit(generated), unit.FLAGS))
        for body, kernel in zip(chosen, generated, strict=True):
            kernels[body.name] = (len(libraries) - 1, kernel)
    told = {**(meta or {}), "writes_last": _writes_last(graph, plan)}
    return build(graph, plan, kernels, libraries, told, bodies=bodies, reuse=reuse, size_asserts=size_asserts)


def _writes_last(graph: Graph, plan: Schedule) -> bool:
    steps = ((step_writes(step), _may_fail(step)) for step in plan.steps)
    return writes_last(steps, plan.buffers, {i.buffer.name for i in graph.inputs if isinstance(i, TensorInput)})


def _may_fail(step: Step) -> bool:
    if isinstance(step, Combined):
        return any(map(_may_fail, step.bodies))
    if isinstance(step, KernelBody):
        return divides(*(value for statement in step.statements for value in values(statement)))
    return may_fail(step)


def _plans_text(plans: Sequence[Schedule]) -> str:
    """Kernels and library calls in running order, those of bodies first."""
    texts: list[str] = []
    for step in chain.from_iterable(plan.steps for plan in plans):
        if isinstance(step, Combined):
            texts += [f"launched as one: {step.name}", *map(kernel_text, step.bodies)]
        else:
            texts.append(kernel_text(step) if isinstance(step, KernelBody) else operation_text(step))
    return "\n".join(texts) + "\n"


def _generate(target: str, bodies: Sequence[KernelBody | Combined | Template]) -> list[GeneratedKernel]:
    """One generated kernel for each body, in order."""
    single = iter(_TARGETS[target].generate([body for body in bodies if isinstance(body, KernelBody)]))
    several = iter(generate_combined([body for body in bodies if isinstance(body, Combined)]))
    templates = iter(generate_templates([body for body in bodies if isinstance(body, Template)]))
    sources = {KernelBody: single, Combined: several, Template: templates}
    return [next(sources[type(body)]) for body in bodies]
