"""What the methods of a class of wrapper tensors read and write.

They run while the graph is traced, on fakes, and need not run again when it is: what they read besides their arguments must not change, and
nobody may miss what they write. In: a class. Out: guards on the names that its code reads, as far as calls of the program's own functions lead.
A function that writes to something that outlives it, or reads an object that cannot be guarded, must not be called while the frame is compiled: a
call breaks the graph before anything of it has run (`_C.set_tripwires`). Torch's own classes are taken as they are.
"""

from __future__ import annotations

import sys
import types
from contextlib import contextmanager
from operator import is_
from typing import TYPE_CHECKING, Any

from ..bytecode.normalise import UnsupportedCodeError, decode_normalised
from ..bytecode.own_containers import on_own
from ..class_names import class_module, class_name
from ..constant_objects import is_constant_object
from ..graph.inner_tensors import is_wrapper_class
from ..native import _C
from ..replacements import is_impure
from ..signals import GraphBreak
from ..sources.source import Attribute, CellContents, Item, Pinned
from ..values.base import MISSING
from ..values.members import mro_lookup
from ..values.trust import is_trusted_module_name, is_trusted_namespace
from .part import Part

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ..bytecode.model import Instruction
    from ..sources.source import Source
    from ..values.base import Tracer

_METHODS = (
    "__new__", "__init__", "__tensor_flatten__", "__tensor_unflatten__", "__torch_dispatch__", "__torch_function__", "__setattr__", "__getattr__",
    "__getattribute__",
)  # fmt: skip
"""What torch calls of such a class."""
_MAKERS = ("__new__", "__init__", "__tensor_unflatten__")
"""They store attributes in the object that they make."""
_OUTWARD = frozenset((
    "print", "open", "input", "exec", "eval", "compile", "setattr", "delattr", "globals", "locals", "vars", "__import__", "breakpoint", "id",
))  # fmt: skip
"""Builtins whose effects outlive a call, or whose answers are of this call alone."""
_OUTWARD_MODULES = frozenset(
    ("time", "random", "logging", "warnings", "os", "sys", "io", "uuid", "datetime", "secrets", "threading", "gc")
)
_CHANGES = frozenset((
    "append", "extend", "insert", "remove", "pop", "clear", "add", "discard", "update", "setdefault", "popitem", "sort", "reverse", "appendleft",
))  # fmt: skip
"""Methods that change a container."""
_CONTAINERS = (list, dict, set, tuple, frozenset, types.MappingProxyType)
_CODE = (
    types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType, types.GetSetDescriptorType, types.MemberDescriptorType,
)  # fmt: skip
_LOADS = ("LOAD_GLOBAL", "LOAD_NAME")
_ASK_FOR_NONE = ("POP_JUMP_IF_NONE", "POP_JUMP_IF_NOT_NONE")
"""What looks at an object's identity alone."""


def tells_constants(cls: type) -> bool:
    """Whether `__tensor_flatten__` gives the same for every object, told by its code."""
    found = mro_lookup(cls, "__tensor_flatten__")[0]
    if type(found) is not types.FunctionType:
        return False
    code = found.__code__
    return not code.co_names and not code.co_freevars and all(kind.name != "CALL" for kind in _instructions(code))


def _instructions(code: types.CodeType) -> Sequence[Instruction]:
    try:
        return decode_normalised(code)
    except UnsupportedCodeError as error:
        raise GraphBreak("unsupported-tensor", f"a wrapper with code that cannot be read: {error}") from error


@contextmanager
def tripwires_kept() -> Iterator[None]:
    """Watch no code but what is held within."""
    before = _C.set_tripwires(None)
    try:
        yield
    finally:
        _C.set_tripwires(before)


class HeldCode(Part):
    """The code of classes of wrappers that one trace relies on."""

    def __init__(self, t: Tracer) -> None:
        super().__init__(t)
        self._seen: set[Any] = set()
        #: What a call of code does that must not run.
        self._wires: dict[types.CodeType, Callable[[], object]] = {}
        #: The first such call: the class's own code may have caught the break.
        self.called: GraphBreak | None = None

    def hold(self, cls: type) -> None:
        """Guard what the class's methods read; let those that have effects break the graph when they are called."""
        if cls in self._seen:
            return
        self._hold(cls)
        if self._wires:
            _C.set_tripwires(self._wires)

    def _hold(self, cls: type) -> None:
        if cls in self._seen:
            return
        with self._once(cls):
            for name in _METHODS:
                found, owner = self.t.members.class_member(cls, name)
                if found is not MISSING and not is_trusted_namespace(owner):
                    self._member(cls, name, found)

    @contextmanager
    def _once(self, seen: Any) -> Iterator[None]:
        """It need not be looked into again, unless it is refused: the next function that reads it is refused, too."""
        self._seen.add(seen)
        try:
            yield
        except GraphBreak:
            self._seen.discard(seen)
            raise

    def _member(self, cls: type, name: str, found: Any) -> None:
        """A member of a class of the program's, which its code may ask for."""
        function = found.fget if isinstance(found, property) else getattr(found, "__func__", found)
        if type(function) is types.FunctionType:
            self._function(function, cls)
        elif type(found) not in _CODE and not isinstance(found, property) and not name.startswith("__"):
            self._value(found, Attribute(Pinned(cls), name), cls)

    def _function(self, function: types.FunctionType, cls: type) -> None:
        if function in self._seen or is_trusted_namespace(function):
            return
        self._seen.add(function)
        try:
            self._look_into(function, cls)
        except GraphBreak as refused:
            self._refuse_calls(function.__code__, refused)

    def _refuse_calls(self, code: types.CodeType, refused: GraphBreak) -> None:
        def call() -> object:
            self.called = self.called or refused
            raise refused

        self._wires[code] = call

    def _look_into(self, function: types.FunctionType, cls: type) -> None:
        self.t.guards.function(Pinned(function), function)
        for name, value in (function.__kwdefaults__ or {}).items():
            self._value(value, Item(Attribute(Pinned(function), "__kwdefaults__"), name), cls)
        for at, value in enumerate(function.__defaults__ or ()):
            self._value(value, Item(Attribute(Pinned(function), "__defaults__"), at), cls)
        for at, name in enumerate(function.__code__.co_freevars):
            if name != "__class__":
                where = CellContents(Item(Attribute(Pinned(function), "__closure__"), at))
                try:
                    self._value(function.__closure__[at].cell_contents, where, cls)  # type: ignore[index]  # there is a cell for each name
                except ValueError:
                    raise _refused(cls, f"it reads {name!r}, which has no value") from None
        for code in _codes(function.__code__):
            self._code(code, function, cls)

    def _code(self, code: types.CodeType, function: types.FunctionType, cls: type) -> None:
        instructions = _instructions(code)
        own = on_own(code, _Builtins(function.__globals__))
        stores = False
        reads = bool(function.__code__.co_freevars and any(map(_may_change, function.__closure__ or ())))
        for at, one in enumerate(instructions):
            before, after = (
                instructions[at - 1] if at else one,
                instructions[at + 1] if at + 1 < len(instructions) else one,
            )
            match one.name:
                case "STORE_GLOBAL" | "DELETE_GLOBAL" | "DELETE_ATTR":
                    raise _refused(cls, f"{function.__qualname__} has effects")
                case "IMPORT_NAME":
                    self._import(instructions, at, function, cls)
                case "STORE_DEREF" | "DELETE_DEREF" if one.value in function.__code__.co_freevars:
                    raise _refused(cls, f"{function.__qualname__} stores {one.value!r} outside")
                case "STORE_ATTR" if not _stores_in_what_it_makes(before, code, function):
                    raise _refused(cls, f"{function.__qualname__} stores the attribute {one.value!r}")
                case "STORE_SUBSCR" | "DELETE_SUBSCR" if at not in own:
                    stores = True
                case "LOAD_GLOBAL" | "LOAD_NAME":
                    reads |= self._global(str(one.value), after, function, cls)
                case "LOAD_ATTR" | "LOAD_METHOD":
                    stores |= one.value in _CHANGES and at not in own
                    found, owner = mro_lookup(cls, str(one.value))
                    if owner is not None and not is_trusted_namespace(owner) and before.name not in _LOADS:
                        self.t.members.class_member(cls, str(one.value))
                        self._member(cls, str(one.value), found)
                        reads |= isinstance(found, (list, dict, set))
        if stores and reads:
            raise _refused(cls, f"{function.__qualname__} may change an object outside")

    def _global(self, name: str, after: Instruction, function: types.FunctionType, cls: type) -> bool:
        """A name of the function's module; whether an object that can be changed is read."""
        space = function.__globals__
        if name not in space:
            if name in _OUTWARD:
                raise _refused(cls, f"{function.__qualname__} calls {name}")
            self.t.guards.absent(Pinned(space), name)
            return False
        value, where = space[name], Item(Pinned(space), name)
        if after.name in _ASK_FOR_NONE:
            self.t.guards.identity(where, value)
            return False
        if (
            isinstance(value, (types.ModuleType, type))
            and not _is_trusted(value)
            and after.name in ("LOAD_ATTR", "LOAD_METHOD")
        ):
            self.t.guards.identity(where, value)
            part = str(after.value)
            if isinstance(value, type) and is_wrapper_class(value):
                self._hold(value)
                found, owner = mro_lookup(value, part)
                if owner is None or is_trusted_namespace(owner):
                    return False
                self._member(value, part, found)
                return isinstance(found, (list, dict, set))
            found = getattr(value, part, MISSING)
            if found is MISSING:
                raise _refused(cls, f"{function.__qualname__} reads {name}.{part}")
            self._value(found, Attribute(where, part), cls)
            return isinstance(found, (list, dict, set))
        if isinstance(value, types.ModuleType) and value.__name__ in _OUTWARD_MODULES:
            raise _refused(cls, f"{function.__qualname__} uses {name}")
        self._value(value, where, cls)
        return isinstance(value, (list, dict, set))

    def _container(self, value: Any, where: Source, cls: type, depth: int) -> None:
        parts = _parts(value)
        self.t.guards.holds(where, lambda now: _has_parts(now, type(value), parts), f"the same objects in {where.name}")
        with self._once((where, id(value))):
            for part in parts:
                if not is_constant_object(part):
                    self._value(part, Pinned(part), cls, depth + 1)

    def _import(self, instructions: Sequence[Instruction], at: int, function: types.FunctionType, cls: type) -> None:
        """`import` in a function: of a module that was imported before, it has no effect."""
        name = str(instructions[at].value)
        level, taken = (instructions[before].value for before in (at - 2, at - 1))
        module = sys.modules.get(name)
        told = f"{function.__qualname__} imports {name}"
        if level != 0 or not isinstance(module, types.ModuleType) or name in _OUTWARD_MODULES:
            raise _refused(cls, told)
        if not taken:
            if not is_trusted_module_name(name):
                raise _refused(cls, told)
            return
        self.t.guards.identity(Item(Pinned(sys.modules), name), module)
        for part in taken:
            if part not in vars(module):
                raise _refused(cls, f"{told}, which has no {part} yet")
            if not _is_trusted(module):
                self._value(vars(module)[part], Item(Pinned(vars(module)), part), cls)

    def _value(self, value: Any, where: Source, cls: type, depth: int = 0) -> None:
        """Something that the code reads: guarded, and looked into where it is code."""
        if is_constant_object(value):
            self.t.guards.constant(where, value)
            return
        if type(value) in _CONTAINERS and depth < 4:
            if (where, id(value)) not in self._seen:
                self._container(value, where, cls, depth)
            return
        if type(value) is types.MethodType:
            if not _is_trusted(value.__self__):
                self._value(value.__func__, Attribute(Pinned(value), "__func__"), cls, depth)
                self._value(value.__self__, Attribute(Pinned(value), "__self__"), cls, depth)
        elif type(value) is types.FunctionType:
            self._function(value, cls)
        elif isinstance(value, type) and not _is_trusted(value):
            if is_wrapper_class(value):
                self._hold(value)
            else:
                for name in ("__new__", "__init__"):
                    found, owner = mro_lookup(value, name)
                    if owner is not None and not is_trusted_namespace(owner):
                        self._member(value, name, found)
        elif isinstance(value, _CODE) and is_impure(value):
            raise _refused(cls, f"it reads {where.name}")
        elif not isinstance(value, (type, *_CODE)) and not _is_trusted(value):
            raise _refused(cls, f"it reads {where.name}, {class_name(type(value))}")
        self.t.guards.identity(where, value)


class _Builtins:
    """The names that are builtins to functions of a module."""

    def __init__(self, space: dict[str, Any]) -> None:
        self._space = space

    def __contains__(self, name: object) -> bool:
        return name not in self._space


def _is_trusted(value: Any) -> bool:
    """Whether torch or Python's library made it, and what it holds is assumed not to change."""
    if isinstance(value, (type, types.ModuleType)):
        return is_trusted_namespace(value)
    module = class_module(type(value))
    return is_trusted_module_name(module) and module.partition(".")[0] == "torch"


def _refused(cls: type, told: str) -> GraphBreak:
    return GraphBreak("unsupported-tensor", f"a {class_name(cls)}, for {told}")


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _codes(constant)


def _stores_in_what_it_makes(before: Instruction, code: types.CodeType, function: types.FunctionType) -> bool:
    """Whether an attribute is stored in the object that is being made: in `__init__` its first argument, elsewhere a local that is no argument."""
    if function.__name__ not in _MAKERS or code is not function.__code__ or before.name != "LOAD_FAST":
        return False
    if function.__name__ == "__init__":
        return bool(before.value == code.co_varnames[0])
    return before.value in code.co_varnames[code.co_argcount + code.co_kwonlyargcount :]


def _may_change(cell: types.CellType) -> bool:
    try:
        return isinstance(cell.cell_contents, (list, dict, set))
    except ValueError:
        return True


def _parts(value: Any) -> list[Any]:
    return [*value, *value.values()] if isinstance(value, (dict, types.MappingProxyType)) else [*value]


def _has_parts(value: Any, kind: type, parts: list[Any]) -> bool:
    if type(value) is not kind:
        return False
    now = _parts(value)
    if len(now) != len(parts):
        return False
    return all(map(is_, now, parts)) or all(
        one is other or (is_constant_object(one) and type(one) is type(other) and one == other)
        for one, other in zip(now, parts)
    )
