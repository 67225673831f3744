"""The large CPU blocks that the native executor keeps between calls.

A program's large tensors (1 MiB and more) come from blocks that earlier calls gave back, because the first touch of
fresh pages costs more than most kernels. Idle blocks are bounded by ``FLAMBEAU_IDLE_MEMORY_BYTES`` (256 MiB), and go
back to the system when later calls do not ask for them.
"""

from __future__ import annotations

from .extension import extension


def release_idle_memory() -> int:
    """Give every idle block back to the system; returns how many bytes those were."""
    return int(extension().release_idle_memory())


def idle_memory_bytes() -> int:
    """How many bytes are kept for later calls."""
    return int(extension().idle_memory_bytes())


def set_idle_memory_limit(limit: int) -> None:
    """Keep at most ``limit`` idle bytes from now on; 0 keeps none. Raises ``OverflowError`` for a negative number."""
    extension().set_idle_memory_limit(limit)
