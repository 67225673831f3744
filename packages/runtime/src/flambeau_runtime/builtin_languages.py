"""C++ and Triton, registered.

In: nothing. Out: ``CPP`` and ``TRITON``. What runs Triton kernels is imported for the first program that has some.
"""

from __future__ import annotations

from collections.abc import Mapping

from .artifact import Artifact
from .cache import Store
from .executor_py import KernelFunction
from .languages import Language, register


def _bind_triton(artifact: Artifact, store: Store) -> Mapping[int, KernelFunction]:
    from .triton_binding import bind_triton

    return bind_triton(artifact, store)


def _start_triton(artifact: Artifact, store: Store) -> None:
    from .triton_binding import start_compiling

    start_compiling(artifact, store)


CPP = register(Language(name="cpp"))
TRITON = register(Language(name="triton", bind=_bind_triton, start=_start_triton))
