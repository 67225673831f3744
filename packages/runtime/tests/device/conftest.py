"""A CUDA device made of host memory: compiled by ``build`` with g++, used through ``FakeCuda``."""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import subprocess
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from flambeau_runtime.native import extension

SOURCE = Path(__file__).with_name("fake_cuda.cpp")


def build() -> Path:
    """The library, compiled once for each content, Python and torch; needs g++."""
    root = Path(torch.__file__).parent
    flags = [
        "-std=c++20", "-O0", "-g0", "-shared", "-fPIC", f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}",
        f"-I{root / 'include'}", f"-I{root / 'include/torch/csrc/api/include'}", f"-I{sysconfig.get_path('include')}",
    ]  # fmt: skip
    facts = f"{SOURCE.read_text()}{flags}{torch.__version__}{sysconfig.get_config_var('EXT_SUFFIX')}"
    folder = SOURCE.parents[2] / "build" / "fake_cuda"
    folder.mkdir(parents=True, exist_ok=True)
    made = folder / f"libfake_cuda-{hashlib.sha256(facts.encode()).hexdigest()[:16]}.so"
    if not made.exists():
        compiler = shutil.which(os.environ.get("CXX", "g++"))
        if compiler is None:
            raise FileNotFoundError("g++")
        partial = made.with_suffix(f".{os.getpid()}.tmp")
        libraries = [f"-L{root / 'lib'}", "-lc10", "-ltorch_cpu", "-ltorch_python"]
        subprocess.run([compiler, *flags, str(SOURCE), "-o", str(partial), *libraries], check=True)
        os.replace(partial, made)
    return made


class FakeCuda:
    """Three devices ``cuda:0`` to ``cuda:2`` while installed; only the native executor can use them."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.library = ctypes.PyDLL(str(path))
        for name in ("fake_events", "fake_to_cuda", "fake_to_cpu"):
            getattr(self.library, name).restype = ctypes.py_object
        self.library.fake_to_cuda.argtypes = [ctypes.py_object, ctypes.c_int]
        self.library.fake_to_cpu.argtypes = [ctypes.py_object]
        self.library.fake_set_stream.argtypes = [ctypes.c_int, ctypes.c_int64]
        self.library.fake_live_blocks.restype = ctypes.c_int64

    def to(self, tensor: torch.Tensor, device: int = 0) -> torch.Tensor:
        """A copy on a fake device, storage offset and strides kept."""
        return self.library.fake_to_cuda(tensor, device)  # type: ignore[no-any-return]

    def back(self, tensor: torch.Tensor) -> torch.Tensor:
        """A copy on the CPU."""
        return self.library.fake_to_cpu(tensor)  # type: ignore[no-any-return]

    def events(self, kind: str = "") -> list[str]:
        """What happened since the last call, one text an event; of one kind where that is given."""
        return [line for line in self.library.fake_events().splitlines() if line.startswith(kind)]


@pytest.fixture(scope="module")
def library() -> Iterator[FakeCuda]:
    """The fake devices in place of torch's and of the driver."""
    if torch.cuda.is_available() or shutil.which(os.environ.get("CXX", "g++")) is None:
        pytest.skip("a real GPU is there, or no g++")
    fake = FakeCuda(build())
    fake.library.fake_install()
    extension().set_cuda_driver(str(fake.path))
    yield fake
    fake.library.fake_uninstall()
    extension().set_cuda_driver("libcuda.so.1")


@pytest.fixture
def fake(library: FakeCuda) -> Iterator[FakeCuda]:
    """The fake devices with an empty list of events; the current device and streams are reset afterwards."""
    library.events()
    yield library
    library.library.fake_set_device(0)
    for device in range(3):
        library.library.fake_set_stream(device, 0)
