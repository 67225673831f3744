"""Who records the programs of an accelerator.

In: ``register(type, make)``, once for each that can. Out: ``recorder_for(accelerator)``.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

from ..accelerators import CUDA, Accelerator
from ..registry import Registry
from .recorder import Recorder

_RECORDERS: Registry[str, Callable[[], Recorder]] = Registry("a recorder for")


def register(kind: str, make: Callable[[], Recorder]) -> None:
    """Have programs on accelerators of this type recorded by what ``make`` gives. Raises ValueError for a type that has somebody."""
    _RECORDERS.register(kind, make)


def registered(kind: str, make: Callable[[], Recorder]) -> AbstractContextManager[Callable[[], Recorder]]:
    """``register`` for the length of a block."""
    return _RECORDERS.registered(kind, make)


def recorder_for(accelerator: Accelerator) -> Recorder | None:
    """A recorder of programs there; None where nothing can be recorded."""
    make = _RECORDERS.get(accelerator.type)
    return None if make is None else make()


def _cuda() -> Recorder:
    # Not at the top: only a program on a GPU needs CUDA's part.
    from .cuda import CudaRecorder

    return CudaRecorder()


register(CUDA.type, _cuda)
