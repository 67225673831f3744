"""A program divided into the segments that are recorded and the parts between them that run plainly.

In: an artifact and its verdicts. Out: ``Part``s in order, each with a program of its own over the same registers.

A part takes the registers it reads from before it, and hands on those that are still wanted after it. A view is made
again in the part that uses it, from its source: two inputs of a part never share memory because of a view, so a part
that writes to one cannot miss the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from attrs import define, evolve, field, frozen

from .. import artifact as a
from .classify import DEVICE, HOST, PLAIN, Verdict
from .decided import decides_by_data
from .operands import RANDOM_STATE, uses
from .records import GraphSettings


@frozen
class Part:
    """Instructions that run together. ``reason`` and ``position`` say why a plain part is plain."""

    program: a.Program
    recorded: bool
    reason: str = ""
    position: str = ""

    @property
    def tensors(self) -> tuple[int, ...]:
        """Tensor registers that the part takes, in order."""
        return tuple(spec.register for spec in self.program.inputs if spec.kind == "tensor")


@frozen
class _Run:
    """Consecutive instructions with one fate."""

    indices: tuple[int, ...]
    recorded: bool
    reason: str = ""
    position: str = ""


@frozen
class _Need:
    """What a run takes from before it: registers, and the views that it makes again."""

    tensors: tuple[int, ...] = ()
    scalars: tuple[int, ...] = ()
    views: tuple[a.View, ...] = field(default=())


@define
class _Wanted:
    """Registers that are read after some point of the program."""

    tensors: set[int]
    scalars: set[int]


def split(artifact: a.Artifact, verdicts: Sequence[Verdict], settings: GraphSettings) -> tuple[Part, ...]:
    """The parts of ``artifact``'s program; a segment with too few device steps joins its neighbours, but for one that would stop the host."""
    instructions = artifact.program.instructions
    if all(verdict.kind != PLAIN for verdict in verdicts):
        steps = _device_steps(instructions)
        recorded = steps >= settings.smallest_program or decides_by_data(instructions)
        return (Part(artifact.program, recorded, _too_small(steps)),)
    runs = _runs(instructions, verdicts, settings.smallest_segment)
    if len(runs) == 1:
        return (Part(artifact.program, False, runs[0].reason, runs[0].position),)
    inlined = _inlined_views(artifact.program)
    needs = [_need(instructions, run, inlined) for run in runs]
    outputs = artifact.program.outputs
    wanted = _Wanted(
        {spec.value for spec in outputs if spec.kind == "tensor" and isinstance(spec.value, int)},
        {spec.value.index for spec in outputs if isinstance(spec.value, a.Scalar)},
    )
    parts: list[Part] = []
    for run, need in zip(reversed(runs), reversed(needs)):
        parts.append(_part(artifact, run, need, wanted))
        for index in run.indices:
            wanted.tensors.difference_update(uses(instructions[index]).tensor_outs)
            wanted.scalars.difference_update(uses(instructions[index]).scalar_outs)
        wanted.tensors.update(need.tensors)
        wanted.scalars.update(need.scalars)
    return tuple(reversed(parts))


def passes_random_state(parts: Sequence[Part]) -> bool:
    """Whether one part takes the random state for kernels of another: a recording's is of no use outside of it."""
    for part in parts if len(parts) > 1 else ():
        drawn: set[int] = set()
        for instruction in part.program.instructions:
            touched = uses(instruction)
            computes = isinstance(instruction, a.Compute | a.Subprogram)
            if _takes_random_state(instruction) or (computes and drawn.intersection(touched.scalars)):
                drawn.update(touched.scalar_outs)
        if any(o.value.index in drawn for o in part.program.outputs if isinstance(o.value, a.Scalar)):
            return True
    return False


def _takes_random_state(instruction: a.Instruction) -> bool:
    if isinstance(instruction, a.Subprogram):
        return any(_takes_random_state(inner) for program in instruction.programs for inner in program.instructions)
    return isinstance(instruction, a.Call) and instruction.op == RANDOM_STATE


def _runs(instructions: Sequence[a.Instruction], verdicts: Sequence[Verdict], smallest: int) -> list[_Run]:
    """Maximal stretches; host arithmetic joins what comes before it, small segments join the plain parts around."""
    fates: list[bool] = []
    for verdict in verdicts:
        recorded = (fates[-1] if fates else False) if verdict.kind == HOST else verdict.kind == DEVICE
        fates.append(recorded)
    found: list[_Run] = []
    for recorded, group in groupby(range(len(fates)), key=fates.__getitem__):
        indices = tuple(group)
        mine = [instructions[i] for i in indices]
        steps = _device_steps(mine)
        keep = recorded and (steps >= smallest or decides_by_data(mine))
        first = next((verdicts[i] for i in indices if verdicts[i].kind == PLAIN), None)
        if first is not None:
            reason, position = first.reason, first.position
        else:
            reason, position = "" if keep else _too_small(steps), ""
        if found and not keep and not found[-1].recorded:
            before = found[-1]
            better = before if before.position or not position else _Run((), False, reason, position)
            found[-1] = _Run((*before.indices, *indices), False, better.reason, better.position)
        else:
            found.append(_Run(indices, keep, "" if keep else reason, position))
    return found


def _device_steps(instructions: Sequence[a.Instruction]) -> int:
    """Launches and calls that reach the device, those of nested programs too; taking a piece of the random stream does not."""
    found = 0
    for instruction in instructions:
        if isinstance(instruction, a.Subprogram):
            found += sum(_device_steps(program.instructions) for program in instruction.programs)
        else:
            reaches = isinstance(instruction, a.Launch | a.Copy | a.Call)
            found += reaches and not _takes_random_state(instruction)
    return found


def _too_small(steps: int) -> str:
    return f"{steps} device steps are too few to pay"


def _inlined_views(program: a.Program) -> dict[int, a.View]:
    """Views that may be made again anywhere: each register on the way is defined once.

    A ``Hold`` may give its register another tensor; that counts only where a view of the first one was made before.
    """
    definitions: dict[int, int] = {}
    for spec in program.inputs:
        if spec.kind == "tensor":
            definitions[spec.register] = definitions.get(spec.register, 0) + 1
    viewed: set[int] = set()
    for instruction in program.instructions:
        if isinstance(instruction, a.View):
            viewed.add(instruction.source)
        for register in uses(instruction).tensor_outs:
            again = not isinstance(instruction, a.Hold) or register in viewed
            definitions[register] = definitions.get(register, 0) + again
    return {
        i.out: i
        for i in program.instructions
        if isinstance(i, a.View) and definitions[i.out] == 1 and definitions.get(i.source, 1) == 1
    }


def _need(instructions: Sequence[a.Instruction], run: _Run, inlined: dict[int, a.View]) -> _Need:
    """Live-in registers of a run, with views replaced by their sources."""
    defined: set[int] = set()
    scalars_defined: set[int] = set()
    tensors: dict[int, None] = {}
    scalars: dict[int, None] = {}
    views: dict[int, a.View] = {}

    def take(register: int) -> None:
        if register in defined or register in views:
            return
        view = inlined.get(register)
        if view is None:
            tensors[register] = None
            return
        take(view.source)
        for scalar in uses(view).scalars:
            if scalar not in scalars_defined:
                scalars[scalar] = None
        views[register] = view

    for index in run.indices:
        instruction = instructions[index]
        touched = uses(instruction)
        for register in () if isinstance(instruction, a.Free) else touched.tensors:
            take(register)
        for scalar in touched.scalars:
            if scalar not in scalars_defined:
                scalars[scalar] = None
        defined.update(touched.tensor_outs)
        scalars_defined.update(touched.scalar_outs)
    return _Need(tuple(tensors), tuple(scalars), tuple(views.values()))


def _part(artifact: a.Artifact, run: _Run, need: _Need, wanted: _Wanted) -> Part:
    program = artifact.program
    constants = {constant.register for constant in artifact.constants}
    specs = {spec.register: spec for spec in program.inputs if spec.kind == "tensor"}
    written: set[int] = set()
    own: set[int] = {view.out for view in need.views}
    own_scalars: set[int] = set()
    sources = {view.out: view.source for view in need.views}
    body: list[a.Instruction] = list(need.views)
    for index in run.indices:
        instruction = program.instructions[index]
        touched = uses(instruction)
        own.update(touched.tensor_outs)
        own_scalars.update(touched.scalar_outs)
        if isinstance(instruction, a.View):
            sources[instruction.out] = instruction.source
        if isinstance(instruction, a.Free):
            # A source that a later part makes its views from outlives its own last use.
            mine = tuple(r for r in instruction.regs if r in own and r not in wanted.tensors)
            own.difference_update(mine)
            body += [a.Free(mine)] if mine else []
            continue
        body.append(instruction)
        for register in touched.writes:
            written.add(_root(register, sources))
    inputs = [
        _tensor_input(register, specs.get(register), register in written)
        for register in need.tensors
        if register not in constants
    ]
    inputs += [a.InputSpec("scalar", register) for register in need.scalars]
    outputs = [a.OutputSpec("tensor", register) for register in sorted(own) if register in wanted.tensors]
    outputs += [a.OutputSpec("scalar", a.Scalar(s)) for s in sorted(own_scalars) if s in wanted.scalars]
    made = evolve(program, instructions=tuple(body), inputs=tuple(inputs), outputs=tuple(outputs))
    return Part(made, run.recorded, run.reason, run.position)


def _tensor_input(register: int, spec: a.InputSpec | None, written: bool) -> a.InputSpec:
    """An input of a part: unchecked, since the whole program's inputs were checked already."""
    if spec is None:
        return a.InputSpec("tensor", register, mutated=written)
    return a.InputSpec("tensor", register, static=spec.static, mutated=spec.mutated and written, name=spec.name)


def _root(register: int, sources: dict[int, int]) -> int:
    while register in sources:
        register = sources[register]
    return register
