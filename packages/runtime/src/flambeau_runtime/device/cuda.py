"""The CUDA driver, through ctypes: load a cubin, launch a kernel. The Python twin of the native launcher.

In: a ``Cubin``, a grid, tensors and scalars. Out: a kernel on the current stream.
Nothing is loaded at import; ``Driver.get()`` opens ``libcuda.so.1`` when a kernel is first loaded.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import torch
from attrs import evolve, frozen

from flambeau_runtime.artifact import Artifact
from flambeau_runtime.cache import Store
from flambeau_runtime.triton_kernels import CompileRequest, Cubin, compile_stored, kernel_requests

#: ``(tensors, scalars, grid, extent) -> status``.
KernelFunction = Callable[[list[torch.Tensor], list[Any], Any, int], int]
_ALIGNMENT = 16

_MAX_DYNAMIC_SHARED = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
#: Kernels may use this much dynamic shared memory without asking for more.
_DEFAULT_SHARED = 48 * 1024

#: Triton's type text of a scalar parameter -> struct format.
_FORMATS = {
    "i1": "b", "i8": "b", "i16": "h", "i32": "i", "i64": "q",
    "u1": "B", "u8": "B", "u16": "H", "u32": "I", "u64": "Q",
    "fp32": "f", "f32": "f", "fp64": "d", "f64": "d",
}  # fmt: skip


class CudaError(RuntimeError):
    """A CUDA driver call failed; the message names the call and the driver's words."""


class Driver:
    """``libcuda``: the calls this module needs, each checked."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library

    @staticmethod
    @lru_cache(maxsize=1)
    def get() -> Driver:
        """The driver of this process. Raises ``CudaError`` where there is none."""
        try:
            return Driver(ctypes.CDLL("libcuda.so.1"))
        except OSError as error:
            raise CudaError(f"the CUDA driver library could not be opened: {error}") from error

    def call(self, name: str, *args: Any) -> None:
        """Call ``name``; raises ``CudaError`` unless it returns 0."""
        status = getattr(self._library, name)(*args)
        if status == 0:
            return
        text = ctypes.c_char_p()
        self._library.cuGetErrorString(status, ctypes.byref(text))
        words = text.value.decode() if text.value else "unknown error"
        raise CudaError(f"{name} failed with {status}: {words}")


@frozen(eq=False)
class Function:
    """A loaded kernel: its driver handle, the module that owns it, and the cubin it came from."""

    handle: ctypes.c_void_p
    module: ctypes.c_void_p
    cubin: Cubin
    types: tuple[str, ...]

    def launch(self, grid: tuple[int, int, int], args: Sequence[Any], stream: int | None = None) -> None:
        """Queue the kernel; ``args`` are tensors and numbers in signature order. An empty grid launches nothing."""
        if 0 in grid:
            return
        packed = [_pack(value, kind) for value, kind in zip(args, self.types, strict=True)]
        scratch = [_scratch(self.cubin.global_scratch, grid), _scratch(self.cubin.profile_scratch, grid)]
        packed += [_pack(0 if s is None else s.data_ptr(), "i64") for s in scratch]
        pointers = (ctypes.c_void_p * len(packed))(*(ctypes.addressof(p) for p in packed))
        queue = torch.cuda.current_stream().cuda_stream if stream is None else stream
        threads = 32 * self.cubin.num_warps
        Driver.get().call(
            "cuLaunchKernel", self.handle, *grid, threads, 1, 1, self.cubin.shared,
            ctypes.c_void_p(queue), pointers, None,
        )  # fmt: skip


def bind_kernels(artifact: Artifact, store: Store) -> dict[str, KernelFunction]:
    """Every Triton kernel of ``artifact``, compiled together for the current device and loaded, by entry.

    A function takes ``(tensors, scalars, grid, extent)`` and gives status 0. A tensor that does not start at a multiple of 16
    bytes, where the kernel was promised that, goes to a second version of the kernel without the promise.
    """
    major, minor = torch.cuda.get_device_capability()
    requests = kernel_requests(artifact, 10 * major + minor)
    cubins = compile_stored(requests, store)
    return {
        r.entry: _bind(r, load_cubin(c, list(r.signature.values())), store)
        for r, c in zip(requests, cubins, strict=True)
    }


def _bind(request: CompileRequest, function: Function, store: Store) -> KernelFunction:
    promised = [n for n, name in enumerate(request.signature) if name in request.divisible]
    plain: list[Function] = []

    def unaligned() -> Function:
        if not plain:
            (cubin,) = compile_stored([evolve(request, divisible=())], store)
            plain.append(load_cubin(cubin, function.types))
        return plain[0]

    def run(tensors: list[torch.Tensor], scalars: list[Any], grid: Any, extent: int) -> int:
        aligned = all(tensors[n].data_ptr() % _ALIGNMENT == 0 for n in promised)
        (function if aligned else unaligned()).launch(grid or (extent, 1, 1), [*tensors, *scalars])
        return 0

    return run


def load_cubin(cubin: Cubin, types: Sequence[str]) -> Function:
    """Load into the current context. ``types`` are the texts of the signature, in order. Raises ``CudaError``."""
    torch.cuda.current_stream()  # makes sure that torch has made the device's context current
    driver = Driver.get()
    module, handle = ctypes.c_void_p(), ctypes.c_void_p()
    driver.call("cuModuleLoadData", ctypes.byref(module), cubin.binary)
    driver.call("cuModuleGetFunction", ctypes.byref(handle), module, cubin.name.encode())
    if cubin.shared > _DEFAULT_SHARED:
        driver.call("cuFuncSetAttribute", handle, _MAX_DYNAMIC_SHARED, cubin.shared)
    return Function(handle, module, cubin, tuple(types))


def _pack(value: Any, kind: str) -> Any:
    if isinstance(value, torch.Tensor):
        return ctypes.c_uint64(value.data_ptr())
    if kind.startswith("*"):
        return ctypes.c_uint64(int(value))
    data = struct.pack(_FORMATS[kind], value)
    return ctypes.create_string_buffer(data, len(data))


def _scratch(size: int, grid: tuple[int, int, int]) -> torch.Tensor | None:
    if size == 0:
        return None
    return torch.empty(size * grid[0] * grid[1] * grid[2], dtype=torch.uint8, device="cuda")
