"""A lowered CPU graph all the way to an artifact: schedule, generate C++, assemble.

In: ``Graph``. Out: ``BuiltProgram``.
"""

from __future__ import annotations

from typing import Any

from flambeau_runtime.artifact import Library

from ..codegen import cpp
from ..ir.graph import Graph
from ..ir.kernel import KernelBody
from ..schedule import schedule
from .build import BuiltProgram, build
from .memory import share_memory


def compile_cpu(graph: Graph, *, fuse: bool = True, meta: dict[str, Any] | None = None) -> BuiltProgram:
    """Schedule ``graph``, write its kernels into one translation unit, and assemble the program."""
    plan = share_memory(graph, schedule(graph, fuse=fuse))
    bodies = [step for step in plan.steps if isinstance(step, KernelBody)]
    generated = cpp.generate(bodies)
    libraries = (Library("kernels", "cpp", cpp.translation_unit(generated), cpp.FLAGS),) if generated else ()
    kernels = {body.name: (0, kernel) for body, kernel in zip(bodies, generated, strict=True)}
    return build(graph, plan, kernels, libraries, meta)
