"""Schedules as text, for people, dumps and golden tests."""

from __future__ import annotations

from collections.abc import Iterable

from ..ir.graph import Graph
from ..ir.kernel import Combined, Gemm, KernelBody
from ..ir.loops import written
from ..ir.text import gemm_text, kernel_text, operation_text
from ..ir.verify import reads_of
from .plan import Schedule


def schedule_text(plan: Schedule) -> str:
    """Kernels and library calls in running order."""
    texts: list[str] = []
    for step in plan.steps:
        if isinstance(step, Combined):
            texts += [f"launched as one: {step.name}", *map(kernel_text, step.bodies)]
        elif isinstance(step, Gemm):
            texts.append(gemm_text(step))
        else:
            texts.append(kernel_text(step) if isinstance(step, KernelBody) else operation_text(step))
    return "".join(f"{text}\n" for text in texts)


def running_order_text(plans: Iterable[Schedule]) -> str:
    """What runs, in order: kernels with the operations in them and the user's lines, calls of the library; bodies first."""
    lines: list[str] = []
    for plan in plans:
        lines += [f"program {len(lines)}:"] if lines else []
        for number, step in enumerate(plan.steps):
            bodies = step.bodies if isinstance(step, Combined) else (step,)
            lines.append(f"{number}: {_kind(step)} {getattr(step, 'name', '')}".rstrip())
            for body in bodies:
                origins = getattr(body, "origins", ())
                lines += [f"     {', '.join(origins)}"] if origins else []
                lines += [f"     {line}" for line in getattr(body, "stacks", ())]
    return "".join(f"{line}\n" for line in lines)


def _kind(step: object) -> str:
    words = {KernelBody: "kernel", Combined: "kernels launched as one:", Gemm: "product"}
    return words.get(type(step), type(step).__name__.lower())


def dependencies_text(graph: Graph) -> str:
    """What each operation reads and writes, before anything is fused."""
    lines = []
    for operation in graph.operations:
        writes = ", ".join(out.name for out in written(operation)) or type(operation).__name__.lower()
        lines.append(f"{writes} <- {', '.join(sorted(reads_of(operation))) or 'nothing'}")
    return "".join(f"{line}\n" for line in lines)


def launches_text(plans: Iterable[Schedule]) -> str:
    """Kernels whose launch was measured, and how that is."""
    steps = (step for plan in plans for step in plan.steps if isinstance(step, KernelBody) and step.launch is not None)
    return "".join(f"{step.name}: {step.launch}\n" for step in steps)
