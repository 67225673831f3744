"""The outer program: allocations, launches and library calls as an ``Artifact``.

In: a lowered graph, its schedule, and the generated kernels. Out: the artifact and the constants that ``load`` needs, in order.
Memory is taken when a result is first written, given back after its last use, and handed on to a later result of the same
size where that is possible.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import torch
from attrs import field, frozen

from flambeau_runtime.artifact import (
    Alloc,
    Artifact,
    Call,
    Check,
    ConstantSpec,
    Free,
    Hold,
    InputSpec,
    Instruction,
    Item,
    Kernel,
    Launch,
    Library,
    Operand,
    OutputSpec,
    Program,
    Reg,
    Scalar,
    Size,
    Subprogram,
    Symbol,
    View,
)

from .. import expr as ex
from ..codegen.kernel import GeneratedKernel
from ..devices import device_of
from ..expr import Expr
from ..ir.graph import Graph, ScalarInput, TensorInput
from ..ir.kernel import Combined
from ..ir.layout import Buffer, Ref
from ..ir.loops import Assert, Extern, Nested, ReadItem, refs
from ..ir.scalar import Scalar as ScalarNode
from ..ops.aten import Trait, aten_op
from ..ops.packing import is_packing
from ..schedule import LaunchStep, Schedule
from ..schedule.steps import step_reads, step_writes
from .memory import hand_overs, may_alias, pinned_buffers
from .registers import Registers
from .work import work_of


@frozen
class BuiltProgram:
    """The artifact, and the tensors of its constants without data, in order."""

    artifact: Artifact
    constants: tuple[torch.Tensor, ...]


def build(
    graph: Graph,
    schedule: Schedule,
    kernels: Mapping[str, tuple[int, GeneratedKernel]],
    libraries: Sequence[Library] = (),
    meta: dict[str, Any] | None = None,
    *,
    bodies: Mapping[str, Schedule] | None = None,
    allow_buffer_reuse: bool = True,
    size_asserts: bool = True,
) -> BuiltProgram:
    """Assemble the artifact. ``kernels`` maps the name of a step that is launched to (library, kernel).

    ``bodies`` has the schedules of ``graph.bodies``, whose kernels are among ``kernels``. The artifact's ``meta["waits"]``,
    where there is one, names what reads a number from a GPU to decide how to go on.

    With ``size_asserts`` the results of library calls are held to the layouts that the fake run predicted, wherever the
    program relies on them; without, only those of calls that are known to choose their layout.
    """
    whole = _Whole(graph.bodies, kernels, libraries, allow_buffer_reuse, size_asserts)
    for name, body in graph.bodies.items():
        # Each comes after those that it calls.
        whole.programs[name] = _Builder(body, (bodies or {})[name], whole).program()
    return _Builder(graph, schedule, whole).run(meta or {})


@frozen
class _Whole:
    """What the programs of one artifact have in common: its kernels, its nested programs by name, what waits for a GPU."""

    graphs: Mapping[str, Graph]
    generated: Mapping[str, tuple[int, GeneratedKernel]]
    libraries: Sequence[Library]
    allow_buffer_reuse: bool
    size_asserts: bool
    kernels: list[Kernel] = field(factory=list)
    programs: dict[str, Program] = field(factory=dict)
    waits: list[str] = field(factory=list)


class _Builder:
    def __init__(self, graph: Graph, schedule: Schedule, whole: _Whole) -> None:
        self.graph, self.schedule, self.whole = graph, schedule, whole
        self.buffers = schedule.buffers
        self.registers = Registers()
        self.register_of: dict[str, int] = {}
        self.views: dict[Ref, int] = {}
        self.inputs: list[InputSpec] = []
        self.constants: list[ConstantSpec] = []
        self.symbols: list[Symbol] = []
        self.offsets: dict[str, int | Scalar] = {}
        self.outer = {i.buffer.name for i in graph.inputs if isinstance(i, TensorInput)}
        self.outer |= {c.buffer.name for c in graph.constants}
        #: Storage -> the storage whose memory it takes on; and the storages that give theirs.
        self.inherits: dict[str, str] = {}
        self.handed_on: set[str] = set()
        self.owned: set[str] = set()
        self.relied_on = self._relied_on()

    @property
    def instructions(self) -> list[Instruction]:
        return self.registers.instructions

    def run(self, meta: dict[str, Any]) -> BuiltProgram:
        constants = self._constants()
        program = self.program()
        told = {**meta, "waits": list(self.whole.waits)} if self.whole.waits else meta
        whole = self.whole
        artifact = Artifact(
            program, tuple(whole.libraries), tuple(whole.kernels), tuple(self.constants), tuple(self.symbols), told
        )
        return BuiltProgram(artifact, constants)

    def program(self) -> Program:
        """The instructions of this graph."""
        self._inputs()
        deaths = self._deaths()
        for position, step in enumerate(self.schedule.steps):
            if isinstance(step, LaunchStep):
                self._launch(step)
            elif isinstance(step, Extern):
                self._call(step)
            elif isinstance(step, ReadItem):
                self._item(step)
            else:
                self._check(step)
            self._release(deaths.get(position, []))
        outputs = [self._output(output) for output in self.graph.outputs]
        return Program(
            self.instructions, self.registers.tensors, self.registers.scalars, tuple(self.inputs), tuple(outputs)
        )

    # ---- what enters -----------------------------------------------------------------------------------------------------------
    def _inputs(self) -> None:
        regs = self.registers
        written = {b.storage for b in self.buffers.values() if b.in_place}
        for item in self.graph.inputs:
            if isinstance(item, ScalarInput):
                scalar = regs.scalar()
                if item.value is not None and item.value.is_symbol:
                    regs.known.setdefault(item.value, scalar)
                    self.symbols.append(Symbol(item.value.name, scalar.index, ex.hint(item.value)))
                regs.parameters[item.name] = scalar
        scalars = iter(list(regs.parameters.values()))
        for item in self.graph.inputs:
            if isinstance(item, ScalarInput):
                self.inputs.append(InputSpec("scalar", next(scalars).index, item.dtype, name=item.name))
            else:
                self._tensor_input(item, item.buffer.name in written)
        self._sizes_from_tensors()

    def _tensor_input(self, item: TensorInput, mutated: bool) -> None:
        register = self.registers.tensor()
        layout = item.buffer.layout
        self.register_of[item.buffer.name] = register
        sizes = None if item.opaque else tuple(self._checked(s) for s in layout.sizes)
        strides = None if item.opaque else tuple(self._checked(s) for s in layout.strides)
        self.inputs.append(
            InputSpec(
                "tensor", register, layout.dtype, layout.device, sizes, strides, item.static, mutated, item.buffer.name
            )
        )

    def _checked(self, e: Expr) -> int | Scalar | None:
        if e.is_int:
            return int(e)
        known = self.registers.known.get(e)
        return known if isinstance(known, Scalar) else None

    def _sizes_from_tensors(self) -> None:
        """Symbols that no scalar input carries are read from the tensors that have them as a size or stride."""
        known = self.registers.known
        for item in self.graph.inputs:
            if not isinstance(item, TensorInput):
                continue
            layout = item.buffer.layout
            for kind, values in (("size", layout.sizes), ("stride", layout.strides)):
                for dim, value in enumerate(values):
                    if value.is_symbol and value not in known:
                        out = self.registers.scalar()
                        self.instructions.append(Size(out.index, self.register_of[item.buffer.name], dim, kind))
                        known[value] = out

    def _constants(self) -> tuple[torch.Tensor, ...]:
        tensors: list[torch.Tensor] = []
        for constant in self.graph.constants:
            register = self.registers.tensor()
            tensor = constant.tensor
            self.register_of[constant.buffer.name] = register
            spec = ConstantSpec(
                register, tensor.dtype, tuple(tensor.shape), tensor.device.type, None, constant.buffer.name
            )
            self.constants.append(spec)
            tensors.append(tensor)
        return tuple(tensors)

    # ---- memory -----------------------------------------------------------------------------------------------------------------
    def _deaths(self) -> dict[int, list[str]]:
        """Step -> storages whose last use it is."""
        last: dict[str, int] = {}
        for position, step in enumerate(self.schedule.steps):
            for name in step_reads(step) | step_writes(step):
                last[self.buffers[name].storage] = position
        kept = {self.buffers[o.buffer].storage for o in self.graph.outputs if isinstance(o, Ref)} | self.outer
        found: dict[int, list[str]] = {}
        lent = self._lent()
        for storage, position in last.items():
            if storage not in kept or storage in lent:
                found.setdefault(position, []).append(storage)
        if self.whole.allow_buffer_reuse:
            pinned = {
                self.buffers[n].storage for n in pinned_buffers(self.graph, self.schedule.steps) if n in self.buffers
            }
            self.inherits = {new: old for old, new in hand_overs(self.schedule, kept | pinned, self.outer).items()}
            self.handed_on = set(self.inherits.values())
        return found

    def _lent(self) -> set[str]:
        """Inputs that nobody sees after their last use: a caller who gives them away (a backward its saved tensors) is rid of them."""
        seen = {o.buffer for o in self.graph.outputs if isinstance(o, Ref)}
        seen |= {b.storage for b in self.buffers.values() if b.in_place}
        passing = {i.buffer.name for i in self.graph.inputs if isinstance(i, TensorInput) and not i.static}
        return passing - seen

    def _register(self, name: str) -> int:
        """The register of a buffer, allocated when it is new."""
        buffer = self.buffers[name]
        storage = self.buffers.get(buffer.storage, buffer)
        found = self.register_of.get(storage.name)
        if found is None:
            if storage.name in self.inherits:
                found = self.register_of[self.inherits[storage.name]]
            else:
                found = self.registers.tensor()
                layout = storage.layout
                self.instructions.append(
                    Alloc(found, self._all(layout.sizes), self._all(layout.strides), layout.dtype, layout.device)
                )
            self.register_of[storage.name] = found
            self.owned.add(storage.name)
        return found

    def _all(self, values: Sequence[Expr]) -> tuple[Any, ...]:
        return tuple(self.registers.operand(v) for v in values)

    def _release(self, storages: Sequence[str]) -> None:
        """Give memory back, unless a later result of the same shape takes it on."""
        freed: list[int] = []
        for storage in sorted(storages):
            register = self.register_of.get(storage)
            if register is None:
                continue
            views = [r for ref, r in self.views.items() if self.buffers[ref.buffer].storage == storage]
            self.views = {ref: r for ref, r in self.views.items() if self.buffers[ref.buffer].storage != storage}
            freed += views
            if storage not in self.handed_on:
                freed.append(register)
        if freed:
            self.instructions.append(Free(tuple(dict.fromkeys(freed))))

    # ---- steps --------------------------------------------------------------------------------------------------------------------
    def _launch(self, body: LaunchStep) -> None:
        library, kernel = self.whole.generated[body.name]
        buffers = tuple(self._register(name) for name in kernel.buffers)
        scalars = tuple(self._scalar(s) for s in kernel.scalars)
        self.whole.kernels.append(
            Kernel(
                kernel.name, library, kernel.name, len(buffers), len(scalars), kernel.dtypes, kernel.scalar_kinds, kernel.checks,
                {**kernel.meta, **_facts(body, self.graph, self.buffers)},
            )
        )  # fmt: skip
        extent = self.registers.operand(kernel.extent)
        grid = (extent, 1, 1) if kernel.in_grid else None
        self.instructions.append(Launch(len(self.whole.kernels) - 1, buffers, scalars, extent, kernel.grain, grid))

    def _scalar(self, scalar: Expr | str) -> Operand:
        return self.registers.parameters[scalar] if isinstance(scalar, str) else self.registers.operand(scalar)

    def _call(self, step: Extern) -> None:
        args = tuple(self._argument(a) for a in step.args)
        kwargs = {name: self._argument(a) for name, a in step.kwargs.items()}
        outs = self._outs(step)
        self.instructions.append(self._instruction(step, args, kwargs, outs))
        for symbol, position, dim in step.binds:
            out = step.outs[position]
            if dim is not None and out is not None and not isinstance(symbol, str):
                scalar = self.registers.scalar()
                self.instructions.append(Size(scalar.index, self._register(out.name), dim))
                self.registers.known[symbol] = scalar
        if self.whole.size_asserts or Trait.CHOOSES_LAYOUT in _traits(step):
            self._hold(step)

    def _outs(self, step: Extern) -> tuple[Reg | Scalar | None, ...]:
        """Fresh registers for the results."""
        binds = {position: symbol for symbol, position, dim in step.binds if dim is None}
        outs: list[Reg | Scalar | None] = []
        for position, out in enumerate(step.outs):
            if out is not None:
                self.register_of[out.name] = self.registers.tensor()
                outs.append(Reg(self.register_of[out.name]))
            elif position in binds:
                scalar = self.registers.scalar()
                bound = binds[position]
                if isinstance(bound, str):
                    self.registers.parameters[bound] = scalar
                else:
                    self.registers.known[bound] = scalar
                outs.append(scalar)
            else:
                outs.append(None)
        return tuple(outs)

    def _instruction(
        self, step: Extern, args: tuple[Any, ...], kwargs: dict[str, Any], outs: tuple[Reg | Scalar | None, ...]
    ) -> Call | Subprogram:
        if not isinstance(step.op, Nested):
            schema = step.op._schema
            facts = _facts(step, self.graph, self.buffers)
            return Call(schema.name, schema.overload_name, args, kwargs, outs, step.keeps is not None, facts)
        if self._waits(step, step.op):
            self.whole.waits.append(f"{step.op.kind} {', '.join(step.origins)}")
        passed, same, slices = args
        programs = tuple(self.whole.programs[name] for name in step.op.bodies)
        registers = tuple(reg.index for reg in slices)
        return Subprogram(step.op.kind, programs, passed, outs, same, registers, kwargs.get("length", 0))

    def _waits(self, step: Extern, op: Nested) -> bool:
        """Whether what decides how to go on, a condition's result or the predicate, is read from a device that the host waits for."""
        if op.kind not in ("cond", "while", "stack"):
            return False
        decides = step.args[0][0] if op.kind == "cond" else self.whole.graphs[op.bodies[0]].outputs[0]
        return isinstance(decides, Ref) and device_of(decides.device).queues

    def _relied_on(self) -> set[str]:
        """Storages whose layout the program relies on: a kernel indexes them, a window lies on them, or they leave."""
        names = {output.buffer for output in self.graph.outputs if isinstance(output, Ref)}
        for step in self.schedule.steps:
            if isinstance(step, Extern):
                # A call that is handed the whole tensor asks it for its layout; a result that shares its memory lies in it.
                # Bodies are compiled for the layouts of what they are given.
                every = isinstance(step.op, Nested) or may_alias(step) or Trait.BY_STRIDES in _traits(step)
                names |= {r.buffer for r in refs((step.args, step.kwargs)) if every or not self._is_whole(r)}
            else:
                names |= step_reads(step) | step_writes(step)
        return {self.buffers[name].storage for name in names}

    def _hold(self, step: Extern) -> None:
        """Hold the results to their predicted layouts. What they bind is read first, so that it fits by itself."""
        if is_packing(step.op):
            return
        if isinstance(step.op, Nested):
            op = f"nested {step.op.kind}"
        else:
            schema = step.op._schema
            op = f"{schema.name}.{schema.overload_name}" if schema.overload_name else schema.name
        for position, out in enumerate(step.outs):
            if out is None or position == step.keeps or out.name not in self.relied_on:
                continue
            layout = out.layout
            if not self._computable((*layout.sizes, *layout.strides)):
                continue
            sizes, strides = self._all(layout.sizes), self._all(layout.strides)
            self.instructions.append(Hold(self.register_of[out.name], sizes, strides, layout.dtype, layout.device, op))

    def _computable(self, values: Sequence[Expr]) -> bool:
        """False where a symbol has no value: no kernel can read such a tensor, nor can a window lie on it."""
        known = self.registers.known
        return all(value in known or all(s in known for s in ex.free_symbols(value)) for value in values)

    def _argument(self, value: Any) -> Any:
        if isinstance(value, Ref):
            return Reg(self._view(value))
        if isinstance(value, Expr):
            return self.registers.operand(value)
        if isinstance(value, ScalarNode):
            return self.registers.number(value)
        if isinstance(value, tuple | list):
            return tuple(self._argument(part) for part in value)
        return value

    def _view(self, ref: Ref) -> int:
        """The register of a window on a buffer."""
        register = self._register(ref.buffer)
        if self._is_whole(ref):
            return register
        buffer = self.buffers[ref.buffer]
        found = self.views.get(ref)
        if found is None:
            found = self.views[ref] = self.registers.tensor()
            offset = self._absolute(buffer, ref.offset)
            dtype = None if ref.dtype is buffer.layout.dtype else ref.dtype
            self.instructions.append(View(found, register, self._all(ref.sizes), self._all(ref.strides), offset, dtype))
        return found

    def _is_whole(self, ref: Ref) -> bool:
        """True when the register of the buffer's storage is what ``ref`` describes."""
        buffer = self.buffers[ref.buffer]
        layout = buffer.layout
        whole = ref.sizes == layout.sizes and ref.strides == layout.strides and ref.offset is ex.ZERO
        return whole and ref.dtype is layout.dtype and self._same_shape_as_storage(buffer)

    def _same_shape_as_storage(self, buffer: Buffer) -> bool:
        base = self.buffers.get(buffer.storage, buffer).layout
        return base.sizes == buffer.layout.sizes and base.strides == buffer.layout.strides

    def _absolute(self, buffer: Buffer, offset: Expr) -> int | Scalar:
        """``offset`` from the start of the storage: what torch hands in may begin anywhere."""
        base = self.offsets.get(buffer.storage)
        if base is None:
            if buffer.storage in self.owned:
                base = 0
            else:
                out = self.registers.scalar()
                self.instructions.append(Size(out.index, self._register(buffer.storage), 0, "offset"))
                base = out
            self.offsets[buffer.storage] = base
        here = self.registers.integer(offset)
        if base == 0 or here == 0:
            return here if base == 0 else base
        return self.registers.compute("add", base, here)

    def _item(self, step: ReadItem) -> None:
        out = self.registers.scalar()
        self.instructions.append(Item(out.index, self._view(step.source)))
        self.registers.parameters[step.name] = out
        if step.symbol is not None:
            self.registers.known[step.symbol] = out

    def _check(self, step: Assert) -> None:
        condition = step.condition
        holds = self.registers.operand(condition) if isinstance(condition, Expr) else self.registers.number(condition)
        self.instructions.append(Check(holds, step.message))

    # ---- what leaves -----------------------------------------------------------------------------------------------------------------
    def _output(self, output: Any) -> OutputSpec:
        if isinstance(output, Ref):
            position = self._input_position(output)
            return OutputSpec("tensor", self._view(output)) if position is None else OutputSpec("input", position)
        if isinstance(output, Expr):
            return OutputSpec("scalar", self.registers.operand(output))
        if isinstance(output, ScalarNode):
            return OutputSpec("scalar", self.registers.number(output))
        if isinstance(output, str) and output in self.registers.parameters:
            return OutputSpec("scalar", self.registers.parameters[output])
        return OutputSpec("none") if output is None else OutputSpec("scalar", output)

    @cached_property
    def _input_positions(self) -> dict[str, int]:
        tensors = [(item.buffer.name, at) for at, item in enumerate(self.graph.inputs) if isinstance(item, TensorInput)]
        return dict(reversed(tensors))

    def _input_position(self, ref: Ref) -> int | None:
        buffer = self.buffers[ref.buffer]
        position = self._input_positions.get(buffer.storage)
        if position is None or ref != Ref.whole(buffer) or not self._same_shape_as_storage(buffer):
            return None
        return position


def _traits(step: Extern) -> Trait:
    return Trait.NONE if isinstance(step.op, Nested) else aten_op(step.op).traits


def _facts(step: LaunchStep | Extern, graph: Graph, buffers: Mapping[str, Buffer]) -> dict[str, Any]:
    """Where a kernel or a library call comes from (``records.Kernel`` says what is what), and what it does."""
    parts = step.bodies if isinstance(step, Combined) else (step,)
    origins = list(dict.fromkeys(origin for part in parts for origin in part.origins))
    work = work_of(step, buffers)
    return {
        "origins": origins,
        "ops": _told(origins, graph.ops),
        "stack": _told(origins, graph.stacks),
        "modules": _told(origins, graph.modules),
        "bytes": work.bytes,
        "flops": work.flops,
    }


def _told(origins: Sequence[str], names: Mapping[str, str]) -> list[str]:
    return list(dict.fromkeys(names[origin] for origin in origins if names.get(origin)))
