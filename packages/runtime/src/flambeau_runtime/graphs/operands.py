"""Which registers an instruction reads and writes.

In: an instruction. Out: ``Uses``: tensor and scalar registers in and out, and the tensor registers whose memory it may
change in place.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from attrs import frozen

from .. import artifact as a
from ..executor_py import find_operator
from ..philox import state_op

RANDOM_STATE = "flambeau::philox_state"
"""Hands a piece of the generator's stream to kernels: numbers, or addresses while a graph is captured."""


@frozen
class Uses:
    """Registers of one instruction. ``writes`` are those of ``tensors`` whose memory may change."""

    tensors: tuple[int, ...] = ()
    scalars: tuple[int, ...] = ()
    tensor_outs: tuple[int, ...] = ()
    scalar_outs: tuple[int, ...] = ()
    writes: tuple[int, ...] = ()


def uses(instruction: a.Instruction) -> Uses:
    """What ``instruction`` touches. A kernel may write every buffer it is given: its record does not say which."""
    match instruction:
        case a.Alloc(out=out):
            return Uses(scalars=_scalars((instruction.sizes, instruction.strides)), tensor_outs=(out,))
        case a.View(out=out, source=source):
            operands = (instruction.sizes, instruction.strides, instruction.offset)
            return Uses((source,), _scalars(operands), (out,))
        case a.Hold(reg=reg):
            return Uses((reg,), _scalars((instruction.sizes, instruction.strides)), (reg,))
        case a.Launch(buffers=buffers):
            numbers = (instruction.scalars, instruction.extent, instruction.grid or ())
            return Uses(tuple(dict.fromkeys(buffers)), _scalars(numbers), writes=tuple(dict.fromkeys(buffers)))
        case a.Call():
            values = (instruction.args, tuple(value for _, value in instruction.kwargs))
            return Uses(_tensors(values), _scalars(values), *_outs(instruction.outs), _written(instruction))
        case a.Python() | a.Subprogram():
            inner: Any = instruction.args if isinstance(instruction, a.Python) else _given(instruction)
            read = _tensors(inner)
            return Uses(read, _scalars(inner), *_outs(instruction.outs), read)
        case a.Compute(out=out, args=args):
            return Uses(scalars=_scalars(args), scalar_outs=(out,))
        case a.Size(out=out, source=source) | a.Item(out=out, source=source):
            return Uses((source,), scalar_outs=(out,))
        case a.Check(cond=cond):
            return Uses(scalars=_scalars(cond))
        case a.Free(regs=regs):
            return Uses(regs)
        case a.Copy(dst=dst, src=src):
            return Uses((dst, src), writes=(dst,))


def _given(sub: a.Subprogram) -> tuple[Any, ...]:
    return (sub.inputs, sub.extra, tuple(map(a.Reg, sub.slices)), sub.length)


def draws(program: a.Program) -> bool:
    """Whether random numbers are drawn in the program, or in one that it calls."""
    return any(map(_draws, program.instructions))


def _draws(instruction: a.Instruction) -> bool:
    if isinstance(instruction, a.Subprogram):
        return any(map(draws, instruction.programs))
    return isinstance(instruction, a.Call) and (
        instruction.op == RANDOM_STATE or torch.Tag.nondeterministic_seeded in operator_of(instruction).tags
    )


def operator_of(call: a.Call) -> Any:
    """The overload that ``call`` names; our own operators are registered first. ``LookupError`` if there is none."""
    if call.op == RANDOM_STATE:
        state_op()
    return find_operator(call.op, call.overload)


def _written(call: a.Call) -> tuple[int, ...]:
    """The tensor arguments that the operator's schema says it writes."""
    schema = operator_of(call)._schema
    named = dict(call.kwargs)
    found: list[int] = []
    for place, argument in enumerate(schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            value = named.get(argument.name, call.args[place] if place < len(call.args) else None)
            found += _tensors((value,))
    return tuple(dict.fromkeys(found))


def _outs(outs: tuple[a.Reg | a.Scalar | None, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    tensors = tuple(out.index for out in outs if isinstance(out, a.Reg))
    return tensors, tuple(out.index for out in outs if isinstance(out, a.Scalar))


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, tuple):
        for item in value:
            yield from _leaves(item)
    else:
        yield value


def _tensors(value: Any) -> tuple[int, ...]:
    return tuple(dict.fromkeys(leaf.index for leaf in _leaves(value) if isinstance(leaf, a.Reg)))


def _scalars(value: Any) -> tuple[int, ...]:
    return tuple(dict.fromkeys(leaf.index for leaf in _leaves(value) if isinstance(leaf, a.Scalar)))
