"""The CUDA driver, through ctypes: load a cubin, launch a kernel. The Python twin of ``csrc/cuda.cpp``.

In: a ``Cubin``, a grid, tensors and scalars. Out: a kernel on the current stream.
Nothing is loaded at import; ``Driver.get()`` opens ``libcuda.so.1`` when a kernel is first loaded.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import torch
from attrs import frozen

from flambeau_runtime.config import Config
from flambeau_runtime.triton_kernels import Cubin

#: What a pointer or number promised as divisible is a multiple of.
ALIGNMENT = 16
#: Kernels may use this much dynamic shared memory without asking for more.
DEFAULT_SHARED = 48 * 1024
THREADS_PER_WARP = 32

_MAX_DYNAMIC_SHARED = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
_CAPTURE_RELAXED = 2  # CU_STREAM_CAPTURE_MODE_RELAXED

#: Triton's type text of a scalar parameter -> struct format. ``CudaKernel::pack`` has the same table.
FORMATS = {
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
            return Driver(ctypes.CDLL(Config.from_environment().cuda_driver))
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

    def enter(self, ordinal: int) -> None:
        """Make the device's context current: a thread that has called nothing of CUDA yet has none."""
        device, context = ctypes.c_int(), ctypes.c_void_p()
        self.call("cuDeviceGet", ctypes.byref(device), ordinal)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self.call("cuCtxSetCurrent", context)


@frozen(eq=False)
class Function:
    """A loaded kernel: its driver handle, the module that owns it, and the cubin it came from."""

    handle: ctypes.c_void_p
    module: ctypes.c_void_p
    cubin: Cubin
    types: tuple[str, ...]
    ordinal: int

    def launch(self, grid: tuple[int, int, int], args: Sequence[Any], stream: int | None = None) -> None:
        """Queue the kernel; ``args`` are tensors and numbers in signature order. An empty grid launches nothing."""
        if 0 in grid:
            return
        packed = [pack(value, kind) for value, kind in zip(args, self.types, strict=True)]
        scratch = [_scratch(self.cubin.global_scratch, grid), _scratch(self.cubin.profile_scratch, grid)]
        packed += [pack(0 if s is None else s.data_ptr(), "u64") for s in scratch]
        pointers = (ctypes.c_void_p * len(packed))(*(ctypes.addressof(p) for p in packed))
        queue = torch.cuda.current_stream().cuda_stream if stream is None else stream
        threads = THREADS_PER_WARP * self.cubin.num_warps
        driver = Driver.get()
        driver.enter(self.ordinal)
        driver.call(
            "cuLaunchKernel", self.handle, *grid, threads, 1, 1, self.cubin.shared,
            ctypes.c_void_p(queue), pointers, None,
        )  # fmt: skip


def load_cubin(cubin: Cubin, types: Sequence[str], ordinal: int) -> Function:
    """Load on the device ``ordinal``. ``types`` are the texts of the signature, in order. Raises ``CudaError``."""
    handle, module = load_image(cubin.binary, cubin.name, ordinal)
    if cubin.shared > DEFAULT_SHARED:
        Driver.get().call("cuFuncSetAttribute", handle, _MAX_DYNAMIC_SHARED, cubin.shared)
    return Function(handle, module, cubin, tuple(types), ordinal)


def load_image(image: bytes, name: str, ordinal: int) -> tuple[ctypes.c_void_p, ctypes.c_void_p]:
    """The function ``name`` of a cubin or of PTX, and its module. Raises ``CudaError``."""
    torch.cuda.init()
    driver = Driver.get()
    driver.enter(ordinal)
    module, handle = ctypes.c_void_p(), ctypes.c_void_p()
    with _relaxed(driver):
        driver.call("cuModuleLoadData", ctypes.byref(module), image)
        driver.call("cuModuleGetFunction", ctypes.byref(handle), module, name.encode())
    return handle, module


@contextmanager
def _relaxed(driver: Driver) -> Iterator[None]:
    """Loading may allocate, which a stream that is being recorded forbids to everybody; kernels are no part of the recording."""
    mode = ctypes.c_int(_CAPTURE_RELAXED)
    driver.call("cuThreadExchangeStreamCaptureMode", ctypes.byref(mode))
    try:
        yield
    finally:
        driver.call("cuThreadExchangeStreamCaptureMode", ctypes.byref(mode))


def pack(value: Any, kind: str) -> Any:
    """One argument as the bytes that a kernel reads. Raises ``OverflowError`` where its type cannot hold it."""
    if isinstance(value, torch.Tensor):
        return ctypes.c_uint64(value.data_ptr())
    if kind.startswith("*"):
        return ctypes.c_uint64(int(value))
    letter = FORMATS[kind]
    try:
        data = struct.pack(letter, float(value) if letter in "fd" else int(value))
    except struct.error:
        raise OverflowError("a kernel argument does not fit into its type") from None
    return ctypes.create_string_buffer(data, len(data))


def _scratch(size: int, grid: tuple[int, int, int]) -> torch.Tensor | None:
    if size == 0:
        return None
    return torch.empty(size * grid[0] * grid[1] * grid[2], dtype=torch.uint8, device="cuda")
