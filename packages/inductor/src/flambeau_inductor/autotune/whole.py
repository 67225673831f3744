"""Whether what was chosen one kernel at a time is also faster together.

In: a graph, its fused schedule, a function that finishes the program one way or another. Out: the way that it is finished. With ``max_autotune`` the program without measured
choices, with all, and with those of products or launches alone are timed beside each other: operands are random numbers of the real layouts in the memory of another
process, so that nothing of the caller's changes. A choice that loses to the default from end to end is dropped, and that answer is kept, too.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

import torch
from attrs import frozen

from flambeau_runtime import Artifact
from flambeau_runtime.artifact import Instruction, Item, Program, Python, Subprogram

from ..config import Config
from ..devices import device_of
from ..ir.graph import Graph
from ..schedule import LaunchStep, Schedule
from .asked import is_asked_to_measure, may_look_up, may_measure
from .questions import Question, answers

#: Of a device's memory that is free, what the programs that are timed may take.
_SHARE = 0.4
#: Options that say what is measured: the answer is the same under all of them.
_MEASURING = (
    "max_autotune",
    "max_autotune_gemm",
    "max_autotune_pointwise",
    "coordinate_descent_tuning",
    "autotune_local_cache",
)


@frozen
class Way:
    """Whose measured choices a program has."""

    products: bool
    launches: bool


DEFAULT: Final = Way(products=False, launches=False)
TUNED: Final = Way(products=True, launches=True)
#: By name, as they are kept.
WAYS: Final[Mapping[str, Way]] = {
    "default": DEFAULT,
    "tuned": TUNED,
    "products": Way(products=True, launches=False),
    "launches": Way(products=False, launches=True),
}


def choose_way(graph: Graph, plans: Sequence[Schedule], config: Config, finish: Callable[[Way], Artifact]) -> Way:
    """How the program of ``graph`` is finished."""
    device = _device(plans)
    if device is None:
        return DEFAULT
    measures = may_measure(device, is_asked_to_measure(config))
    if not measures and not may_look_up(config):
        return DEFAULT
    asked = _asked(graph, plans, config)
    if not measures:
        (answer,) = answers([Question("program", asked, device, tuple(WAYS), _nothing)], config, measure=False)
        return WAYS.get(answer, TUNED) if isinstance(answer, str) else TUNED
    programs = {name: finish(way) for name, way in WAYS.items()}
    different: dict[str, str] = {}
    for name, artifact in programs.items():
        different.setdefault(artifact.digest, name)
    if len(different) == 1:
        return DEFAULT
    if not _can_be_timed(programs["default"], device):
        return TUNED
    question = Question("program", asked, device, tuple(different.values()), programs.__getitem__)
    (answer,) = answers([question], config, measure=True, subject="programs")
    return WAYS.get(answer, DEFAULT) if isinstance(answer, str) else DEFAULT


def _nothing(way: str) -> None:
    """No program: the answer is only looked up."""


def _device(plans: Sequence[Schedule]) -> torch.device | None:
    """The device of the kernels and calls, where all are on one that queues work."""
    places = {out.layout.device for plan in plans for out in plan.buffers.values()}
    queued = {place for place in places if device_of(place).queues}
    return queued.pop() if len(queued) == 1 else None


def _asked(graph: Graph, plans: Sequence[Schedule], config: Config) -> str:
    """What is computed, in which order, on what."""
    alike = config.with_options({name: name == "autotune_local_cache" for name in _MEASURING})
    digest = hashlib.sha256(repr(alike.key()).encode())
    for plan in plans:
        for step in plan.steps:
            text = step.name if isinstance(step, LaunchStep) else str(getattr(step, "op", type(step).__name__))
            digest.update(text.encode())
        for buffer in plan.buffers.values():
            layout = buffer.layout
            digest.update(f"{layout.sizes} {layout.strides} {layout.dtype}".encode())
    return f"program of {len(graph.inputs)} inputs {digest.hexdigest()}"


def _can_be_timed(artifact: Artifact, device: torch.device) -> bool:
    """Whether random operands tell how long the program takes, and fit beside those of the caller."""
    for instruction in _instructions(artifact.program):
        if isinstance(instruction, Python | Item):
            return False
        if isinstance(instruction, Subprogram) and instruction.kind != "call":
            return False
    return _operand_bytes(artifact) < _SHARE * device_of(device).free_bytes(device)


def _operand_bytes(artifact: Artifact) -> int:
    total = 0
    for spec in artifact.program.inputs:
        if spec.sizes is not None and spec.dtype is not None:
            total += math.prod(n for n in spec.sizes if isinstance(n, int)) * spec.dtype.itemsize
    return total + sum(math.prod(spec.sizes) * spec.dtype.itemsize for spec in artifact.constants)


def _instructions(program: Program) -> Iterator[Instruction]:
    for instruction in program.instructions:
        yield instruction
        if isinstance(instruction, Subprogram):
            for nested in instruction.programs:
                yield from _instructions(nested)
