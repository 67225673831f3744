"""Structural checks of artifacts: every register is defined before it is read, every index is in range."""

from __future__ import annotations

from typing import Any, NoReturn

import attrs

from . import records as a
from .accelerators import accelerator_of
from .devices import devices_of
from .errors import ArtifactError
from .languages import language_of
from .text import instruction_text


class _Scope:
    """What is defined at one point of one program."""

    def __init__(self, program: a.Program, artifact: a.Contents, where: str, checked: set[int]) -> None:
        self.program, self.artifact, self.where = program, artifact, where
        #: The nested programs (by identity) that were checked where they stood first.
        self.checked = checked
        self.current: tuple[int, Any] | None = None
        self.tensors: set[int] = set()
        self.scalars: set[int] = set()

    def fail(self, reason: str) -> NoReturn:
        raise ArtifactError(f"{self.position()}: {reason}")

    def position(self) -> str:
        """Where the check stands; made only when something is wrong."""
        if self.current is None:
            return self.where
        number, instruction = self.current
        text = ""
        if attrs.has(type(instruction)):
            text = instruction_text(instruction, self.artifact.kernels).splitlines()[0]
        return f"{self.where}, instruction {number} ({text})"

    def define_tensor(self, index: int) -> None:
        if not 0 <= index < self.program.tensor_registers:
            self.fail(f"t{index} is outside the {self.program.tensor_registers} tensor registers")
        self.tensors.add(index)

    def define_scalar(self, index: int) -> None:
        if not 0 <= index < self.program.scalar_registers:
            self.fail(f"s{index} is outside the {self.program.scalar_registers} scalar registers")
        self.scalars.add(index)

    def define(self, out: a.Reg | a.Scalar | None) -> None:
        if isinstance(out, a.Reg):
            self.define_tensor(out.index)
        elif isinstance(out, a.Scalar):
            self.define_scalar(out.index)

    def read_tensor(self, index: int) -> None:
        if index not in self.tensors:
            self.fail(f"t{index} is read but not defined (or freed)")

    def read(self, value: Any) -> None:
        """An argument of any kind: registers in it must be defined."""
        if isinstance(value, a.Reg):
            self.read_tensor(value.index)
        elif isinstance(value, a.Scalar):
            if value.index not in self.scalars:
                self.fail(f"s{value.index} is read but not defined")
        elif isinstance(value, tuple):
            for item in value:
                self.read(item)

    def layout(self, sizes: a.Size1D, strides: a.Size1D) -> None:
        if len(sizes) != len(strides):
            self.fail(f"{len(sizes)} sizes but {len(strides)} strides")
        self.read(sizes)
        self.read(strides)


def _check_launch(scope: _Scope, instruction: a.Launch) -> None:
    kernels = scope.artifact.kernels
    if not 0 <= instruction.kernel < len(kernels):
        scope.fail(f"kernel {instruction.kernel} does not exist")
    kernel = kernels[instruction.kernel]
    if len(instruction.buffers) != kernel.buffers or len(instruction.scalars) != kernel.scalars:
        scope.fail(
            f"kernel {kernel.name} takes {kernel.buffers} buffers and {kernel.scalars} scalars, "
            f"got {len(instruction.buffers)} and {len(instruction.scalars)}"
        )
    if instruction.grain < 1:
        scope.fail("grain must be at least 1")
    for index in instruction.buffers:
        scope.read_tensor(index)
    scope.read(instruction.scalars)
    scope.read((instruction.extent, *(instruction.grid or ())))


def _check_subprogram(scope: _Scope, instruction: a.Subprogram) -> None:
    kind, programs = instruction.kind, instruction.programs
    if a.SUBPROGRAMS.get(kind) != len(programs):
        scope.fail(f"there is no subprogram {kind!r} of {len(programs)} programs, only {a.SUBPROGRAMS}")
    if instruction.slices and kind != "scan":
        scope.fail(f"a {kind!r} takes no slices")
    scope.read((*instruction.inputs, *instruction.extra, instruction.length))
    for index in instruction.slices:
        scope.read_tensor(index)
    if kind == "cond" and not instruction.inputs:
        scope.fail("a 'cond' takes a predicate")
    passed = len(instruction.inputs[kind == "cond" :]) + len(instruction.extra) + len(instruction.slices)
    for position, program in enumerate(programs):
        if len(program.inputs) != passed:
            scope.fail(f"program {position} takes {len(program.inputs)} inputs, {passed} are passed")
        asks = kind in ("while", "stack") and position == 0
        if asks and len(program.outputs) != 1:
            scope.fail(f"the condition of a {kind!r} has one output, not {len(program.outputs)}")
        if not asks and len(program.outputs) != len(instruction.outs):
            scope.fail(f"program {position} has {len(program.outputs)} outputs, {len(instruction.outs)} are taken")
        if id(program) not in scope.checked:
            scope.checked.add(id(program))
            _check_program(program, scope.artifact, f"{scope.position()}, program {position}", scope.checked)
    for out in instruction.outs:
        scope.define(out)


def _check_instruction(scope: _Scope, instruction: Any) -> None:
    match instruction:
        case a.Alloc():
            scope.layout(instruction.sizes, instruction.strides)
            scope.define_tensor(instruction.out)
        case a.View():
            scope.read_tensor(instruction.source)
            scope.layout(instruction.sizes, instruction.strides)
            scope.read(instruction.offset)
            scope.define_tensor(instruction.out)
        case a.Launch():
            _check_launch(scope, instruction)
        case a.Call() | a.Python():
            scope.read(instruction.args)
            for _, value in instruction.kwargs if isinstance(instruction, a.Call) else ():
                scope.read(value)
            for out in instruction.outs:
                scope.define(out)
        case a.Hold():
            scope.read_tensor(instruction.reg)
            scope.layout(instruction.sizes, instruction.strides)
        case a.Compute():
            if a.OPCODES.get(instruction.opcode) != len(instruction.args):
                scope.fail(f"unknown opcode {instruction.opcode!r} with {len(instruction.args)} arguments")
            scope.read(instruction.args)
            scope.define_scalar(instruction.out)
        case a.Size() | a.Item():
            if isinstance(instruction, a.Size) and instruction.kind not in ("size", "stride", "offset"):
                scope.fail(f"unknown size kind {instruction.kind!r}")
            scope.read_tensor(instruction.source)
            scope.define_scalar(instruction.out)
        case a.Check():
            scope.read(instruction.cond)
        case a.Free():
            for index in instruction.regs:
                scope.read_tensor(index)
                scope.tensors.discard(index)
        case a.Copy():
            scope.read_tensor(instruction.dst)
            scope.read_tensor(instruction.src)
        case a.Subprogram():
            _check_subprogram(scope, instruction)
        case _:
            scope.fail(f"{type(instruction).__name__} is not an instruction")


def _check_inputs(scope: _Scope) -> None:
    for spec in scope.program.inputs:
        if spec.kind == "scalar":
            scope.define_scalar(spec.register)
        elif spec.kind == "tensor":
            scope.define_tensor(spec.register)
        else:
            scope.fail(f"unknown input kind {spec.kind!r}")
    for spec in scope.program.inputs:
        scope.read((spec.sizes or ()) + (spec.strides or ()))
        if spec.sizes is not None and spec.strides is not None and len(spec.sizes) != len(spec.strides):
            scope.fail(f"input {spec.name or spec.register}: {len(spec.sizes)} sizes, {len(spec.strides)} strides")
        if spec.strides is not None and spec.sizes is None:
            scope.fail(f"input {spec.name or spec.register}: strides without sizes")


def _check_outputs(scope: _Scope) -> None:
    for spec in scope.program.outputs:
        if spec.kind == "tensor" and isinstance(spec.value, int):
            scope.read_tensor(spec.value)
        elif spec.kind == "scalar":
            scope.read(spec.value)
        elif spec.kind == "input" and isinstance(spec.value, int):
            if not 0 <= spec.value < len(scope.program.inputs):
                scope.fail(f"there is no input {spec.value}")
        elif spec.kind != "none":
            scope.fail(f"unknown output {spec!r}")


def _check_program(program: a.Program, artifact: a.Contents, where: str, checked: set[int]) -> None:
    scope = _Scope(program, artifact, f"{where}, inputs", checked)
    if program is artifact.program:
        for constant in artifact.constants:
            scope.define_tensor(constant.register)
    _check_inputs(scope)
    scope.where = where
    for scope.current in enumerate(program.instructions):
        _check_instruction(scope, scope.current[1])
    scope.current, scope.where = None, f"{where}, outputs"
    _check_outputs(scope)


def _check_devices(program: a.Program) -> None:
    given = [spec.device for spec in program.inputs if spec.device is not None]
    for device in (*given, *devices_of(program)):
        if accelerator_of(device) and (device.index is None or device.index >= len(program.devices)):
            raise ArtifactError(f"program: {device} is none of its {len(program.devices)} devices")


def validate(artifact: a.Contents) -> None:
    """Raise ``ArtifactError`` naming the first thing that does not make sense."""
    if artifact.version != a.FORMAT_VERSION:
        raise ArtifactError(f"the artifact has format {artifact.version}, this runtime reads {a.FORMAT_VERSION}")
    for library in artifact.libraries:
        language_of(library)
    for kernel in artifact.kernels:
        if not 0 <= kernel.library < len(artifact.libraries):
            raise ArtifactError(f"kernel {kernel.name}: library {kernel.library} does not exist")
        if kernel.dtypes and len(kernel.dtypes) != kernel.buffers:
            raise ArtifactError(f"kernel {kernel.name}: {len(kernel.dtypes)} dtypes for {kernel.buffers} buffers")
        if kernel.scalar_kinds and (
            len(kernel.scalar_kinds) != kernel.scalars or set(kernel.scalar_kinds) - {"i", "f"}
        ):
            raise ArtifactError(
                f"kernel {kernel.name}: scalar kinds {kernel.scalar_kinds!r} for {kernel.scalars} scalars"
            )
    _check_devices(artifact.program)
    _check_program(artifact.program, artifact, "program", set())
