"""Artifacts as the plain tuples that the native executor decodes.

In: a validated, built artifact. Out: ``_C.Executor``. Encoding: registers are ``("t", i)`` and ``("s", i)``, tuples
``("l", items)``, everything else stands for itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from . import artifact as a
from .accelerators import CUDA
from .build.library import entry_address, load_library
from .devices import pinned
from .executor_py import KernelFunction, instruction_context
from .extension import extension
from .inputs import check_count, check_scalar, check_tensor
from .ranges import program_ranges


class _Encoder:
    """Encodes one artifact; programs are numbered in the order they are met, for error contexts."""

    def __init__(self, functions: Mapping[str, Callable[..., Any]], threads: int | None) -> None:
        self.functions, self.threads = functions, threads
        self.programs: list[a.Program] = []
        #: Nested programs by identity: one of several places is the same tuple in each, which the extension decodes once.
        self.nested: dict[int, tuple[Any, ...]] = {}

    def program(self, program: a.Program, devices: tuple[int | None, ...]) -> tuple[Any, ...]:
        number = len(self.programs)
        self.programs.append(program)
        return (
            number,
            program.tensor_registers,
            program.scalar_registers,
            self.threads or 0,
            devices,
            tuple(_input(spec) for spec in program.inputs),
            tuple(self.instruction(instruction) for instruction in program.instructions),
            tuple((spec.kind, encode_argument(spec.value)) for spec in program.outputs),
        )

    def instruction(self, i: a.Instruction) -> tuple[Any, ...]:
        match i:
            case a.Alloc():
                return ("alloc", i.out, _operands(i.sizes), _operands(i.strides), i.dtype, i.device)
            case a.View():
                offset = encode_argument(i.offset)
                return ("view", i.out, i.source, _operands(i.sizes), _operands(i.strides), offset, i.dtype)
            case a.Launch():
                grid = None if i.grid is None else _operands(i.grid)
                return ("launch", i.kernel, i.buffers, _operands(i.scalars), encode_argument(i.extent), i.grain, grid)
            case a.Call():
                kwargs = tuple((key, encode_argument(value)) for key, value in i.kwargs)
                return ("call", i.op, i.overload, _operands(i.args), kwargs, _operands(i.outs), int(i.grad_mode))
            case a.Hold():
                sizes, strides = _operands(i.sizes), _operands(i.strides)
                return ("hold", i.reg, sizes, strides, i.dtype, i.device, i.op or "a call")
            case a.Compute():
                return ("compute", i.out, i.opcode, _operands(i.args))
            case a.Size():
                return ("size", i.out, i.source, i.dim, i.kind)
            case a.Item():
                return ("item", i.out, i.source)
            case a.Check():
                return ("check", encode_argument(i.cond), i.message)
            case a.Free():
                return ("free", i.regs)
            case a.Copy():
                return ("copy", i.dst, i.src)
            case a.Python():
                return ("python", self.functions[i.key], _operands(i.args), _operands(i.outs))
            case a.Subprogram():
                programs = tuple(self._nested(program) for program in i.programs)
                given = (_operands(i.inputs), _operands(i.outs), _operands(i.extra))
                return ("subprogram", i.kind, programs, *given, i.slices, encode_argument(i.length))
        raise TypeError(f"not an instruction: {i!r}")

    def _nested(self, program: a.Program) -> tuple[Any, ...]:
        if id(program) not in self.nested:
            self.nested[id(program)] = self.program(program, ())
        return self.nested[id(program)]


def encode_argument(value: Any) -> Any:
    """One argument in the form that the extension decodes."""
    if isinstance(value, a.Reg):
        return ("t", value.index)
    if isinstance(value, a.Scalar):
        return ("s", value.index)
    if isinstance(value, tuple):
        return ("l", _operands(value))
    return value


def _operands(values: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(encode_argument(value) for value in values)


def _input(spec: a.InputSpec) -> tuple[Any, ...]:
    sizes = None if spec.sizes is None else _operands(spec.sizes)
    strides = None if spec.strides is None else _operands(spec.strides)
    return (spec.kind == "scalar", spec.register, spec.dtype, spec.device, sizes, strides, spec.mutated)


def make_executor(
    artifact: a.Artifact,
    constants: Sequence[torch.Tensor],
    functions: Mapping[str, Callable[..., Any]],
    others: Mapping[int, KernelFunction],
    threads: int | None = None,
) -> Callable[..., tuple[Any, ...]]:
    """The native executor of a built artifact. ``others`` are the kernels that are not C++, by number; ``threads`` as in ``load``."""
    encoder = _Encoder(functions, threads)
    program = encoder.program(artifact.program, pinned(artifact, constants))
    kernels = tuple(_kernel(artifact, number, others) for number in range(len(artifact.kernels)))
    specs = artifact.program.inputs

    def misfit(position: int, value: Any, scalars: tuple[Any, ...], devices: tuple[int | None, ...]) -> Any:
        spec = specs[position]
        if spec.kind == "scalar":
            return check_scalar(position, spec, value)
        return check_tensor(position, spec, value, scalars.__getitem__, devices)

    def describe(number: int, position: int) -> str:
        return instruction_context(position, encoder.programs[number].instructions[position], artifact.kernels)

    def count(given: int) -> None:
        check_count(specs, (None,) * given)

    def ranges(number: int) -> Any:
        return program_ranges(artifact.digest[:16], number, encoder.programs[number], artifact.kernels)

    if artifact.program.devices and CUDA.is_available():
        # A program without inputs on the GPU may be what uses it first; the allocator must be ready then.
        CUDA.start()
    pairs = tuple((spec.register, tensor) for spec, tensor in zip(artifact.constants, constants))
    return extension().Executor(program, kernels, pairs, misfit, describe, count, ranges)


def _kernel(artifact: a.Artifact, number: int, others: Mapping[int, KernelFunction]) -> tuple[Any, ...]:
    kernel = artifact.kernels[number]
    if number in others:
        # A kernel for a GPU is launched by the extension, an interpreted one is called.
        target = getattr(others[number], "native", others[number])
    else:
        target = entry_address(load_library(artifact.libraries[kernel.library]), kernel.entry)
    return (kernel.name, target, kernel.scalar_kinds, kernel.checks)
