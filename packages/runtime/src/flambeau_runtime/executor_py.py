"""The executor's twin in Python: the oracle of the native one, and the stepper for people.

In: an artifact, bound kernels, constants and Python functions. Out: the same results as the native executor, one
instruction at a time; ``trace`` observes every instruction with its time and what it wrote.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from attrs import define, field, frozen

from . import artifact as a
from .accelerators import accelerator_of
from .devices import pinned, real_device
from .errors import InputError
from .held import held
from .inputs import check_count, check_scalar, check_tensor
from .philox import state_op
from .scalars import Number, compute, kernel_scalar
from .text import instruction_text, position_text

KernelFunction = Callable[[list[torch.Tensor], list[Number], "tuple[int, int, int] | None", int], int]
"""``(tensors, scalars, grid, extent) -> status``."""

Values = tuple[Any, ...]
Branch = Callable[[], Values]


@frozen
class Step:
    """What ``trace`` receives after an instruction: its position, the instruction, seconds, and the registers."""

    position: int
    instruction: a.Instruction
    seconds: float
    tensors: Sequence[torch.Tensor | None]
    scalars: Sequence[Number | None]

    def __str__(self) -> str:
        return f"{self.position:4d} {self.seconds * 1e6:9.1f} us  {instruction_text(self.instruction)}"


@define
class _Frame:
    """Registers of one run of one program."""

    tensors: list[Any]
    scalars: list[Any]
    devices: list[int | None]

    def scalar(self, index: int) -> Number:
        return self.scalars[index]

    def operand(self, value: Any) -> Any:
        return self.scalars[value.index] if isinstance(value, a.Scalar) else value

    def argument(self, value: Any) -> Any:
        """An argument of a call: registers replaced, tuples become lists."""
        if isinstance(value, a.Reg):
            return self.tensors[value.index]
        if isinstance(value, tuple):
            return [self.argument(item) for item in value]
        if isinstance(value, torch.device):
            return real_device(value, self.devices)
        return self.operand(value)

    def sizes(self, values: a.Size1D) -> list[int]:
        return [int(self.operand(value)) for value in values]

    def bind_device(self, spec: a.InputSpec) -> None:
        """The slot of an input that was just checked is the device it lies on."""
        device = self.tensors[spec.register].device
        if spec.device is not None and spec.device.type == device.type and accelerator_of(device) and self.devices:
            self.devices[spec.device.index or 0] = device.index

    def write(self, outs: Sequence[a.Reg | a.Scalar | None], values: Sequence[Any]) -> None:
        if len(values) != len(outs):
            raise RuntimeError(f"{len(values)} values were returned, {len(outs)} are expected")
        for out, value in zip(outs, values):
            if isinstance(out, a.Reg):
                if value is not None and not isinstance(value, torch.Tensor):
                    raise TypeError(f"expected a tensor, got {type(value).__name__}")
                self.tensors[out.index] = value
            elif isinstance(out, a.Scalar):
                if not isinstance(value, (int, float)):
                    raise TypeError(f"expected a number, got {type(value).__name__}")
                self.scalars[out.index] = value


@define
class PythonExecutor:
    """Runs ``artifact`` instruction by instruction.

    ``kernels`` has one function per kernel of the artifact; ``constants`` one tensor per ``ConstantSpec``.
    """

    artifact: a.Artifact
    kernels: Sequence[KernelFunction]
    constants: Sequence[torch.Tensor] = ()
    python_functions: Mapping[str, Callable[..., Any]] = field(factory=dict)
    trace: Callable[[Step], None] | None = None

    def __call__(self, *inputs: Any) -> tuple[Any, ...]:
        """Run the program on positional inputs. Raises ``InputError`` for inputs it was not compiled for."""
        with torch.no_grad(), torch._C._AutoDispatchBelowADInplaceOrView(), _without_autocast():
            devices = list(pinned(self.artifact, self.constants))
            return self._run(self.artifact.program, inputs, self.constants, devices)

    def take(self, inputs: list[Any]) -> tuple[Any, ...]:
        """As a call with the list's items; the list is emptied, and each input is freed after its last use."""
        with torch.no_grad(), torch._C._AutoDispatchBelowADInplaceOrView(), _without_autocast():
            devices = list(pinned(self.artifact, self.constants))
            return self._run(self.artifact.program, inputs, self.constants, devices, takes=True)

    def _run(
        self,
        program: a.Program,
        inputs: Sequence[Any],
        constants: Sequence[torch.Tensor],
        devices: list[int | None],
        *,
        takes: bool = False,
    ) -> tuple[Any, ...]:
        frame = _Frame([None] * program.tensor_registers, [None] * program.scalar_registers, devices)
        for constant, tensor in zip(self.artifact.constants if constants else (), constants):
            frame.tensors[constant.register] = tensor
        check_count(program.inputs, tuple(inputs))
        for kind in ("scalar", "tensor"):
            for position, (spec, value) in enumerate(zip(program.inputs, inputs)):
                if spec.kind != kind:
                    continue
                if kind == "scalar":
                    frame.scalars[spec.register] = check_scalar(position, spec, value)
                else:
                    frame.tensors[spec.register] = check_tensor(position, spec, value, frame.scalar, devices)
                    frame.bind_device(spec)
        if takes and isinstance(inputs, list):
            # The registers hold them from here on; what is handed back or written is kept.
            returned = {spec.value for spec in program.outputs if spec.kind == "input"}
            kept = [v if p in returned or program.inputs[p].mutated else None for p, v in enumerate(inputs)]
            inputs.clear()
            value, inputs = None, tuple(kept)
        for position, instruction in enumerate(program.instructions):
            self._step(frame, position, instruction)
        for spec, value in zip(program.inputs, inputs):
            if spec.mutated and not value.is_inference():
                torch.autograd.graph.increment_version(value)
        return tuple(_output(frame, spec, tuple(inputs)) for spec in program.outputs)

    def _step(self, frame: _Frame, position: int, instruction: a.Instruction) -> None:
        started = time.perf_counter()
        try:
            _HANDLERS[type(instruction)](self, frame, instruction)
        except Exception as error:
            error.add_note(self.context(position, instruction))
            raise
        if self.trace is not None:
            seconds = time.perf_counter() - started
            self.trace(Step(position, instruction, seconds, frame.tensors, frame.scalars))

    def context(self, position: int, instruction: a.Instruction) -> str:
        """The note added to an exception that an instruction raises."""
        return instruction_context(position, instruction, self.artifact.kernels)

    # one method per instruction

    def alloc(self, frame: _Frame, i: a.Alloc) -> None:
        """A new tensor."""
        frame.tensors[i.out] = torch.empty_strided(
            frame.sizes(i.sizes), frame.sizes(i.strides), dtype=i.dtype, device=real_device(i.device, frame.devices)
        )

    def view(self, frame: _Frame, i: a.View) -> None:
        """A tensor over the source's storage."""
        source = frame.tensors[i.source]
        view = torch.empty(0, dtype=i.dtype or source.dtype, device=source.device)
        sizes, strides, offset = frame.sizes(i.sizes), frame.sizes(i.strides), int(frame.operand(i.offset))
        storage = source.untyped_storage()
        # ``set_`` would make the storage larger instead of failing. An empty view may begin anywhere.
        reach = _reach(sizes, strides)
        if offset < 0 or (reach > 0 and (offset + reach) * view.element_size() > storage.nbytes()):
            raise RuntimeError("a view reaches outside of its storage")
        frame.tensors[i.out] = view.set_(storage, offset, sizes, strides)

    def launch(self, frame: _Frame, i: a.Launch) -> None:
        """One kernel over its whole extent."""
        kernel = self.artifact.kernels[i.kernel]
        grid = None if i.grid is None else tuple(int(frame.operand(value)) for value in i.grid)
        status = self.kernels[i.kernel](
            [frame.tensors[index] for index in i.buffers],
            [frame.operand(value) for value in i.scalars],
            grid,  # type: ignore[arg-type]
            int(frame.operand(i.extent)),
        )
        if status:
            raise IndexError(status_message(kernel, status))

    def call(self, frame: _Frame, i: a.Call) -> None:
        """One operator through the dispatcher."""
        operator = find_operator(i.op, i.overload)
        args = [frame.argument(value) for value in i.args]
        with torch.set_grad_enabled(i.grad_mode):
            result = operator(*args, **{key: frame.argument(value) for key, value in i.kwargs})
        frame.write(i.outs, list(_flatten(result)) if i.outs else ())

    def hold(self, frame: _Frame, i: a.Hold) -> None:
        """A call's result in the layout that was predicted for it."""
        frame.tensors[i.reg] = held(i, frame.tensors[i.reg], frame.sizes(i.sizes), frame.sizes(i.strides))

    def compute(self, frame: _Frame, i: a.Compute) -> None:
        """Scalar arithmetic."""
        frame.scalars[i.out] = compute(i.opcode, [frame.operand(value) for value in i.args])

    def size(self, frame: _Frame, i: a.Size) -> None:
        """A size, stride or offset."""
        source = frame.tensors[i.source]
        if i.kind == "offset":
            frame.scalars[i.out] = source.storage_offset()
        else:
            frame.scalars[i.out] = source.size(i.dim) if i.kind == "size" else source.stride(i.dim)

    def item(self, frame: _Frame, i: a.Item) -> None:
        """One element as a scalar."""
        frame.write((a.Scalar(i.out),), (frame.tensors[i.source].item(),))

    def check(self, frame: _Frame, i: a.Check) -> None:
        """An assertion of the program."""
        if not frame.operand(i.cond):
            raise RuntimeError(i.message)

    def free(self, frame: _Frame, i: a.Free) -> None:
        """Forget registers."""
        for index in i.regs:
            frame.tensors[index] = None

    def copy(self, frame: _Frame, i: a.Copy) -> None:
        """Write one tensor into another."""
        frame.tensors[i.dst].copy_(frame.tensors[i.src])

    def subprogram(self, frame: _Frame, i: a.Subprogram) -> None:
        """A call, a branch or a loop of nested programs."""
        values = tuple(frame.argument(value) for value in i.inputs)
        extra = tuple(frame.argument(value) for value in i.extra)
        last = i.programs[-1]

        def run(program: a.Program, given: tuple[Any, ...]) -> tuple[Any, ...]:
            return self._run(program, given, (), frame.devices)

        if i.kind == "call":
            results = run(last, (*values, *extra))
        elif i.kind == "cond":
            given = (*values[1:], *extra)
            results = self.choose(values[0], partial(run, i.programs[0], given), partial(run, last, given), given)
        elif i.kind in ("while", "stack"):

            def asks(carried: Values) -> Any:
                return run(i.programs[0], (*carried, *extra))[0]

            def step(carried: Values) -> Values:
                return run(last, (*carried, *extra))

            results = self.repeat(values, asks, step) if i.kind == "while" else _stacked(values, asks, step, i.outs)
        else:
            results, slices = values, [frame.tensors[index] for index in i.slices]
            for place in range(_steps(int(frame.operand(i.length)), slices)):
                results = run(last, (*results, *extra, *(tensor[place] for tensor in slices)))
        if i.kind in ("while", "scan") and results is values:
            results = tuple(value.clone() if isinstance(value, torch.Tensor) else value for value in values)
        frame.write(i.outs, results)

    def choose(self, decides: Any, yes: Branch, no: Branch, operands: Values) -> Values:
        """The results of the branch that ``decides``, a number or a one-element tensor, names. Both take ``operands``."""
        return yes() if bool(decides) else no()

    def repeat(self, carried: Values, asks: Callable[[Values], Any], step: Callable[[Values], Values]) -> Values:
        """What a loop ends with: ``carried`` itself where it takes no step."""
        while bool(asks(carried)):
            carried = step(carried)
        return carried

    def python(self, frame: _Frame, i: a.Python) -> None:
        """A Python function of the table."""
        result = self.python_functions[i.key](*(frame.argument(value) for value in i.args))
        values = tuple(result) if isinstance(result, (tuple, list)) else (result,)
        frame.write(i.outs, values if i.outs else ())


_HANDLERS: dict[type, Callable[[PythonExecutor, _Frame, Any], None]] = {
    a.Alloc: PythonExecutor.alloc,
    a.View: PythonExecutor.view,
    a.Launch: PythonExecutor.launch,
    a.Call: PythonExecutor.call,
    a.Hold: PythonExecutor.hold,
    a.Compute: PythonExecutor.compute,
    a.Size: PythonExecutor.size,
    a.Item: PythonExecutor.item,
    a.Check: PythonExecutor.check,
    a.Free: PythonExecutor.free,
    a.Copy: PythonExecutor.copy,
    a.Subprogram: PythonExecutor.subprogram,
    a.Python: PythonExecutor.python,
}


def bind_address(address: int, scalar_kinds: str = "", *, slices: int = 1) -> KernelFunction:
    """A C++ entry as a ``KernelFunction``; ``slices`` > 1 runs the extent in that many pieces, as threads would."""
    entry = ctypes.CFUNCTYPE(
        ctypes.c_int64, ctypes.POINTER(ctypes.c_void_p), ctypes.POINTER(ctypes.c_int64), ctypes.c_int64, ctypes.c_int64
    )(address)

    def run(tensors: list[torch.Tensor], scalars: list[Number], grid: Any, extent: int) -> int:
        pointers = (ctypes.c_void_p * max(1, len(tensors)))(*(tensor.data_ptr() for tensor in tensors))
        kinds = scalar_kinds or [""] * len(scalars)
        values = (ctypes.c_int64 * max(1, len(scalars)))(*map(kernel_scalar, scalars, kinds))
        step = max(1, -(-extent // slices))
        for begin in range(0, extent, step):
            status = entry(pointers, values, begin, min(begin + step, extent))
            if status:
                return int(status)
        return 0

    return run


def find_operator(name: str, overload: str) -> Any:
    """The ``OpOverload`` of ``"aten::mm"`` and an overload name; ``LookupError`` if the operator does not exist."""
    namespace, _, operator = name.partition("::")
    if namespace == "flambeau":
        state_op()
    try:
        return getattr(getattr(getattr(torch.ops, namespace), operator), overload or "default")
    except (AttributeError, RuntimeError) as error:
        raise LookupError(f"operator {name}.{overload or 'default'} does not exist: {error}") from None


def instruction_context(position: int, instruction: a.Instruction, kernels: Sequence[a.Kernel]) -> str:
    """What was running when an exception was raised: kernel and user position, or the printed instruction."""
    if isinstance(instruction, a.Launch):
        kernel = kernels[instruction.kernel]
        where = position_text(kernel.meta.get("stack"))
        return f"while running kernel {kernel.name}" + (f" from {where}" if where else "")
    return f"while running instruction {position}: {instruction_text(instruction, tuple(kernels)).splitlines()[0]}"


def status_message(kernel: a.Kernel, status: int) -> str:
    """The message of a kernel's non-zero status."""
    return kernel.checks[status - 1] if 1 <= status <= len(kernel.checks) else "index out of range"


def _reach(sizes: list[int], strides: list[int]) -> int:
    """Elements from the first to the last that sizes and strides reach; 0 for an empty tensor."""
    if any(value < 0 for value in (*sizes, *strides)):
        raise RuntimeError("a size or stride is negative")
    return 0 if 0 in sizes else 1 + sum((size - 1) * stride for size, stride in zip(sizes, strides))


def _steps(length: int, slices: Sequence[torch.Tensor]) -> int:
    """``length``, which every sliced tensor has to have."""
    if any(tensor.dim() == 0 or tensor.size(0) < length for tensor in slices):
        raise RuntimeError(f"a loop of {length} steps over a tensor that is shorter")
    return length


def _stacked(
    carried: Values, asks: Callable[[Values], Any], step: Callable[[Values], Values], outs: Sequence[Any]
) -> Values:
    """What the steps of a loop give, stacked where it is taken; what is ``carried`` into it where there is no step."""
    kept = [place for place, out in enumerate(outs) if out is not None]
    first, rows = carried, list[list[Any]]()
    while bool(asks(carried)):
        carried = step(carried)
        rows.append([carried[place] for place in kept])
    stacks = map(torch.stack, zip(*(rows or [[first[place] for place in kept]])))
    return tuple(None if out is None else next(stacks) for out in outs)


def _flatten(result: Any) -> Iterator[Any]:
    if isinstance(result, (tuple, list)):
        for item in result:
            yield from _flatten(item)
    else:
        yield result


def _output(frame: _Frame, spec: a.OutputSpec, inputs: tuple[Any, ...]) -> Any:
    if spec.kind == "tensor":
        assert isinstance(spec.value, int)
        return frame.tensors[spec.value]
    if spec.kind == "input":
        assert isinstance(spec.value, int)
        return inputs[spec.value]
    return None if spec.kind == "none" else frame.operand(spec.value)


@contextmanager
def _without_autocast() -> Iterator[None]:
    """The graph holds the casts already: an ambient autocast must not cast again."""
    with torch._C._ExcludeDispatchKeyGuard(_AUTOCAST_KEYS):
        yield


def _autocast_keys() -> Any:
    names = ("AutocastCPU", "AutocastCUDA")
    keys = torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, names[0]))
    return keys.add(getattr(torch._C.DispatchKey, names[1]))


_AUTOCAST_KEYS = _autocast_keys()

__all__ = ["InputError", "PythonExecutor", "Step", "bind_address", "find_operator", "instruction_context"]
