"""Horizontal fusion: independent small kernels become one launch, whatever their shapes are.

In: a ``Schedule`` in running order. Out: the same, where groups of kernels that need nothing from each other are one ``Combined``
step at the place of the first of them. Only for targets where a launch costs more than such a kernel's work.
"""

from __future__ import annotations

from collections.abc import Mapping

from attrs import define, evolve, field

from .. import expr as ex
from ..config import Config
from ..devices import device_of
from ..effects import checks
from ..ir.kernel import Combined, Gemm, KernelBody, Store
from ..ir.layout import Buffer
from ..ir.loops import Extern
from .plan import Schedule
from .steps import Step, step_defines, step_reads, step_writes

#: A kernel that moves more than this hides its launch.
MOST_BYTES = 32 << 20
#: Results that exist earlier than they would have, because their kernel moved ahead of another step, may take this much in all.
EARLY_BYTES = 16 << 20
MOST_BODIES, MOST_ARGUMENTS = 32, 160


@define
class _Group:
    position: int
    bodies: list[KernelBody]
    buffers: set[str] = field(factory=set)


@define
class _Combiner:
    """Where each storage was last read and written, and each symbol defined, in positions of the new order."""

    buffers: Mapping[str, Buffer]
    read_at: dict[str, int] = field(factory=dict)
    written_at: dict[str, int] = field(factory=dict)
    defined_at: dict[ex.Expr | str, int] = field(factory=dict)
    checked_at: int = -1
    groups: list[_Group] = field(factory=list)
    early: int = 0

    def root(self, name: str) -> str:
        """The buffer whose memory ``name`` lies in."""
        while name in self.buffers and self.buffers[name].storage != name:
            name = self.buffers[name].storage
        return name

    def place(self, position: int, step: Step) -> _Group | None:
        """The group that ``step`` joins or starts; None for a step that stays alone."""
        reads, writes = _touched(step)
        if not isinstance(step, KernelBody | Combined | Gemm) and checks(step):
            self.checked_at = position
        read, wrote = {self.root(n) for n in reads}, {self.root(n) for n in writes}
        group = None
        if isinstance(step, KernelBody) and _is_small(step):
            after = max(
                [self.written_at.get(n, -1) for n in read | wrote]
                + [self.read_at.get(n, -1) for n in wrote]
                + [self.defined_at.get(s, -1) for s in step.scalars]
                + [
                    self.checked_at for s in step.statements if isinstance(s, Store) and self.buffers[s.buffer].in_place
                ],
                default=-1,
            )
            group = self._join(step, after, position)
        at = position if group is None else group.position
        for name in read:
            self.read_at[name] = max(at, self.read_at.get(name, -1))
        for name in wrote:
            self.written_at[name] = max(at, self.written_at.get(name, -1))
        for symbol in step_defines(step):
            self.defined_at[symbol] = position
        return group

    def _join(self, step: KernelBody, after: int, position: int) -> _Group:
        cost = sum(_bytes(self.buffers[s.buffer]) for s in step.statements if isinstance(s, Store))
        for group in reversed(self.groups):
            if group.position <= after:
                break
            names = group.buffers | {b.storage for b in step.buffers}
            adjacent = group.position + len(group.bodies) == position
            if (
                group.bodies[0].device == step.device
                and len(group.bodies) < MOST_BODIES
                and len(names) <= MOST_ARGUMENTS
                and (adjacent or self.early + cost <= EARLY_BYTES)
            ):
                self.early += 0 if adjacent else cost
                group.bodies.append(step)
                group.buffers = names
                return group
        group = _Group(position, [step], {b.storage for b in step.buffers})
        self.groups.append(group)
        return group


def combine(plan: Schedule, config: Config) -> Schedule:
    """``plan`` with kernels grouped where that is valid and, in the language of their device, worth it."""
    combiner = _Combiner(plan.buffers)
    placed: list[tuple[Step, _Group | None]] = []
    for position, step in enumerate(plan.steps):
        group = combiner.place(position, step)
        if group is not None and not device_of(group.bodies[0].device).language(config).combines:
            combiner.groups.remove(group)
            group = None
        placed.append((step, group))
    steps: list[Step] = []
    for step, group in placed:
        if group is None or len(group.bodies) == 1:
            steps.append(step)
        elif group.bodies[0] is step:
            steps.append(Combined(f"combined_{len(group.bodies)}_{step.name}", tuple(group.bodies)))
    return evolve(plan, steps=tuple(steps))


def _is_small(body: KernelBody) -> bool:
    """Kernels over points only: a reduction shapes its blocks and warps by its row, and turns are taken by one program."""
    if body.inner or body.serial or any(isinstance(s, Store) and s.mode != "set" for s in body.statements):
        return False
    return sum(_bytes(buffer) for buffer in body.buffers) <= MOST_BYTES


def _bytes(buffer: Buffer) -> int:
    return ex.hint(buffer.layout.numel) * buffer.layout.dtype.itemsize


def _touched(step: Step) -> tuple[set[str], set[str]]:
    """Buffers that a step reads and writes; what it keeps of memory that it overwrites counts as written only."""
    reads, writes = step_reads(step), step_writes(step)
    return reads, writes | reads if isinstance(step, Extern) and step.changed else writes
