"""Artifacts as text for people: one instruction a line, registers as ``t3`` and ``s1``."""

from __future__ import annotations

from typing import Any

import torch

from . import records as a


def operand_text(value: Any) -> str:
    """One argument as it is printed in a program."""
    if isinstance(value, a.Scalar):
        return f"s{value.index}"
    if isinstance(value, a.Reg):
        return f"t{value.index}"
    if isinstance(value, tuple):
        return "[" + ", ".join(operand_text(item) for item in value) + "]"
    if isinstance(value, (torch.dtype, torch.layout, torch.memory_format)):
        return str(value).removeprefix("torch.")
    return str(value) if isinstance(value, torch.device) else repr(value)


def _layout(sizes: Any, strides: Any) -> str:
    return f"{operand_text(tuple(sizes))} strides {operand_text(tuple(strides))}"


def _dtype(dtype: torch.dtype | None) -> str:
    return "any" if dtype is None else str(dtype).removeprefix("torch.")


def layout_text(dtype: torch.dtype, sizes: Any, strides: Any, device: torch.device) -> str:
    """What a tensor is and how it lies: ``float32 [2, 3] strides [3, 1] on cpu``."""
    return f"{_dtype(dtype)} {_layout(sizes, strides)} on {device.type}"


def _call_arguments(args: tuple[Any, ...], kwargs: tuple[tuple[str, Any], ...] = ()) -> str:
    return ", ".join([*map(operand_text, args), *(f"{key}={operand_text(value)}" for key, value in kwargs)])


def _outs(outs: tuple[a.Reg | a.Scalar | None, ...]) -> str:
    return ", ".join("_" if out is None else operand_text(out) for out in outs) or "_"


class Bodies:
    """The numbers of nested programs, by their first appearance: one that stands in several places is printed once."""

    def __init__(self) -> None:
        self._numbers: dict[int, int] = {}

    def number(self, program: a.Program) -> tuple[int, bool]:
        """The number of ``program``, and whether it is new."""
        count = len(self._numbers)
        found = self._numbers.setdefault(id(program), count)
        return found, found == count


def instruction_text(
    instruction: a.Instruction, kernels: tuple[a.Kernel, ...] = (), bodies: Bodies | None = None
) -> str:
    """One instruction on one line (a ``Subprogram`` on several); with ``kernels`` given, launches are shown by name."""
    match instruction:
        case a.Alloc(out, sizes, strides, dtype, device):
            return f"t{out} = alloc {_dtype(dtype)} {_layout(sizes, strides)} on {device}"
        case a.View(out, source, sizes, strides, offset, dtype):
            as_dtype = "" if dtype is None else f" as {_dtype(dtype)}"
            return f"t{out} = view t{source} {_layout(sizes, strides)} offset {operand_text(offset)}{as_dtype}"
        case a.Launch(kernel, buffers, scalars, extent, grain, grid):
            name = kernels[kernel].name if kernel < len(kernels) else f"kernel{kernel}"
            arguments = ", ".join([*(f"t{index}" for index in buffers), *map(operand_text, scalars)])
            if grid is not None:
                return f"launch {name}({arguments}) grid {operand_text(grid)}"
            return f"launch {name}({arguments}) extent {operand_text(extent)} grain {grain}"
        case a.Call(op, overload, args, kwargs, outs, grad_mode):
            name = f"{op}.{overload}" if overload else op
            return f"{_outs(outs)} = call {name}({_call_arguments(args, kwargs)})" + (
                " in grad mode" if grad_mode else ""
            )
        case a.Hold(reg, sizes, strides, dtype, device, op):
            return f"hold t{reg} {layout_text(dtype, sizes, strides, device)} from {op or 'a call'}"
        case a.Compute(out, opcode, args):
            return f"s{out} = {opcode} {', '.join(map(operand_text, args))}"
        case a.Size(out, source, dim, kind):
            return f"s{out} = {kind} t{source}" + ("" if kind == "offset" else f" dim {dim}")
        case a.Item(out, source):
            return f"s{out} = item t{source}"
        case a.Check(cond, message):
            return f"check {operand_text(cond)}, {message!r}"
        case a.Free(regs):
            return "free " + ", ".join(f"t{index}" for index in regs)
        case a.Copy(dst, src):
            return f"copy t{dst} <- t{src}"
        case a.Python(key, args, outs):
            return f"{_outs(outs)} = python {key}({_call_arguments(args)})"
        case a.Subprogram():
            return _subprogram(instruction, kernels, bodies or Bodies())
    raise TypeError(f"not an instruction: {instruction!r}")


def _subprogram(sub: a.Subprogram, kernels: tuple[a.Kernel, ...], bodies: Bodies) -> str:
    lines = [f"{_outs(sub.outs)} = {sub.kind}({_call_arguments(sub.inputs + sub.extra)})"]
    if sub.kind == "scan":
        over = ", ".join(f"t{index}" for index in sub.slices)
        lines[0] += f" over [{over}] for {operand_text(sub.length)} steps"
    for program in sub.programs:
        number, new = bodies.number(program)
        lines.append(f"  program {number}" + (":" if new else " (above)"))
        if new:
            lines.append(_indent(program_text(program, kernels, bodies), 4))
    return "\n".join(lines)


def _indent(text: str, columns: int) -> str:
    return "\n".join(" " * columns + line for line in text.splitlines())


def _input_text(position: int, spec: a.InputSpec) -> str:
    register = f"t{spec.register}" if spec.kind == "tensor" else f"s{spec.register}"
    if spec.kind == "scalar":
        return f"input {position}: {register} scalar"
    sizes = "any sizes" if spec.sizes is None else operand_text(spec.sizes)
    strides = "" if spec.strides is None else f" strides {operand_text(spec.strides)}"
    marks = "".join(f" {mark}" for mark in ("static", "mutated") if getattr(spec, mark))
    name = f" {spec.name}" if spec.name else ""
    return f"input {position}: {register}{name} {_dtype(spec.dtype)} {sizes}{strides} on {spec.device}{marks}"


def _output_text(spec: a.OutputSpec) -> str:
    if spec.kind == "tensor":
        return f"t{spec.value}"
    if spec.kind == "input":
        return f"input {spec.value}"
    return "None" if spec.kind == "none" else operand_text(spec.value)


def program_text(program: a.Program, kernels: tuple[a.Kernel, ...] = (), bodies: Bodies | None = None) -> str:
    """Inputs, instructions and outputs of one program."""
    lines = [_input_text(position, spec) for position, spec in enumerate(program.inputs)]
    bodies = bodies or Bodies()
    lines += [instruction_text(instruction, kernels, bodies) for instruction in program.instructions]
    lines.append("return " + ", ".join(map(_output_text, program.outputs)))
    return "\n".join(lines)


def position_text(stack: Any) -> str:
    """``file:line in function`` of the last user position in a kernel's ``meta["stack"]``, or an empty string.

    Entries are such texts already, or ``(file, line, function)`` with the innermost frame last.
    """
    if not stack:
        return ""
    if isinstance(stack[-1], str) and not isinstance(stack[0], (tuple, list)) and ":" in stack[-1]:
        return stack[-1]
    frame = stack[-1] if isinstance(stack[0], (tuple, list)) else stack
    return f"{frame[0]}:{frame[1]}" + (f" in {frame[2]}" if len(frame) > 2 else "")


def artifact_text(artifact: a.Contents) -> str:
    """The whole artifact without sources: symbols, constants, kernels with their origins, program."""
    lines = [f"artifact format {artifact.version} digest {artifact.digest[:16]}"]
    lines += [f"symbol {s.name} = s{s.register}  # {s.hint} while compiling" for s in artifact.symbols]
    for constant in artifact.constants:
        where = "by reference" if constant.data is None else f"{len(constant.data)} bytes inside"
        lines.append(
            f"constant t{constant.register} {constant.name} {_dtype(constant.dtype)} {operand_text(constant.sizes)} {where}"
        )
    for library in artifact.libraries:
        state = "not built" if library.binary is None else f"{len(library.binary)} bytes"
        lines.append(f"library {library.name} ({library.language}, {state})")
    for kernel in artifact.kernels:
        origins = ", ".join(map(str, kernel.meta.get("origins", ())))
        modules = ", ".join(map(str, kernel.meta.get("modules", ())))
        notes = [
            part for part in (origins, modules and f"in {modules}", position_text(kernel.meta.get("stack"))) if part
        ]
        suffix = f"  # {'; '.join(notes)}" if notes else ""
        lines.append(f"kernel {kernel.name}: {kernel.buffers} buffers, {kernel.scalars} scalars{suffix}")
    return "\n".join([*lines, program_text(artifact.program, artifact.kernels)]) + "\n"
