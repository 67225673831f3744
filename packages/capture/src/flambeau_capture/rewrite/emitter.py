"""The assembler for new code.

In: calls that say what the new code does, in order; the comments give stacks, top on the right. Out: `finish()`, a code object.
Values and sources are emitted through `value` and `source`: each `Value` is rebuilt once and kept in a temporary, so that two
references to one value stay one object; source prefixes that `plan` saw more than once are walked once.

Loading order matters: everything that is read through a source must be loaded (`prepare`) before the first effect is replayed and
before the frame's own variables are overwritten. `seal()` marks that point; a source loaded later is an error of ours.
"""

from __future__ import annotations

import builtins
from collections.abc import Iterable, Mapping, Sequence
from types import BuiltinFunctionType, CellType, CodeType
from typing import Any

from attrs import evolve

from ..bytecode.behaviour import BEHAVIOUR
from ..bytecode.encode import CodeSpec
from ..bytecode.lower import link, write_code
from ..bytecode.model import NOWHERE, Draft, Label, Position, Protect
from ..errors import InternalError
from ..library import itertools
from ..sources import source as sources
from ..values.base import NullValue, Value

_BUILD = {"tuple": "BUILD_TUPLE", "list": "BUILD_LIST", "dict": "BUILD_MAP", "set": "BUILD_SET", "slice": "BUILD_SLICE"}
_PLAIN_CONSTANTS = (int, float, complex, str, bytes, bool, type(None), type(Ellipsis), CodeType)
_HASH_BY_IDENTITY: Any = object.__hash__


class Pin:
    """Holds an object that is not hashable, so that a code object with the pin among its constants still is."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


def dict_key_at(mapping: dict[Any, Any], index: int) -> Any:
    """The index-th key of a dict in insertion order."""
    return next(itertools.islice(dict.keys(mapping), index, None))


class Emitter:
    """Writes one code object. `spec` gives its name, arguments and variables; temporaries are added to its variables."""

    def __init__(
        self, spec: CodeSpec, position: Position = NOWHERE, builtin_names: Mapping[str, Any] | None = None
    ) -> None:
        self.spec = spec
        self.position = position
        self.protect: Protect | None = None
        self._builtin_names = vars(builtins) if builtin_names is None else builtin_names
        self._boxed = frozenset((*spec.cells, *spec.free))
        self._drafts: list[Draft | Label] = []
        self._temporaries: list[str] = []
        self._values: dict[int, str] = {}
        self._kept: list[Value] = []
        self._uses: dict[int, int] = {}
        self._paths: dict[int, str] = {}
        self._sealed = False

    # Instructions.

    def op(self, name: str, arg: int = 0, value: Any = None, target: Label | None = None) -> None:
        """Any normalised instruction."""
        self._drafts.append(Draft(name, arg, value, target, self.protect, self.position))

    def const(self, value: Any) -> None:
        """-> value, an immutable constant."""
        if isinstance(value, _PLAIN_CONSTANTS):
            self.op("LOAD_CONST", value=value)
        else:
            self.pinned(value)

    def pinned(self, value: Any) -> None:
        """-> value, which the code object keeps alive."""
        if _hashes_safely(value):
            self.op("LOAD_CONST", value=value)
        else:
            self.op("LOAD_CONST", value=Pin(value))
            self.op("LOAD_ATTR", value="value")

    def local(self, name: str) -> None:
        """-> the variable; of a cell or free variable, its contents."""
        self.op("LOAD_DEREF" if name in self._boxed else "LOAD_FAST", value=name)

    def store_local(self, name: str) -> None:
        """value -> ; of a cell or free variable, the contents are set."""
        self.op("STORE_DEREF" if name in self._boxed else "STORE_FAST", value=name)

    def temp(self) -> str:
        """A new variable for `local` and `store_local`."""
        name = f"__temp_{len(self._temporaries)}"
        self._temporaries.append(name)
        return name

    def global_(self, name: str) -> None:
        """-> the global, or the builtin of that name."""
        self.op("LOAD_GLOBAL", value=name)

    def attr(self, name: str) -> None:
        """owner -> owner.name."""
        self.op("LOAD_ATTR", value=name)

    def store_attr(self, name: str) -> None:
        """value owner -> ."""
        self.op("STORE_ATTR", value=name)

    def delete_attr(self, name: str) -> None:
        """owner -> ."""
        self.op("DELETE_ATTR", value=name)

    def subscript(self) -> None:
        """container key -> item."""
        self.op("BINARY_SUBSCR")

    def store_subscript(self) -> None:
        """value container key -> ."""
        self.op("STORE_SUBSCR")

    def delete_subscript(self) -> None:
        """container key -> ."""
        self.op("DELETE_SUBSCR")

    def call(self, nargs: int, kwnames: Sequence[str] = ()) -> None:
        """callable arguments -> result; the last `len(kwnames)` of the `nargs` arguments are keywords."""
        if nargs == 0:
            self.op("PUSH_NULL")
            if BEHAVIOUR.null_below_callable:
                self.swap()
            self.op("CALL", 0)
        elif kwnames:
            self.op("CALL_KW", nargs - 1, tuple(kwnames))
        else:
            self.op("CALL", nargs - 1)

    def function(self, code: CodeType, free: tuple[str, ...]) -> None:
        """-> function, over the cells of this frame that `free` names."""
        for name in free:
            self.op("LOAD_CLOSURE", value=name)
        if free:
            self.build("tuple", len(free))
        self.const(code)
        self.op("MAKE_FUNCTION", 8 if free else 0)

    def build(self, kind: str, n: int) -> None:
        """n items (for a dict: n keys and values in turn, for a slice: its parts) -> container."""
        self.op(_BUILD[kind], n)

    def unpack(self, n: int) -> None:
        """sequence -> its n items, the first on top."""
        self.op("UNPACK_SEQUENCE", n)

    def dup(self) -> None:
        """a -> a a."""
        self.op("COPY", 1)

    def swap(self) -> None:
        """a b -> b a."""
        self.op("SWAP", 2)

    def rotate(self, n: int) -> None:
        """x1 … xn -> xn x1 … : the top goes below the n - 1 others."""
        for depth in range(n, 1, -1):
            self.op("SWAP", depth)

    def pop(self) -> None:
        """a -> ."""
        self.op("POP_TOP")

    def jump(self, label: Label) -> None:
        """Go on at `label`."""
        self.op("JUMP", target=label)

    def label(self, hint: str = "") -> Label:
        """A new label; `place` it once."""
        return Label(hint)

    def place(self, label: Label) -> None:
        """What is emitted next is where `label` leads."""
        self._drafts.append(label)

    def ret(self) -> None:
        """value -> returned."""
        self.op("RETURN_VALUE")

    # Sources.

    def plan(self, paths: Iterable[sources.Source]) -> None:
        """Tell which sources will be loaded, so that what they share is walked once."""
        for path in paths:
            for step in sources.steps(path):
                self._uses[id(step)] = self._uses.get(id(step), 0) + 1

    def source(self, src: sources.Source) -> None:
        """-> what the source names."""
        if self._sealed and not isinstance(src, sources.Pinned):
            raise InternalError(f"{src.name} is loaded after the frame's state was changed")
        known = self._paths.get(id(src))
        if known is not None:
            self.local(known)
            return
        self._load(src)
        if self._uses.get(id(src), 0) > 1 and isinstance(src, sources.Step):
            name = self.temp()
            self.dup()
            self.store_local(name)
            self._paths[id(src)] = name

    def _load(self, src: sources.Source) -> None:
        match src:
            case sources.Local(variable=name):
                self.local(name)
            case sources.Global(variable=name):
                self.global_(name)
            case sources.Builtin(variable=name):
                self.pinned(self._builtin_names[name])
            case sources.Pinned(value=value):
                self.pinned(value)
            case sources.Step():
                self._step(src)
            case _:
                raise InternalError(f"no code is known for the source {src.name}")

    def _step(self, src: sources.Step) -> None:
        match src:
            case sources.Attribute(base=base, attribute=name):
                self.source(base)
                self.attr(name)
            case sources.CellContents(base=base):
                self.source(base)
                self.attr("cell_contents")
            case sources.InstanceDict(base=base):
                self.pinned(object.__getattribute__)
                self.source(base)
                self.const("__dict__")
                self.call(2)
            case sources.Item(base=base, key=key):
                self.source(base)
                self.source(key) if isinstance(key, sources.Source) else self.const(key)
                self.subscript()
            case sources.StoredItem(base=base, key=key):
                self.pinned(sources.stored_item)
                self.source(base)
                self.source(key) if isinstance(key, sources.Source) else self.const(key)
                self.call(2)
            case sources.DictKeyAt(base=base, index=index):
                self.pinned(dict_key_at)
                self.source(base)
                self.const(index)
                self.call(2)
            case sources.TypeOf(base=base):
                self.pinned(type)
                self.source(base)
                self.call(1)
            case sources.TensorSize(base=base, dim=dim) | sources.TensorStride(base=base, dim=dim):
                self.source(base)
                self.attr("size" if isinstance(src, sources.TensorSize) else "stride")
                self.const(dim)
                self.call(1)
            case sources.TensorOffset(base=base):
                self.source(base)
                self.attr("storage_offset")
                self.call(0)
            case sources.CallResult(base=base):
                self.source(base)
                self.call(0)
            case sources.Computed(base=base, function=function):
                self.pinned(function)
                self.source(base)
                self.call(1)
            case _:
                raise InternalError(f"no code is known for the source {src.name}")

    def seal(self) -> None:
        """From here on the frame's variables and the world may differ from what sources assume."""
        self._sealed = True

    # Values.

    def bind(self, value: Value, name: str) -> None:
        """`value` is what the variable `name` holds; it is never rebuilt."""
        self._values[id(value)] = name
        self._kept.append(value)

    def value(self, v: Value) -> None:
        """-> the object `v` stands for (a NULL for `NullValue`); the same object each time."""
        if isinstance(v, NullValue):
            self.op("PUSH_NULL")
            return
        name = self._values.get(id(v))
        if name is not None:
            self.local(name)
            return
        if self._is_own_cell(v):
            self.op("LOAD_CLOSURE", value=v.source.variable)  # type: ignore[union-attr]
        else:
            v.rebuild(self)
        if v.is_constant() and v.source is None:
            return
        name = self.temp()
        self.store_local(name)
        self.bind(v, name)
        v.fill(self)
        self.local(name)

    def _is_own_cell(self, v: Value) -> bool:
        """Whether `v` is the cell itself behind a variable of this code; a `Local` source alone would load its contents."""
        return isinstance(v.source, sources.Local) and v.source.variable in self._boxed and v.python_type() is CellType

    def prepare(self, v: Value) -> None:
        """Make the object now, for later `value` calls; the stack stays as it is."""
        if isinstance(v, NullValue) or id(v) in self._values:
            return
        self.value(v)
        last = self._drafts[-1]
        if isinstance(last, Draft) and last.name in ("LOAD_FAST", "LOAD_CONST"):
            self._drafts.pop()
        else:
            self.pop()

    def release(self) -> None:
        """Unbind every temporary that holds a value or a source; the values are gone for this code from here on."""
        for name in (*self._values.values(), *self._paths.values()):
            if name in self._temporaries:
                self.op("DELETE_FAST", value=name)
        self._values.clear()
        self._paths.clear()

    # The end.

    def finish(self) -> CodeType:
        """The code object."""
        known = frozenset(self.spec.variables)
        added = tuple(name for name in self._temporaries if name not in known)
        return write_code(link(self._drafts), evolve(self.spec, variables=(*self.spec.variables, *added)))


def _hashes_safely(value: Any) -> bool:
    """Whether hashing and comparing `value` runs no code but CPython's own."""
    kind = type(value)
    if isinstance(value, (*_PLAIN_CONSTANTS, BuiltinFunctionType)):
        return True
    found: Any = kind.__hash__
    return found is _HASH_BY_IDENTITY
