"""The Triton kernels of a program on a GPU: compiled together while the program is made, loaded where one is first launched.

In: an artifact. Out: ``GpuKernel``s by number. The native executor takes what ``native`` and ``image`` of one give and launches
by itself; the Python executor calls it.
"""

from __future__ import annotations

import hashlib
import threading
from concurrent.futures import Future
from typing import Any

import torch
from attrs import evolve, field, frozen

from flambeau_runtime.accelerators import CUDA, stands_in
from flambeau_runtime.artifact import Artifact
from flambeau_runtime.cache import Store
from flambeau_runtime.device.cuda import ALIGNMENT, THREADS_PER_WARP, Function, load_cubin
from flambeau_runtime.triton_kernels import CompileRequest, Cubin, kernel_requests, submit_stored

#: What the native executor needs to load a kernel: key, cubin, name, threads, shared memory, the two kinds of scratch memory, and whether
#: it may be launched early.
Image = tuple[str, bytes, str, int, int, int, int, bool]


def capability(ordinal: int | None = None) -> int:
    """Compute capability of a device (90 is sm_90), of the current one by default."""
    major, minor = torch.cuda.get_device_capability(ordinal)
    return 10 * major + minor


@frozen(eq=False)
class GpuKernel:
    """One kernel: with the promises of its signature and, compiled when a call breaks them, without."""

    request: CompileRequest
    store: Store
    _cubins: dict[tuple[bool, int], Future[Cubin]] = field(factory=dict)
    _loaded: dict[tuple[bool, int], Function] = field(factory=dict)
    _lock: threading.Lock = field(factory=threading.Lock)

    @property
    def types(self) -> tuple[str, ...]:
        """Triton's type texts of the parameters, tensors first."""
        return tuple(self.request.signature.values())

    @property
    def divisible(self) -> tuple[bool, ...]:
        """Which parameters are promised to be multiples of 16."""
        return tuple(name in self.request.divisible for name in self.request.signature)

    @property
    def native(self) -> tuple[Any, ...]:
        """The kernel as the extension decodes it."""
        return (self.types, self.divisible, self.image)

    def expect(self, cubin: Future[Cubin]) -> None:
        """``cubin`` is what compiling ``request`` gives."""
        self._cubins[True, self.request.arch] = cubin

    def cubin(self, divisible: bool, arch: int) -> Cubin:
        """The compiled kernel for an architecture; waits for it. Raises ``TritonCompileError``."""
        with self._lock:
            found = self._cubins.get((divisible, arch))
            if found is None:
                request = self.request if divisible else self.request.without_promises()
                (found,) = submit_stored([evolve(request, arch=arch)], self.store)
                self._cubins[divisible, arch] = found
        return found.result()

    def image(self, divisible: bool, ordinal: int) -> Image:
        """What the extension loads on the device ``ordinal``."""
        cubin = self.cubin(divisible, capability(ordinal))
        threads = THREADS_PER_WARP * cubin.num_warps
        facts = (cubin.name, threads, cubin.shared, cubin.global_scratch, cubin.profile_scratch, cubin.waits)
        key = hashlib.sha256(repr(facts).encode() + cubin.binary).hexdigest()
        return (key, cubin.binary, *facts)

    def __call__(self, tensors: list[torch.Tensor], scalars: list[Any], grid: Any, extent: int) -> int:
        """The Python twin of a native launch."""
        device = next(t.device for t in tensors if t.device.type == CUDA.type)
        # A library call may leave a one-element result on the CPU.
        tensors = [t.to(device) if stands_in(device, t) else t for t in tensors]
        values = [*(t.data_ptr() for t in tensors), *scalars]
        divisible = all(int(v) % ALIGNMENT == 0 for v, promised in zip(values, self.divisible) if promised)
        with torch.cuda.device(device):
            self._function(divisible, device.index).launch(grid or (extent, 1, 1), [*tensors, *scalars])
        return 0

    def _function(self, divisible: bool, ordinal: int) -> Function:
        found = self._loaded.get((divisible, ordinal))
        if found is None:
            found = load_cubin(self.cubin(divisible, capability(ordinal)), self.types, ordinal)
            self._loaded[divisible, ordinal] = found
        return found


def start_compiling(artifact: Artifact, store: Store) -> None:
    """Have the Triton kernels of ``artifact`` compiled for the current device; ``bind_kernels`` finds them done or under way."""
    submit_stored(kernel_requests(artifact, capability()), store)


def bind_kernels(artifact: Artifact, store: Store) -> dict[int, GpuKernel]:
    """Every Triton kernel of ``artifact`` by number. All are being compiled for the current device; a launch waits for its own."""
    numbers = [n for n, k in enumerate(artifact.kernels) if artifact.libraries[k.library].language == "triton"]
    requests = kernel_requests(artifact, capability())
    kernels = {}
    for number, request, cubin in zip(numbers, requests, submit_stored(requests, store), strict=True):
        kernels[number] = GpuKernel(request, store)
        kernels[number].expect(cubin)
    return kernels
