"""Who records the programs of an accelerator.

In: ``register(type, make)``, once for each that can. Out: ``recorder_for(accelerator)``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ..accelerators import CUDA, Accelerator
from .recorder import Recorder

_RECORDERS: dict[str, Callable[[], Recorder]] = {}


def register(kind: str, make: Callable[[], Recorder]) -> None:
    """Have programs on accelerators of this type recorded by what ``make`` gives. Raises ValueError for a type that has somebody."""
    if kind in _RECORDERS:
        raise ValueError(f"a recorder for {kind} is registered twice")
    _RECORDERS[kind] = make


@contextmanager
def registered(kind: str, make: Callable[[], Recorder]) -> Iterator[None]:
    """``register`` for the length of a block."""
    register(kind, make)
    try:
        yield
    finally:
        del _RECORDERS[kind]


def recorder_for(accelerator: Accelerator) -> Recorder | None:
    """A recorder of programs there; None where nothing can be recorded."""
    make = _RECORDERS.get(accelerator.type)
    return None if make is None else make()


def _cuda() -> Recorder:
    # Not at the top: only a program on a GPU needs CUDA's part.
    from .cuda import CudaRecorder

    return CudaRecorder()


register(CUDA.type, _cuda)
