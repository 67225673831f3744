"""Types of the native extension."""

from collections.abc import Callable
from typing import Any

import torch

TORCH_VERSION: str

class Executor:
    """A decoded program; ``native.py`` makes the arguments from an artifact."""

    def __new__(
        cls,
        program: tuple[Any, ...],
        kernels: tuple[Any, ...],
        constants: tuple[Any, ...],
        misfit: Callable[[int, Any, tuple[Any, ...], tuple[int | None, ...]], Any],
        describe: Callable[[int, int], str],
        count: Callable[[int], None],
        ranges: Callable[[int], tuple[Any, tuple[Any, ...]]],
    ) -> Executor: ...
    def __call__(self, *inputs: Any) -> tuple[Any, ...]: ...
    def take(self, inputs: list[Any], /) -> tuple[Any, ...]: ...

class Lane:
    """Recordings that share scratch memory; ``graphs/table_py.py`` has its twin."""

    stream: int
    running: bool
    def __new__(cls, stream: int) -> Lane: ...

class RecordingTable:
    """The recordings of one program; ``graphs/table_py.py`` is its twin. ``stream=None``: torch's current CUDA stream."""

    running: bool
    def __new__(
        cls,
        inputs: int,
        miss: Callable[..., tuple[Any, ...]],
        blocked: Callable[[], Any],
        stream: Callable[[], int] | None,
        follow: Callable[[int], None],
    ) -> RecordingTable: ...
    def __call__(self, *inputs: Any) -> tuple[Any, ...]: ...
    def add(self, recording: Any, /) -> None: ...
    def remove(self, recording: Any, /) -> None: ...
    def held(self, recording: Any, /) -> tuple[int, ...]: ...
    def play(self, recording: Any, inputs: tuple[Any, ...], /) -> tuple[Any, ...] | None: ...

def release_idle_memory() -> int: ...
def release_memory(tensor: torch.Tensor, message: str, /) -> None: ...
def idle_memory_bytes() -> int: ...
def set_idle_memory_limit(limit: int, /) -> None: ...
def set_cuda_driver(path: str, /) -> None: ...
