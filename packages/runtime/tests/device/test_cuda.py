"""The driver binding, as far as a machine without a GPU can tell."""

from __future__ import annotations

import ctypes
import struct
import subprocess
from pathlib import Path

import pytest
import torch

from flambeau_runtime.device import conditional, cuda


@pytest.mark.parametrize(("value", "kind", "expected"), [
    (7, "i32", struct.pack("<i", 7)), (-1, "i64", struct.pack("<q", -1)), (0.5, "fp32", struct.pack("<f", 0.5)),
    (0.1, "fp64", struct.pack("<d", 0.1)), (True, "i1", b"\x01"), (200, "u8", b"\xc8"),
])  # fmt: skip
def test_scalars_are_packed_as_the_kernel_reads_them(value: float, kind: str, expected: bytes) -> None:
    """Each type of Triton's signature has its width and representation."""
    packed = cuda.pack(value, kind)
    assert ctypes.string_at(ctypes.addressof(packed), ctypes.sizeof(packed)) == expected


def test_a_tensor_is_its_address() -> None:
    """A pointer parameter is the data pointer, storage offset included."""
    tensor = torch.zeros(8)[3:]
    assert cuda.pack(tensor, "*fp32").value == tensor.data_ptr()


def test_the_kernel_that_decides_assembles(tmp_path: Path) -> None:
    """On this machine with the assembler that Triton brings; what it calls is linked by the driver."""
    triton = pytest.importorskip("triton", reason="the assembler comes with Triton")
    (assembler,) = (Path(triton.__file__).parent / "backends" / "nvidia" / "bin").glob("ptxas")
    source = tmp_path / "decide.ptx"
    source.write_bytes(conditional.KERNEL)
    command = [assembler, "-c", "-arch", "sm_90", source, "-o", tmp_path / "decide.cubin"]
    made = subprocess.run(command, capture_output=True, text=True)
    assert made.returncode == 0, made.stdout + made.stderr


@pytest.mark.parametrize(("structure", "size"), [(conditional._NodeParams, 256), (conditional._Conditional, 32)])
def test_structures_have_the_driver_s_sizes(structure: type, size: int) -> None:
    """As in cuda.h: 16 bytes of head, a union of 29 words, one word behind it."""
    assert ctypes.sizeof(structure) == size


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a GPU")
def test_no_driver_is_a_clear_error() -> None:
    """Without libcuda, the first use says so."""
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        with pytest.raises(cuda.CudaError, match="driver library"):
            cuda.Driver.get()
