"""A lowered graph to an artifact with Triton kernels, or with both languages where devices are mixed.

In: ``Graph``. Out: ``BuiltProgram``. Kernels on a GPU are Triton; those on a CPU are C++, or Triton too when ``cpu_backend`` is
``"triton"``: the Python executor then runs them under Triton's interpreter, which checks the GPU path without a GPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from attrs import evolve

from flambeau_runtime.artifact import Artifact, Launch, Library

from ..codegen import cpp, triton
from ..codegen.kernel import GeneratedKernel
from ..ir.graph import Graph
from ..ir.kernel import KernelBody
from ..schedule import schedule
from .build import BuiltProgram, build
from .memory import share_memory


def compile_mixed(
    graph: Graph, *, fuse: bool = True, cpu_backend: str = "cpp", meta: dict[str, Any] | None = None
) -> BuiltProgram:
    """Schedule ``graph``, write its kernels, one library per language, and assemble the program."""
    plan = share_memory(graph, schedule(graph, fuse=fuse))
    bodies = [step for step in plan.steps if isinstance(step, KernelBody)]
    libraries, kernels = generate_kernels(bodies, cpu_backend)
    built = build(graph, plan, kernels, libraries, meta)
    return evolve(built, artifact=with_grids(built.artifact))


def generate_kernels(
    bodies: Sequence[KernelBody], cpu_backend: str = "cpp"
) -> tuple[tuple[Library, ...], dict[str, tuple[int, GeneratedKernel]]]:
    """Libraries, and for each body's name its library and kernel."""
    on_gpu = [body for body in bodies if body.device.type != "cpu" or cpu_backend == "triton"]
    on_cpu = [body for body in bodies if body.device.type == "cpu" and cpu_backend != "triton"]
    libraries: list[Library] = []
    kernels: dict[str, tuple[int, GeneratedKernel]] = {}
    if on_cpu:
        generated = cpp.generate(on_cpu)
        kernels |= {body.name: (len(libraries), kernel) for body, kernel in zip(on_cpu, generated, strict=True)}
        libraries.append(Library("kernels", "cpp", cpp.translation_unit(generated), cpp.FLAGS))
    if on_gpu:
        generated = triton.generate(on_gpu)
        kernels |= {body.name: (len(libraries), kernel) for body, kernel in zip(on_gpu, generated, strict=True)}
        libraries.append(Library("triton_kernels", "triton", triton.translation_unit(generated), triton.FLAGS))
    return tuple(libraries), kernels


def with_grids(artifact: Artifact) -> Artifact:
    """The artifact with a grid on every launch of a Triton kernel: as many programs as its extent says."""
    languages = [artifact.libraries[kernel.library].language for kernel in artifact.kernels]
    instructions = tuple(
        evolve(i, grid=(i.extent, 1, 1)) if isinstance(i, Launch) and languages[i.kernel] == "triton" else i
        for i in artifact.program.instructions
    )
    return evolve(artifact, program=evolve(artifact.program, instructions=instructions))
