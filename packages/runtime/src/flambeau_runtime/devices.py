"""Programs without device ordinals: the same artifact runs on whichever accelerators of their kind its inputs lie on.

In: a program whose records name the devices seen while compiling (``cuda:1``). Out: the same program where the index of an
accelerator is a *slot*, numbered by first appearance among the inputs, and ``Program.devices`` says for each slot which
ordinal it is: None where the inputs of a call decide, a number where no input carries it (a graph that names a device).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import attrs
import torch

from . import records as a
from .accelerators import accelerator_of, all_native


def without_ordinals(program: a.Program) -> a.Program:
    """``program`` with slots for ordinals; a program that has slots already, or no accelerator, is returned as it is."""
    if program.devices:
        return program
    carried = [spec.device for spec in program.inputs if spec.device is not None and accelerator_of(spec.device)]
    named = [device for device in devices_of(program) if accelerator_of(device)]
    if not carried and not named:
        return program
    slots: dict[torch.device, int] = {}
    ordinals: list[int | None] = []
    for device in carried:
        if device not in slots:
            slots[device] = len(ordinals)
            ordinals.append(None)
    for device in named:
        if device in slots:
            continue
        first = next((slot for known, slot in slots.items() if known.type == device.type), None)
        if device.index is None and first is not None:
            slots[device] = first  # plain "cuda" is the device of the first input
            continue
        slots[device] = len(ordinals)
        ordinals.append(device.index)
    return attrs.evolve(_renamed(program, slots), devices=tuple(ordinals))


def real_device(device: torch.device, ordinals: Sequence[int | None]) -> torch.device:
    """The device that a record of a program names: its slot looked up in ``ordinals``, the current device where that is open."""
    accelerator = accelerator_of(device)
    if accelerator is None:
        return device
    slot = device.index or 0
    ordinal = ordinals[slot] if slot < len(ordinals) else None
    return torch.device(device.type, accelerator.current() if ordinal is None else ordinal)


def pinned(artifact: a.Contents, constants: Sequence[torch.Tensor]) -> tuple[int | None, ...]:
    """``Program.devices`` as the constants of a loaded artifact narrow it: they do not move with the inputs."""
    devices = artifact.program.devices
    ordinals = {tensor.device.index for tensor in constants if accelerator_of(tensor.device)}
    if devices == (None,) and len(ordinals) == 1:
        return tuple(ordinals)
    return devices


def runs_natively(artifact: a.Contents) -> bool:
    """Whether the extension knows all the devices of an artifact."""
    if all_native():
        return True
    program = artifact.program
    given = [spec.device for spec in program.inputs] + [spec.device for spec in artifact.constants]
    found = map(accelerator_of, (*given, *devices_of(program)))
    return all(accelerator.native for accelerator in found if accelerator is not None)


def devices_of(program: a.Program, seen: set[int] | None = None) -> Iterator[torch.device]:
    """Every device that an instruction of ``program`` names, nested programs included (those in ``seen`` left out)."""
    seen = set() if seen is None else seen
    for instruction in program.instructions:
        match instruction:
            case a.Alloc():
                yield instruction.device
            case a.Call():
                yield from _devices_in((instruction.args, tuple(value for _, value in instruction.kwargs)))
            case a.Python():
                yield from _devices_in(instruction.args)
            case a.Subprogram():
                for nested in instruction.programs:
                    if id(nested) in seen:
                        continue
                    seen.add(id(nested))
                    yield from (spec.device for spec in nested.inputs if spec.device is not None)
                    yield from devices_of(nested, seen)


def _devices_in(value: Any) -> Iterator[torch.device]:
    if isinstance(value, torch.device):
        yield value
    elif isinstance(value, tuple):
        for item in value:
            yield from _devices_in(item)


def _renamed(program: a.Program, slots: dict[torch.device, int]) -> a.Program:
    known: dict[int, a.Program] = {}

    def nested(given: a.Program) -> a.Program:
        # A program of several places stays one.
        if id(given) not in known:
            known[id(given)] = whole(given)
        return known[id(given)]

    def rename(value: Any) -> Any:
        if isinstance(value, torch.device) and accelerator_of(value):
            return torch.device(value.type, slots[value])
        if isinstance(value, tuple):
            return tuple(rename(item) for item in value)
        return value

    def instruction(i: a.Instruction) -> a.Instruction:
        match i:
            case a.Alloc():
                return attrs.evolve(i, device=rename(i.device))
            case a.Call():
                return attrs.evolve(i, args=rename(i.args), kwargs=tuple((k, rename(v)) for k, v in i.kwargs))
            case a.Python():
                return attrs.evolve(i, args=rename(i.args))
            case a.Subprogram():
                return attrs.evolve(i, programs=tuple(map(nested, i.programs)))
        return i

    def whole(given: a.Program) -> a.Program:
        inputs = tuple(attrs.evolve(spec, device=rename(spec.device)) for spec in given.inputs)
        return attrs.evolve(given, inputs=inputs, instructions=tuple(map(instruction, given.instructions)))

    return whole(program)
