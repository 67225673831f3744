"""Types of the native extension."""

from collections.abc import Callable
from typing import Any

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
    ) -> Executor: ...
    def __call__(self, *inputs: Any) -> tuple[Any, ...]: ...

def release_idle_memory() -> int: ...
def idle_memory_bytes() -> int: ...
def set_idle_memory_limit(limit: int, /) -> None: ...
def set_cuda_driver(path: str, /) -> None: ...
