"""The launches and library calls of an artifact, each as a program of its own: to be timed, or looked at, one by one.

In: an artifact whose sizes are known, symbolic ones by the value that was seen while compiling. Out: one `Alone` for each place of the program, those of nested
programs once each, with how often their callers call them. Where an operand's layout or a number is not known, there is no program.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from attrs import define, evolve, field, frozen

from . import artifact as a
from .accelerators import accelerator_of
from .scalars import compute


@frozen
class Layout:
    """What is known of a tensor register."""

    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device


@frozen
class Alone:
    """One launch or call.

    Attributes:
        position: where it stands: the numbers of instructions from the outermost program in.
        instruction: as it stands there.
        count: how often one call of the artifact comes by; steps of loops, and branches, count once.
        program: it by itself, or None.
    """

    position: tuple[int, ...]
    instruction: a.Launch | a.Call
    count: int
    program: a.Artifact | None


def alone(artifact: a.Artifact) -> list[Alone]:
    """Every launch and library call of `artifact`."""
    counts: Counter[int] = Counter()
    _count(artifact.program, 1, counts)
    hints = {symbol.register: symbol.hint for symbol in artifact.symbols if symbol.hint is not None}
    constants = {
        spec.register: Layout(spec.sizes, torch.empty(spec.sizes, device="meta").stride(), spec.dtype, spec.device)
        for spec in artifact.constants
    }
    return list(_walk(artifact, artifact.program, (), counts, hints, constants, set()))


def _count(program: a.Program, times: int, counts: Counter[int]) -> None:
    counts[id(program)] += times
    for instruction in program.instructions:
        if isinstance(instruction, a.Subprogram):
            for nested in instruction.programs:
                _count(nested, times, counts)


def _walk(
    artifact: a.Artifact,
    program: a.Program,
    path: tuple[int, ...],
    counts: Mapping[int, int],
    hints: Mapping[int, Any],
    constants: Mapping[int, Layout],
    done: set[int],
) -> Iterator[Alone]:
    done.add(id(program))
    known = _Known(dict(hints), dict(constants))
    for spec in program.inputs:
        known.input(spec)
    for position, instruction in enumerate(program.instructions):
        if isinstance(instruction, (a.Launch, a.Call)):
            made = _program(artifact, instruction, known)
            yield Alone((*path, position), instruction, counts[id(program)], made)
        elif isinstance(instruction, a.Subprogram):
            for nested in instruction.programs:
                if id(nested) not in done:
                    yield from _walk(artifact, nested, (*path, position), counts, {}, {}, done)
        known.after(instruction)


@define
class _Known:
    """Numbers and layouts that are known at a place of a program."""

    scalars: dict[int, Any]
    tensors: dict[int, Layout] = field(factory=dict)

    def number(self, value: Any) -> Any:
        """A number for an operand; raises `KeyError` for one that is not known."""
        found = self.scalars[value.index] if isinstance(value, a.Scalar) else value
        if found is None:
            raise KeyError("a size that nobody checks")
        return found

    def layout(self, sizes: Sequence[Any], strides: Sequence[Any], dtype: torch.dtype, device: torch.device) -> Layout:
        return Layout(tuple(map(self.number, sizes)), tuple(map(self.number, strides)), dtype, device)

    def input(self, spec: a.InputSpec) -> None:
        if spec.kind == "tensor" and None not in (spec.sizes, spec.strides, spec.dtype, spec.device):
            self._put(spec.register, spec.sizes, spec.strides, spec.dtype, spec.device)

    def _put(self, register: int, sizes: Any, strides: Any, dtype: Any, device: Any) -> None:
        try:
            self.tensors[register] = self.layout(sizes, strides, dtype, device)
        except KeyError:
            self.tensors.pop(register, None)

    def after(self, instruction: a.Instruction) -> None:
        """What an instruction makes known."""
        match instruction:
            case a.Alloc(out, sizes, strides, dtype, device):
                self._put(out, sizes, strides, dtype, device)
            case a.View(out, source, sizes, strides, _, dtype) if source in self.tensors:
                base = self.tensors[source]
                self._put(out, sizes, strides, dtype or base.dtype, base.device)
            case a.Hold(reg, sizes, strides, dtype, device):
                self._put(reg, sizes, strides, dtype, device)
            case a.Size(out, source, dim, kind) if source in self.tensors and kind != "offset":
                of = self.tensors[source]
                self.scalars[out] = (of.sizes if kind == "size" else of.strides)[dim]
            case a.Compute(out, opcode, args):
                try:
                    self.scalars[out] = compute(opcode, [self.number(value) for value in args])
                except (KeyError, ZeroDivisionError):
                    self.scalars.pop(out, None)


def _program(artifact: a.Artifact, instruction: a.Launch | a.Call, known: _Known) -> a.Artifact | None:
    reads = instruction.buffers if isinstance(instruction, a.Launch) else tuple(_registers(instruction))
    registers = list(dict.fromkeys(reads))
    body: a.Launch | a.Call
    try:
        layouts = [known.tensors[register] for register in registers]
        devices = [_slot(artifact.program, layout.device) for layout in layouts]
        moved = {register: place for place, register in enumerate(registers)}
        if isinstance(instruction, a.Launch):
            kernel = artifact.kernels[instruction.kernel]
            body = evolve(
                instruction,
                kernel=0,
                buffers=tuple(moved[register] for register in instruction.buffers),
                scalars=tuple(map(known.number, instruction.scalars)),
                extent=known.number(instruction.extent),
                grid=None if instruction.grid is None else tuple(map(known.number, instruction.grid)),
            )
            parts: dict[str, Any] = {
                "kernels": (evolve(kernel, library=0),),
                "libraries": (artifact.libraries[kernel.library],),
            }
            outs = 0
        else:
            outs = len(instruction.outs)
            body = evolve(
                instruction,
                args=_renamed(instruction.args, moved, known),
                kwargs=tuple((name, _renamed(value, moved, known)) for name, value in instruction.kwargs),
                outs=tuple(
                    a.Reg(len(registers) + place) if isinstance(out, a.Reg) else None
                    for place, out in enumerate(instruction.outs)
                ),
            )
            parts = {"kernels": (), "libraries": ()}
    except KeyError:
        return None
    inputs = tuple(
        a.InputSpec("tensor", place, layout.dtype, device, layout.sizes, layout.strides)
        for place, (layout, device) in enumerate(zip(layouts, devices, strict=True))
    )
    program = a.Program((body,), len(registers) + outs, 0, inputs, (), artifact.program.devices)
    return evolve(artifact, program=program, constants=(), symbols=(), meta={}, **parts)


def _slot(program: a.Program, device: torch.device) -> torch.device:
    """A device by its slot, where a record names its type alone; raises `KeyError` where that says too little."""
    if accelerator_of(device) is None or device.index is not None:
        return device
    if len(program.devices) > 1:
        raise KeyError("which of several devices a result lies on")
    return torch.device(device.type, 0)


def _registers(value: Any) -> Iterator[int]:
    if isinstance(value, a.Call):
        yield from _registers((value.args, tuple(item for _, item in value.kwargs)))
    elif isinstance(value, a.Reg):
        yield value.index
    elif isinstance(value, tuple):
        for item in value:
            yield from _registers(item)


def _renamed(value: Any, moved: Mapping[int, int], known: _Known) -> Any:
    if isinstance(value, a.Reg):
        return a.Reg(moved[value.index])
    if isinstance(value, tuple):
        return tuple(_renamed(item, moved, known) for item in value)
    return known.number(value) if isinstance(value, a.Scalar) else value
