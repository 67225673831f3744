"""What a trace says of a finished program: its kernels and library calls with bytes, operations and measured seconds, and its memory.

In: an artifact. Out: `kernels`, `memory` and `device` records. Each launch is timed by itself, on operands of its own, for a few seconds a program at most: what is
not measured says why.
"""

from __future__ import annotations

import time
from typing import Any

import torch

from flambeau_runtime.alone import Alone, alone
from flambeau_runtime.artifact import Artifact, Launch
from flambeau_runtime.limits import limits_of

from ..insight.kernel_benchmark import name_of, timed
from ..insight.steps import device_of
from .memory import planned
from .session import Session

PATIENCE_SECONDS = 5.0
ROUNDS = 5
_devices: set[tuple[int, str]] = set()


def write_program(session: Session, kind: str, artifact: Artifact) -> None:
    """Write a program's memory and, where kernels are measured, these and, the first time, its device's limits."""
    if not session.measures:
        session.write("memory", program=kind, planned=planned(artifact))
        return
    with session.part(kind):
        session.write("stage_begin", stage="measure for the trace", program=kind)
        started = time.perf_counter()
        try:
            session.write("memory", program=kind, planned=planned(artifact))
            places = alone(artifact)
            for device in sorted({_device(place) for place in places}):
                _write_limits(session, device)
            rows = _rows(artifact, places, time.perf_counter() + PATIENCE_SECONDS)
            session.write("kernels", program=kind, kernels=rows)
        finally:
            session.write(
                "stage_end", stage="measure for the trace", program=kind, seconds=time.perf_counter() - started
            )


def _write_limits(session: Session, device: str) -> None:
    at = id(session.writers[0]), device
    if at in _devices:
        return
    _devices.add(at)
    limits = limits_of(torch.device(device))
    session.write(
        "device",
        device=device,
        name=limits.name,
        bandwidth=limits.bytes_per_second,
        flops=dict(limits.flops_per_second),
    )


def _device(place: Alone) -> str:
    return "cpu" if place.program is None else device_of(place.program).type


def _rows(artifact: Artifact, places: list[Alone], until: float) -> list[dict[str, Any]]:
    """One row a place; places that do the same are timed once."""
    found: dict[str, tuple[float | None, str]] = {}
    rows = []
    for place in places:
        key = "" if place.program is None else place.program.digest
        if key not in found:
            found[key] = _timed(place, until)
        seconds, note = found[key]
        rows.append({**_facts(artifact, place), "device": _device(place), "seconds": seconds, "note": note})
    return rows


def _facts(artifact: Artifact, place: Alone) -> dict[str, Any]:
    instruction = place.instruction
    meta = artifact.kernels[instruction.kernel].meta if isinstance(instruction, Launch) else instruction.meta
    facts = {key: meta.get(key) for key in ("origins", "ops", "stack", "modules", "bytes", "flops")}
    return {
        "name": name_of(artifact, place),
        "kind": "kernel" if isinstance(instruction, Launch) else "library call",
        "position": list(place.position),
        "count": place.count,
        **facts,
        "moved": _moved(place),
    }


def _moved(place: Alone) -> int | None:
    """Bytes of the operands that it is given: what it moves at least, where no other number is known."""
    if place.program is None:
        return None
    total = 0
    for spec in place.program.program.inputs:
        assert spec.sizes is not None and spec.dtype is not None
        count = 1
        for size in spec.sizes:
            count *= int(size)  # type: ignore[arg-type]  # numbers, in a program that stands alone
        total += count * spec.dtype.itemsize
    return total


def _timed(place: Alone, until: float) -> tuple[float | None, str]:
    if place.program is not None and time.perf_counter() > until:
        return None, f"measurements of a program end after {PATIENCE_SECONDS:.0f} seconds"
    return timed(place, ROUNDS)
