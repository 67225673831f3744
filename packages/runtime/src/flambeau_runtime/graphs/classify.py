"""Which instructions a CUDA graph can hold, and for every other one the reason.

In: an artifact. Out: one ``Verdict`` an instruction. A register is *dynamic* when its size or value is decided by data
on the device: whatever depends on it differs from call to call, so it is not recorded. A size that follows from the
sizes of the inputs is not dynamic: recordings are kept apart by those.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from attrs import define, field, frozen

from .. import artifact as a
from ..accelerators import CUDA, HOST_MEMORY, Accelerator, accelerator_of
from ..builtin_languages import TRITON
from ..text import instruction_text, position_text
from .operands import RANDOM_STATE, draws, operator_of, uses

DEVICE, HOST, PLAIN = "device", "host", "plain"
"""Kinds of verdict: work for a recording; arithmetic, views and held layouts, which fit anywhere; what must run plainly."""

READS_A_NUMBER, DECIDED_BY_DATA, WAITS = (
    "reads a number from a tensor", "control flow is decided by data", "waits for the device"
)  # fmt: skip
"""Reasons for which the host waits for the device."""

_SYNCHRONISING = frozenset({
    "aten::item", "aten::_local_scalar_dense", "aten::equal", "aten::is_nonzero", "aten::nonzero", "aten::masked_select",
    "aten::_unique2", "aten::unique_dim", "aten::unique_consecutive", "aten::unique_dim_consecutive", "aten::bincount",
    "aten::histc", "aten::repeat_interleave", "aten::multinomial", "aten::lift_fresh_copy", "aten::linalg_inv_ex",
    "aten::_linalg_solve_ex", "aten::linalg_lu_factor_ex", "aten::linalg_cholesky_ex", "aten::_linalg_svd",
    "aten::_linalg_eigh", "aten::linalg_eig", "aten::linalg_lstsq", "aten::_linalg_det", "aten::_linalg_slogdet",
    "aten::linalg_ldl_factor_ex", "aten::linalg_qr", "aten::geqrf", "aten::_ctc_loss", "aten::_embedding_bag",
    "aten::_embedding_bag_forward_only",
})  # fmt: skip
"""Operators whose CUDA implementations wait for the device, or may."""

_MASK_INDEXED = frozenset({"aten::index", "aten::index_put", "aten::index_put_", "aten::_unsafe_index"})
"""Operators that look up the places of a boolean index on the host."""

_SHAPED_AS_FIRST = frozenset({
    "aten::index_put", "aten::index_add", "aten::index_copy", "aten::index_fill", "aten::scatter", "aten::scatter_add",
    "aten::scatter_reduce", "aten::masked_scatter", "aten::slice_scatter", "aten::select_scatter",
})  # fmt: skip
"""Operators whose result has the sizes of their first argument, whatever the others are."""

_DYNAMIC_TAGS = ("dynamic_output_shape", "data_dependent_output", "cudagraph_unsafe")


@frozen
class Verdict:
    """What an instruction is to a recording; ``reason`` and ``position`` only where ``kind`` is ``plain``."""

    kind: str
    reason: str = ""
    position: str = ""


@define
class _Known:
    """What is known of the registers so far."""

    device: str
    devices: dict[int, str] = field(factory=dict)
    dtypes: dict[int, torch.dtype] = field(factory=dict)
    tensors: set[int] = field(factory=set)
    scalars: set[int] = field(factory=set)
    plain_random: bool = False
    conditions: bool = False

    def elsewhere(self, registers: Iterable[int]) -> bool:
        return any(self.devices.get(register, self.device) != self.device for register in registers)

    def is_elsewhere(self, device: Any) -> bool:
        return isinstance(device, torch.device | str) and torch.device(device).type != self.device


def _known_at_start(program: a.Program, device: str, plain_random: bool, conditions: bool) -> _Known:
    known = _Known(plain_random=plain_random, device=device, conditions=conditions)
    for spec in program.inputs:
        if spec.kind == "tensor":
            known.devices[spec.register] = device if spec.device is None else spec.device.type
            if spec.dtype is not None:
                known.dtypes[spec.register] = spec.dtype
    return known


def classify(
    artifact: a.Artifact, device: str, *, plain_random: bool = False, conditions: bool = False
) -> tuple[Verdict, ...]:
    """One verdict per instruction of the artifact's program.

    ``device`` is the type of the tensors that can be recorded. ``plain_random``: the state of the random generator is taken plainly, and so are
    the kernels that draw from it; for programs whose division would separate the two. ``conditions``: a recording can hold branches and loops
    that data decides.
    """
    known = _known_at_start(artifact.program, device, plain_random, conditions)
    for constant in artifact.constants:
        known.devices[constant.register] = constant.device.type
        known.dtypes[constant.register] = constant.dtype
    return tuple(_verdict(instruction, artifact, known) for instruction in artifact.program.instructions)


def accelerator_in(artifact: a.Artifact) -> Accelerator | None:
    """The kind of accelerator that an input, constant or result of the program is on; of several, the first."""
    devices = [spec.device for spec in artifact.program.inputs if spec.device is not None]
    devices += [spec.device for spec in artifact.constants]
    devices += [i.device for i in artifact.program.instructions if isinstance(i, a.Alloc)]
    found = next(filter(None, map(accelerator_of, devices)), None)
    # What a call makes is named by nothing else than the kernels that read it.
    return CUDA if found is None and any(lib.language == TRITON.name for lib in artifact.libraries) else found


def host_waits(artifact: a.Artifact) -> tuple[str, ...]:
    """Where the host waits for the device in a call of a program on an accelerator that is not recorded: reason and instruction."""
    accelerator = accelerator_in(artifact)
    if accelerator is None:
        return ()
    found = (
        verdict
        for verdict in classify(artifact, accelerator.type)
        if verdict.reason in (READS_A_NUMBER, DECIDED_BY_DATA, WAITS)
    )
    return tuple(f"{verdict.reason} ({verdict.position})" for verdict in found)


def _verdict(instruction: a.Instruction, artifact: a.Artifact, known: _Known) -> Verdict:
    kind, reason = _step(instruction, known)
    if kind != PLAIN:
        return Verdict(kind)
    return Verdict(kind, reason, _position(instruction, artifact))


def _step(instruction: a.Instruction, known: _Known) -> tuple[str, str]:
    """The kind of ``instruction`` and why, once noted what it leaves in the registers."""
    touched = uses(instruction)
    dynamic = bool(known.tensors.intersection(touched.tensors) or known.scalars.intersection(touched.scalars))
    found = _kind(instruction, known, dynamic)
    _remember(instruction, known, dynamic)
    return found


def _kind(instruction: a.Instruction, known: _Known, dynamic: bool) -> tuple[str, str]:
    match instruction:
        case a.Free():
            return HOST, ""
        case a.View() | a.Size() | a.Compute() | a.Hold():
            return (PLAIN, "sizes depend on data") if dynamic else (HOST, "")
        case a.Check():
            return (PLAIN, "checks a number that was read from the device") if dynamic else (HOST, "")
        case a.Item():
            elsewhere = known.elsewhere((instruction.source,))
            return PLAIN, "reads a number from a tensor of another device" if elsewhere else READS_A_NUMBER
        case a.Python():
            return PLAIN, "calls Python"
        case a.Subprogram(kind="cond" | "while"):
            reason = _decided_reason(instruction, known, dynamic)
            return (PLAIN, reason) if reason else (DEVICE, "")
        case a.Subprogram(kind="stack"):
            return PLAIN, DECIDED_BY_DATA
    if dynamic:
        return PLAIN, "sizes depend on data"
    touched = uses(instruction)
    match instruction:
        case a.Alloc(device=device):
            return (PLAIN, f"makes a tensor on {device.type}") if known.is_elsewhere(device) else (DEVICE, "")
        case a.Launch():
            elsewhere = known.elsewhere(touched.tensors)
            return (PLAIN, "runs a kernel on another device") if elsewhere else (DEVICE, "")
        case a.Copy():
            elsewhere = known.elsewhere(touched.tensors)
            return (PLAIN, "copies from or to another device") if elsewhere else (DEVICE, "")
        case a.Call():
            reason = _call_reason(instruction, known)
            return (PLAIN, reason) if reason else (DEVICE, "")
        case a.Subprogram():
            reason = _nested_reason(instruction.programs[0], known)
            return (PLAIN, reason) if reason else (DEVICE, "")
    return PLAIN, "is not known to be recordable"


def _nested_reason(program: a.Program, outer: _Known) -> str:
    """Why a nested program that runs unconditionally cannot be recorded, or ""."""
    known = _known_at_start(program, outer.device, outer.plain_random, outer.conditions)
    for instruction in program.instructions:
        kind, reason = _step(instruction, known)
        if kind == PLAIN:
            return reason
    return ""


def _decided_reason(sub: a.Subprogram, known: _Known, dynamic: bool) -> str:
    """Why a branch or loop that data decides cannot be recorded, or ""."""
    decides = sub.inputs[: 1 if sub.kind == "cond" else None]
    if known.elsewhere(value.index for value in decides if isinstance(value, a.Reg)):
        return "control flow is decided on another device"
    if dynamic or not known.conditions:
        return DECIDED_BY_DATA
    numbers = (sub.outs, sub.inputs) if sub.kind == "while" else (sub.outs,)
    if any(not isinstance(value, a.Reg | None) for values in numbers for value in values):
        return "control flow that is decided by data gives a number"
    if sub.kind == "while" and sub.programs[0].outputs[0].kind != "tensor":
        return "a loop is decided by a number"
    if any(map(draws, sub.programs)):
        return "random numbers are drawn where data decides"
    if any(isinstance(i, a.Check) for program in sub.programs for i in program.instructions):
        return "a number is checked where data decides"
    return next(filter(None, (_nested_reason(program, known) for program in sub.programs)), "")


def _call_reason(call: a.Call, known: _Known) -> str:
    """Why a library call cannot be recorded, or ""."""
    operator = operator_of(call)
    if call.op == RANDOM_STATE and known.plain_random:
        return "random numbers are drawn in another part"
    if call.op in _SYNCHRONISING:
        return WAITS
    if call.op.startswith(("_c10d_functional::", "c10d::", "symm_mem::")):
        return "communicates with other processes"
    if any(ret.alias_info is not None for ret in operator._schema.returns) and any(call.outs):
        return "its result shares memory with an argument"
    touched = uses(call)
    if known.elsewhere(touched.tensors):
        return "takes a tensor of another device"
    if known.is_elsewhere(dict(call.kwargs).get("device")):
        return "makes a tensor on another device"
    if call.op in _MASK_INDEXED:
        rest = [register for register in touched.tensors if call.args[0] != a.Reg(register)]
        masked = any(known.dtypes.get(register, torch.bool) in (torch.bool, torch.uint8) for register in rest)
        return "indexes with a mask, or with what may be one" if masked else ""
    return "its result's size or value depends on data" if _tags(call).intersection(_DYNAMIC_TAGS) else ""


def _tags(call: a.Call) -> set[str]:
    return {str(tag).rpartition(".")[2] for tag in operator_of(call).tags}


def _remember(instruction: a.Instruction, known: _Known, dynamic: bool) -> None:
    """Note where the results live and whether they are dynamic."""
    touched = uses(instruction)
    if isinstance(instruction, a.Item) or (isinstance(instruction, a.Subprogram) and instruction.kind == "stack"):
        dynamic = True
    if isinstance(instruction, a.Call):
        dynamic = _gives_dynamic(instruction, known, dynamic)
    for register in touched.tensor_outs:
        known.devices[register] = _device_of(instruction, known)
        known.dtypes.pop(register, None)
        dtype = getattr(instruction, "dtype", None) or (
            known.dtypes.get(instruction.source) if isinstance(instruction, a.View) else None
        )
        if dtype is not None:
            known.dtypes[register] = dtype
        (known.tensors.add if dynamic else known.tensors.discard)(register)
    for register in touched.scalar_outs:
        (known.scalars.add if dynamic else known.scalars.discard)(register)


def _gives_dynamic(call: a.Call, known: _Known, dynamic: bool) -> bool:
    first = call.args[0] if call.args else None
    if call.op == RANDOM_STATE:
        return known.plain_random
    if call.op in _SHAPED_AS_FIRST and isinstance(first, a.Reg):
        return first.index in known.tensors
    if call.op in _MASK_INDEXED:
        return dynamic or bool(_call_reason(call, known))
    return dynamic or bool(_tags(call).intersection(_DYNAMIC_TAGS[:2]))


def _device_of(instruction: a.Instruction, known: _Known) -> str:
    if isinstance(instruction, a.Alloc | a.Hold):
        return instruction.device.type
    if isinstance(instruction, a.Call):
        device = dict(instruction.kwargs).get("device")
        if isinstance(device, torch.device | str):
            return torch.device(device).type
    read = [known.devices.get(register, known.device) for register in uses(instruction).tensors]
    return next((device for device in read if device != HOST_MEMORY.type), read[0] if read else known.device)


def _position(instruction: a.Instruction, artifact: a.Artifact) -> str:
    if isinstance(instruction, a.Launch):
        kernel = artifact.kernels[instruction.kernel]
        return position_text(kernel.meta.get("stack")) or kernel.name
    if isinstance(instruction, a.Call):
        return instruction.op
    return instruction_text(instruction, tuple(artifact.kernels)).splitlines()[0]
