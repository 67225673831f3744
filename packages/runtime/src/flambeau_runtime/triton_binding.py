"""Triton kernels of an artifact as functions that an executor calls: on a GPU from cubins, elsewhere interpreted.

In: the artifact's Triton libraries and kernels, whose ``meta`` has ``signature`` (parameter -> type text, tensors then
scalars), ``constexprs``, ``divisible``, ``num_warps`` and ``num_stages``. Out: ``KernelFunction``s. Cubins are kept in
the store by source, signature, architecture and Triton's version.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
from typing import Any

import torch
from attrs import asdict, define, field

from . import artifact as a
from .cache import CacheKey, Store
from .executor_py import KernelFunction
from .triton_kernels import CompileRequest, Cubin, compile_kernels, run_interpreted


def bind_triton(artifact: a.Artifact, store: Store) -> dict[int, KernelFunction]:
    """A function for every Triton kernel, by kernel number; with a GPU present all are compiled here, at once."""
    numbers = [n for n, k in enumerate(artifact.kernels) if artifact.libraries[k.library].language == "triton"]
    bound = {
        n: _TritonKernel(artifact.libraries[artifact.kernels[n].library].source, artifact.kernels[n]) for n in numbers
    }
    if bound and _uses_gpu(artifact):
        major, minor = torch.cuda.get_device_capability()
        for number, cubin in _cubins(artifact, numbers, major * 10 + minor, store).items():
            bound[number].cubin = cubin
    return dict(bound)


def _uses_gpu(artifact: a.Artifact) -> bool:
    devices = {spec.device.type for spec in artifact.program.inputs if spec.device is not None}
    devices |= {i.device.type for i in artifact.program.instructions if isinstance(i, a.Alloc)}
    return "cuda" in devices and torch.cuda.is_available()


def _cubins(artifact: a.Artifact, numbers: list[int], arch: int, store: Store) -> dict[int, Cubin]:
    """The cubin of each kernel, from the store or from Triton's compiler."""
    requests, found, missing = {}, {}, []
    for number in numbers:
        kernel = artifact.kernels[number]
        source = artifact.libraries[kernel.library].source
        requests[number] = CompileRequest.from_meta(source, kernel.entry, kernel.meta, arch)
        stored = store.get(_key(requests[number]))
        if stored is None:
            missing.append(number)
        else:
            found[number] = _cubin_from_bytes(stored)
    for number, cubin in zip(missing, compile_kernels([requests[number] for number in missing])):
        store.put(_key(requests[number]), _cubin_to_bytes(cubin))
        found[number] = cubin
    return found


def _key(request: CompileRequest) -> CacheKey:
    arguments = json.dumps(request.arguments(), sort_keys=True, default=str)
    source = hashlib.sha256(request.source.encode()).hexdigest()
    return CacheKey("cubin", {"source": source, "arguments": arguments, "triton": importlib.metadata.version("triton")})


def _cubin_to_bytes(cubin: Cubin) -> bytes:
    facts = asdict(cubin)
    binary = facts.pop("binary")
    return json.dumps(facts).encode() + b"\0" + binary


def _cubin_from_bytes(data: bytes) -> Cubin:
    facts, _, binary = data.partition(b"\0")
    return Cubin(**json.loads(facts), binary=binary)


@define
class _TritonKernel:
    """One kernel; ``cubin`` is None where tensors are on the CPU and Triton's interpreter runs it."""

    source: str
    kernel: a.Kernel
    cubin: Cubin | None = None
    _loaded: dict[int, Any] = field(factory=dict, init=False)

    def __call__(self, tensors: list[torch.Tensor], scalars: list[Any], grid: Any, extent: int) -> int:
        if self.cubin is None:
            names = list(self.kernel.meta["signature"])
            arguments = dict(zip(names, [*tensors, *scalars], strict=True))
            run_interpreted(
                self.source, self.kernel.entry, grid, {**arguments, **self.kernel.meta.get("constexprs", {})}
            )
            return 0
        self._function(self.cubin).launch(grid, [*tensors, *scalars])
        return 0

    def _function(self, cubin: Cubin) -> Any:
        """The kernel loaded into the current device's context, once per device."""
        device = torch.cuda.current_device()
        if device not in self._loaded:
            from .device.cuda import load_cubin

            self._loaded[device] = load_cubin(cubin, list(self.kernel.meta["signature"].values()))
        return self._loaded[device]
