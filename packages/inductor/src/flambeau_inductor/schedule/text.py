"""Schedules as text, for people, dumps and golden tests."""

from __future__ import annotations

from collections.abc import Iterable

from ..ir.kernel import Combined, Gemm, KernelBody
from ..ir.text import gemm_text, kernel_text, operation_text
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


def launches_text(plans: Iterable[Schedule]) -> str:
    """Kernels whose launch was measured, and how that is."""
    steps = (step for plan in plans for step in plan.steps if isinstance(step, KernelBody) and step.launch is not None)
    return "".join(f"{step.name}: {step.launch}\n" for step in steps)
