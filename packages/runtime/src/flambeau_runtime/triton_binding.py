"""Triton kernels of an artifact as functions that an executor calls: on a GPU from cubins, elsewhere interpreted.

In: the artifact's Triton libraries and kernels, whose ``meta`` has ``signature`` (parameter -> type text, tensors then
scalars), ``constexprs``, ``divisible``, ``num_warps`` and ``num_stages``. Out: ``KernelFunction``s by kernel number.
"""

from __future__ import annotations

from typing import Any

import torch
from attrs import frozen

from . import artifact as a
from .accelerators import accelerator_of
from .cache import Store
from .executor_py import KernelFunction
from .triton_kernels import launch_arguments, run_interpreted


def bind_triton(artifact: a.Artifact, store: Store) -> dict[int, KernelFunction]:
    """A function for every Triton kernel, by kernel number; for a program on a GPU all are compiled here, at once."""
    numbers = [n for n, k in enumerate(artifact.kernels) if artifact.libraries[k.library].language == "triton"]
    if numbers and _uses_gpu(artifact):
        # Only a program on a GPU imports what talks to the driver.
        from .device.kernels import bind_kernels

        return dict(bind_kernels(artifact, store))
    return {n: _Interpreted(artifact.libraries[artifact.kernels[n].library].text, artifact.kernels[n]) for n in numbers}


def _uses_gpu(artifact: a.Artifact) -> bool:
    return bool(artifact.program.devices) or any(accelerator_of(spec.device) for spec in artifact.constants)


def start_compiling(artifact: a.Artifact, store: Store) -> None:
    """Have the Triton kernels of a program for a GPU compiled in the background, where there is one."""
    if artifact.program.devices and torch.cuda.is_available():
        # Only a program on a GPU imports what compiles for it.
        from .device import kernels

        kernels.start_compiling(artifact, store)


@frozen
class _Interpreted:
    """One kernel whose tensors are on the CPU: Triton's interpreter runs it."""

    source: str
    kernel: a.Kernel

    def __call__(self, tensors: list[torch.Tensor], scalars: list[Any], grid: Any, extent: int) -> int:
        arguments = launch_arguments(self.kernel.meta, tensors, scalars)
        run_interpreted(self.source, self.kernel.entry, grid or (extent, 1, 1), arguments)
        return 0
