"""The kernels and library calls of one program again, each by itself, with the bandwidth that it reaches: on operands that are made up.

In: an artifact, or a file that `keep` wrote of one. Out: `KernelTime`s, and a table of them. What the program computes is neither read nor changed; a step that cannot run
by itself says why.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from attrs import frozen

import flambeau_runtime as runtime
from flambeau_runtime.alone import Alone, alone
from flambeau_runtime.artifact import Call, Launch
from flambeau_runtime.timing import time_artifacts

from ..errors import ArtifactError
from .steps import device_of

ROUNDS = 11
SUFFIX = ".program"


@frozen
class KernelTime:
    """One launch or library call.

    Attributes:
        name: of the kernel or operator.
        kind: "kernel" or "library call".
        seconds: the median of several calls with cold caches; None where it could not run.
        bytes: what it moves at least, for the sizes that it was compiled for.
        flops: its operations.
        count: how often a call of the program comes by.
        note: why it was not timed.
    """

    name: str
    kind: str
    seconds: float | None
    bytes: int
    flops: int
    count: int
    note: str = ""

    @property
    def bytes_per_second(self) -> float | None:
        """What it reaches."""
        return self.bytes / self.seconds if self.seconds else None


def keep(artifact: runtime.Artifact, kind: str, folder: Path) -> Path:
    """Write a program to a file of its own, by its contents."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{kind}_{artifact.digest[:16]}{SUFFIX}"
    path.write_bytes(artifact.to_bytes())
    return path


def read(path: Path) -> runtime.Artifact:
    """The program in a file. Raises ArtifactError for a file that holds none."""
    try:
        return runtime.Artifact.from_bytes(path.read_bytes()).validate()
    except (ValueError, TypeError, KeyError) as error:
        raise ArtifactError(
            f"{path} holds no program: {error}", "options={'benchmark_kernel': True} writes some"
        ) from None


def benchmark(artifact: runtime.Artifact, pattern: str = "", *, rounds: int = ROUNDS) -> list[KernelTime]:
    """Time the steps whose names a regular expression is found in, in running order; those that do the same on operands of the same layout once."""
    found: dict[Any, list[Alone]] = {}
    for place in alone(artifact):
        name = name_of(artifact, place)
        if re.search(pattern, name):
            found.setdefault((name, place.position if place.program is None else place.program), []).append(place)
    return [_measured(artifact, name, places, rounds) for (name, _), places in found.items()]


def names(artifact: runtime.Artifact) -> list[str]:
    """Of all steps."""
    return list(dict.fromkeys(name_of(artifact, place) for place in alone(artifact)))


def table(times: Sequence[KernelTime]) -> str:
    """One line a step: milliseconds, gigabytes, gigabytes a second, name."""
    lines = [f"{'ms':>10} {'GB':>10} {'GB/s':>8}  name"]
    for time in times:
        rate = time.bytes_per_second
        shown = "-" if time.seconds is None else f"{time.seconds * 1e3:.4f}"
        lines.append(
            f"{shown:>10} {time.bytes / 1e9:>10.6f} {'-' if rate is None else f'{rate / 1e9:.2f}':>8}  {time.name}"
            + (f" x {time.count}" if time.count > 1 else "")
            + (f" ({time.note})" if time.note else "")
        )
    return "\n".join(lines)


def name_of(artifact: runtime.Artifact, place: Alone) -> str:
    """That of the kernel, or of the operator with its overload."""
    instruction = place.instruction
    if isinstance(instruction, Launch):
        return artifact.kernels[instruction.kernel].name
    return ".".join(filter(None, (instruction.op, instruction.overload)))


def timed(place: Alone, rounds: int) -> tuple[float | None, str]:
    """Seconds of a step by itself, or why it was not timed."""
    if place.program is None:
        return None, "a size or layout is not known before it runs"
    if isinstance(place.instruction, Call) and not place.instruction.op.startswith("aten::"):
        return None, "an operator of other libraries is not called for a measurement"
    device = device_of(place.program)
    with torch.random.fork_rng(devices=[] if device.type == "cpu" else None):
        (seconds,) = time_artifacts([place.program], device, rounds)
    return seconds, "" if seconds is not None else "it raises for made-up operands"


def _measured(artifact: runtime.Artifact, name: str, places: Sequence[Alone], rounds: int) -> KernelTime:
    instruction = places[0].instruction
    is_kernel = isinstance(instruction, Launch)
    meta = artifact.kernels[instruction.kernel].meta if isinstance(instruction, Launch) else instruction.meta
    seconds, note = timed(places[0], rounds)
    return KernelTime(
        name,
        "kernel" if is_kernel else "library call",
        seconds,
        int(meta.get("bytes") or 0),
        int(meta.get("flops") or 0),
        sum(place.count for place in places),
        note,
    )
