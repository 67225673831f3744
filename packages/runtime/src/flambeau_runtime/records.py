"""The records that an artifact is made of: instructions, programs, kernels, constants.

In: nothing. Out: frozen values. ``artifact.py`` puts them together and gives their names on.

A program has two register files. *Tensor registers* hold tensors and are named by ``int`` where only a tensor is
possible and by ``Reg(i)`` where something else could stand. *Scalar registers* hold an int, a float or a bool and
are named ``Scalar(i)``. An ``Operand`` is a literal or a ``Scalar``.
"""

from __future__ import annotations

import hashlib
from typing import Any, Protocol

import torch
from attrs import field, frozen

FORMAT_VERSION = 8
"""Written into every artifact; a reader refuses any other."""


@frozen
class Reg:
    """Tensor register ``index`` as an argument."""

    index: int


@frozen
class Scalar:
    """Scalar register ``index`` as an operand."""

    index: int


Operand = int | float | bool | Scalar
Size1D = tuple[int | Scalar, ...]


def as_tuple(values: Any) -> tuple[Any, ...]:
    return tuple(values)


def _optional_tuple(values: Any) -> tuple[Any, ...] | None:
    return None if values is None else tuple(values)


def _device(value: str | torch.device) -> torch.device:
    return torch.device(value)


def _plain_device(value: str | torch.device) -> torch.device:
    """The device's type: the ordinal is the caller's choice."""
    return torch.device(torch.device(value).type)


def _optional_device(value: str | torch.device | None) -> torch.device | None:
    return None if value is None else _device(value)


def _pairs(values: Any) -> tuple[tuple[str, Any], ...]:
    items = values.items() if isinstance(values, dict) else values
    return tuple((str(key), value) for key, value in items)


def _outs(values: Any) -> tuple[Reg | Scalar | None, ...]:
    return tuple(Reg(value) if isinstance(value, int) else value for value in values)


@frozen
class Library:
    """One translation unit.

    ``language`` is a name of ``languages.py`` (``"cpp"``, ``"triton"``); ``source`` are the kernels, and ``support`` is what comes before them, the same for many
    libraries; ``flags`` are extra compiler flags (part of the digest); ``binary`` is the shared object or None when it has yet to be built
    (not part of the digest).
    """

    name: str
    language: str
    source: str
    flags: tuple[str, ...] = field(default=(), converter=as_tuple)
    binary: bytes | None = field(default=None, repr=False)
    support: str = field(default="", repr=False)

    @property
    def text(self) -> str:
        """All that the compiler reads."""
        return self.support + self.source

    @property
    def digest(self) -> str:
        """Hash of what decides the binary: language, text and flags (the toolchain is added by the store)."""
        text = "\0".join((self.language, self.text, *self.flags))
        return hashlib.sha256(text.encode()).hexdigest()


@frozen
class Kernel:
    """One entry of a library.

    ``buffers`` and ``scalars`` are the counts of each argument kind. ``dtypes`` has one dtype a buffer (or is empty).
    ``scalar_kinds`` is a string of ``i`` and ``f``, one a scalar: how the launch converts each operand (empty: an int
    or a bool is passed as int64, a float as the bits of a double). ``checks`` are the messages of the kernel's status
    codes: status ``k`` (k >= 1) raises ``IndexError(checks[k - 1])``. ``meta`` holds JSON-able facts: ``origins``
    (names of graph nodes), ``ops`` (their operations), ``stack`` (the user's lines, as ``file:line in function``), ``modules`` (paths of those that call
    them), ``bytes`` and ``flops`` (about what it moves and computes), ``num_warps``…
    """

    name: str
    library: int
    entry: str
    buffers: int
    scalars: int = 0
    dtypes: tuple[torch.dtype, ...] = field(default=(), converter=as_tuple)
    scalar_kinds: str = ""
    checks: tuple[str, ...] = field(default=(), converter=as_tuple)
    meta: dict[str, Any] = field(factory=dict, hash=False)


@frozen
class Alloc:
    """A new uninitialised tensor in register ``out``; sizes and strides in elements."""

    out: int
    sizes: Size1D = field(converter=as_tuple)
    strides: Size1D = field(converter=as_tuple)
    dtype: torch.dtype
    device: torch.device = field(default="cpu", converter=_device)


@frozen
class View:
    """``as_strided`` over the storage of ``source``.

    ``offset`` is absolute, in elements of the view's dtype. ``dtype=None`` keeps the source's; another dtype
    reinterprets the bytes.
    """

    out: int
    source: int
    sizes: Size1D = field(converter=as_tuple)
    strides: Size1D = field(converter=as_tuple)
    offset: int | Scalar = 0
    dtype: torch.dtype | None = None


@frozen
class Launch:
    """Run a kernel.

    C++: ``[0, extent)`` is divided among the threads of torch's pool in slices of at least ``grain`` iterations.
    Triton: ``grid`` has three operands and ``extent`` is not used.
    """

    kernel: int
    buffers: tuple[int, ...] = field(converter=as_tuple)
    scalars: tuple[Operand, ...] = field(default=(), converter=as_tuple)
    extent: Operand = 1
    grain: int = 1
    grid: tuple[Operand, Operand, Operand] | None = field(default=None, converter=_optional_tuple)


@frozen
class Call:
    """Call the dispatcher operator ``op`` (``"aten::mm"``) with overload name ``overload`` (``""`` is the default one).

    ``args`` and the values of ``kwargs`` are ``Reg``, operands, complex numbers, dtypes, devices, layouts, memory
    formats, None, strings, and (nested) tuples of those. ``outs`` receives the flattened returns: a tensor list gives
    one entry per element; None drops the value. An int in ``outs`` means ``Reg(int)``. With ``grad_mode`` it runs in
    grad mode, in which some kernels keep a workspace for their gradient; nothing is recorded all the same. ``meta`` has the facts
    of ``Kernel.meta`` that hold for a call.
    """

    op: str
    overload: str = ""
    args: tuple[Any, ...] = field(default=(), converter=as_tuple)
    kwargs: tuple[tuple[str, Any], ...] = field(default=(), converter=_pairs)
    outs: tuple[Reg | Scalar | None, ...] = field(default=(), converter=_outs)
    grad_mode: bool = False
    meta: dict[str, Any] = field(factory=dict, eq=False, repr=False)


@frozen
class Hold:
    """Hold a library call to the layout that was predicted for its result in tensor register ``reg``.

    A tensor of these sizes, strides, dtype and device type stays as it is (strides of dimensions with fewer than two
    elements do not matter). One that differs in strides only, or is lazily conjugated or negated, is replaced by a copy
    in the predicted strides. Anything else raises PredictionError naming ``op`` and both layouts; only a one-element tensor
    of no dimensions may lie on the CPU where a CUDA device was predicted (see ``InputSpec``).
    """

    reg: int
    sizes: Size1D = field(converter=as_tuple)
    strides: Size1D = field(converter=as_tuple)
    dtype: torch.dtype
    device: torch.device = field(default="cpu", converter=_plain_device)
    op: str = ""


@frozen
class Compute:
    """Scalar arithmetic, Python's rules (floor division and modulo round down). Opcodes: ``OPCODES``."""

    out: int
    opcode: str
    args: tuple[Operand, ...] = field(converter=as_tuple)


@frozen
class Size:
    """Read a property of a tensor into a scalar register: ``kind`` is ``size``, ``stride`` or ``offset``."""

    out: int
    source: int
    dim: int = 0
    kind: str = "size"


@frozen
class Item:
    """Read a one-element tensor into a scalar register."""

    out: int
    source: int


@frozen
class Check:
    """Raise ``RuntimeError(message)`` when ``cond`` is false."""

    cond: Operand
    message: str


@frozen
class Free:
    """Drop the program's references to these tensor registers."""

    regs: tuple[int, ...] = field(converter=as_tuple)


@frozen
class Copy:
    """``dst.copy_(src)``, both tensor registers."""

    dst: int
    src: int


@frozen
class Subprogram:
    """Structured control flow over nested programs (each with registers of its own).

    ``call``: the one program of ``programs`` on ``inputs``. ``cond``: ``programs`` is (true, false), ``inputs[0]`` the
    predicate (an operand or a one-element tensor), the rest is passed to the chosen one. ``while``: ``programs`` is
    (condition, body); ``inputs`` are carried, then come ``extra`` (loop invariant) values; the condition's one output is
    an operand or one-element tensor. ``stack``: a ``while`` of tensors whose results are what every step gave, stacked along
    a new first dimension; the ``inputs``, in one row, where there was no step. ``scan``: ``length`` steps of one program, which takes the carried ``inputs``,
    ``extra`` and element ``i`` of the first dimension of each tensor register in ``slices``: views, which it may write.
    It gives what is carried on. What a loop of no steps returns are copies: a result shares no memory with an input that
    its programs do not hand back.

    A program that stands in several places is printed, checked, serialised and decoded once.
    """

    kind: str
    programs: tuple[Program, ...] = field(converter=as_tuple)
    inputs: tuple[Reg | Operand, ...] = field(default=(), converter=as_tuple)
    outs: tuple[Reg | Scalar | None, ...] = field(default=(), converter=_outs)
    extra: tuple[Reg | Operand, ...] = field(default=(), converter=as_tuple)
    slices: tuple[int, ...] = field(default=(), converter=as_tuple)
    length: Operand = 0


@frozen
class Python:
    """Escape hatch: call ``python_functions[key](*args)``; it returns a tensor, a scalar or a tuple of them."""

    key: str
    args: tuple[Any, ...] = field(default=(), converter=as_tuple)
    outs: tuple[Reg | Scalar | None, ...] = field(default=(), converter=_outs)


Instruction = Alloc | View | Launch | Call | Hold | Compute | Size | Item | Check | Free | Copy | Subprogram | Python

SUBPROGRAMS: dict[str, int] = {"call": 1, "cond": 2, "while": 2, "stack": 2, "scan": 1}
"""Kind of ``Subprogram`` -> number of its programs."""

OPCODES: dict[str, int] = {
    "add": 2, "sub": 2, "mul": 2, "floordiv": 2, "mod": 2, "truediv": 2, "truncdiv": 2, "min": 2, "max": 2, "pow": 2,
    "eq": 2, "ne": 2, "lt": 2, "le": 2, "gt": 2, "ge": 2, "and": 2, "or": 2, "xor": 2,
    "bitand": 2, "bitor": 2, "shl": 2, "shr": 2,
    "neg": 1, "not": 1, "abs": 1, "floor": 1, "ceil": 1, "trunc": 1, "round": 1, "sqrt": 1, "exp": 1, "log": 1,
    "int": 1, "float": 1, "bool": 1, "move": 1, "select": 3,
}  # fmt: skip
"""Scalar opcode -> number of arguments. ``floor``, ``ceil``, ``trunc`` and ``round`` give ints."""


@frozen
class InputSpec:
    """What one positional input is.

    ``kind`` is ``"tensor"`` (``register`` is a tensor register) or ``"scalar"`` (a scalar register). A size or stride
    is an int, a ``Scalar`` that a scalar input fills, or None (not checked). ``strides=None`` accepts any strides.
    A tensor whose strides differ from ``strides`` is copied into that layout unless ``mutated`` (the program writes
    to it): then it is an error. A size, dtype, device or dimension that differs is always an error.
    ``static``: a parameter or buffer, its address does not change from call to call.
    """

    kind: str
    register: int
    dtype: torch.dtype | None = None
    device: torch.device | None = field(default=None, converter=_optional_device)
    sizes: tuple[int | Scalar | None, ...] | None = field(default=None, converter=_optional_tuple)
    strides: tuple[int | Scalar | None, ...] | None = field(default=None, converter=_optional_tuple)
    static: bool = False
    mutated: bool = False
    name: str = ""


@frozen
class OutputSpec:
    """What one output is.

    ``kind``: ``"tensor"`` (``value`` is a tensor register), ``"scalar"`` (``value`` is an operand), ``"input"``
    (``value`` is the position of an input, handed back as the very same object) or ``"none"``.
    """

    kind: str
    value: Operand | None = None


@frozen
class ConstantSpec:
    """A tensor that ``load(constants=...)`` supplies by position, or that the artifact carries itself.

    ``data`` holds the bytes of a small contiguous constant; with ``data=None`` it comes from ``constants``, taken in
    the order of the specs without data. ``register`` is the tensor register that holds it at the start.
    """

    register: int
    dtype: torch.dtype
    sizes: tuple[int, ...] = field(converter=as_tuple)
    device: torch.device = field(default="cpu", converter=_plain_device)
    data: bytes | None = field(default=None, repr=False)
    name: str = ""


@frozen
class Symbol:
    """A symbolic size: its printed name, the scalar register that holds it, and the value seen while compiling."""

    name: str
    register: int
    hint: int | float | None = None


@frozen
class Program:
    """Straight-line code over ``tensor_registers`` tensor and ``scalar_registers`` scalar registers.

    Inside an artifact the index of a CUDA device is a slot (``devices.py`` puts it there), and ``devices`` has one entry a
    slot: None (the device of the inputs that name the slot) or a fixed ordinal.
    """

    instructions: tuple[Instruction, ...] = field(converter=as_tuple)
    tensor_registers: int
    scalar_registers: int
    inputs: tuple[InputSpec, ...] = field(converter=as_tuple)
    outputs: tuple[OutputSpec, ...] = field(converter=as_tuple)
    devices: tuple[int | None, ...] = field(default=(), converter=as_tuple)


class Contents(Protocol):
    """What is read of an ``Artifact`` by those that it calls itself: its printer, its checks and its encoding."""

    @property
    def program(self) -> Program: ...
    @property
    def libraries(self) -> tuple[Library, ...]: ...
    @property
    def kernels(self) -> tuple[Kernel, ...]: ...
    @property
    def constants(self) -> tuple[ConstantSpec, ...]: ...
    @property
    def symbols(self) -> tuple[Symbol, ...]: ...
    @property
    def version(self) -> int: ...
    @property
    def digest(self) -> str: ...
