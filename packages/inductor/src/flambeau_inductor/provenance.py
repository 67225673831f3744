"""Where loops and kernels come from, and how kernels hang together, as plain data for reports.

In: a lowered graph; schedules. Out: names and numbers only.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torch import fx

from .ir.graph import Graph
from .ir.kernel import Combined, Gemm, KernelBody
from .ir.loops import Extern, ReadItem, Template, written
from .schedule import Schedule, Step
from .schedule.steps import step_reads, step_writes


def origins_of(graph: Graph) -> dict[str, list[str]]:
    """Buffer -> the nodes that the loop or call which fills it computes, those of nested graphs included."""
    found: dict[str, list[str]] = {}
    for part in (*graph.bodies.values(), graph):
        for operation in part.operations:
            for out in written(operation):
                found.setdefault(out.name, []).extend(operation.origins)
    return found


def positions_of(gm: fx.GraphModule) -> dict[str, list[list[Any]]]:
    """Node -> the user's positions, `[file, line, function]`, the outermost first; nodes of nested graphs included."""
    found: dict[str, list[list[Any]]] = {}
    for module in gm.modules():
        for node in module.graph.nodes if isinstance(module, fx.GraphModule) else ():
            if node.op == "call_function" and node.meta.get("stack"):
                found[node.name] = [list(position[:3]) for position in node.meta["stack"]]
    return found


def steps_of(plans: Iterable[Schedule]) -> list[dict[str, Any]]:
    """Kernels and library calls in running order: `name`, `kind`, `loops` (the buffers it fills), `origins`, `reads`, `writes`, `plan`."""
    rows = []
    for number, plan in enumerate(plans):
        for at, step in enumerate(plan.steps):
            rows.append(
                {
                    "name": _name(step, at),
                    "kind": _kind(step),
                    "plan": number,
                    "origins": list(dict.fromkeys(_origins(step))),
                    "reads": sorted(step_reads(step)),
                    "writes": sorted(step_writes(step)),
                }
            )
    return rows


def _name(step: Step, at: int) -> str:
    if isinstance(step, Extern):
        return f"{step.op}"
    return str(getattr(step, "name", "")) or f"{type(step).__name__.lower()} {at}"


def _kind(step: Step) -> str:
    kinds = {
        Combined: "several kernels",
        Gemm: "product",
        KernelBody: "kernel",
        Template: "template",
        Extern: "library call",
        ReadItem: "read",
    }
    return kinds.get(type(step), "check")


def _origins(step: Step) -> Iterable[str]:
    if isinstance(step, Combined):
        return (origin for body in step.bodies for origin in body.origins)
    return getattr(step, "origins", ())
