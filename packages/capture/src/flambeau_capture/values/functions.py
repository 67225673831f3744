"""Python functions, closures, bound methods, partials and cells.

In: a real function or the parts of one made while tracing. Out: calling binds arguments and inlines the body, unless the lookaside
table or the policy says otherwise (`Caller.call_function`).
"""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any

from ..library import functools
from ..signals import GraphBreak
from .base import MISSING, Value
from .constants import ConstantValue

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ..sources.source import Source
    from .base import Tracer


class CellValue(Value):
    """A closure cell. `cell` is the real one when it existed before, `name` its name in the root frame when it is one of its own."""

    __slots__ = ("cell", "contents", "name")

    def __init__(
        self, contents: Value | None = None, source: Source | None = None, cell: Any = MISSING, name: str = ""
    ) -> None:
        super().__init__(source)
        self.contents = contents
        self.cell = cell
        self.name = name

    def python_type(self) -> type:
        return types.CellType

    def rebuild(self, e: Any) -> None:
        if self.source is not None:
            e.source(self.source)
        else:
            e.pinned(types.CellType)
            e.call(0)

    def fill(self, e: Any) -> None:
        if self.source is None and self.contents is not None:
            e.value(self.contents)
            e.value(self)
            e.store_attr("cell_contents")

    def get_attribute(self, t: Tracer, name: str) -> Value:
        if name == "cell_contents" and self.contents is not None:
            return self.contents.realise(t)
        return super().get_attribute(t, name)


def cell_in_a_cell(name: str) -> GraphBreak:
    """Code that names the variable's own cell could not be told from code that names what is in it."""
    return GraphBreak("unsupported-operation", f"a cell in the variable {name!r}, which has a cell itself")


class FunctionValue(Value):
    """A Python function that existed before the frame."""

    __slots__ = ("attrs", "function")

    def __init__(self, function: types.FunctionType, source: Source | None) -> None:
        super().__init__(source)
        self.function = function
        self.attrs: dict[str, Value] = {}

    def python_type(self) -> type:
        return types.FunctionType

    def real(self) -> Any:
        return self.function

    def describe(self) -> str:
        return f"{self.function.__module__}.{self.function.__qualname__}"

    def call(self, t: Tracer, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
        return t.caller.call_function(self, self.function, args, kwargs)

    def rebuild(self, e: Any) -> None:
        e.source(self.source) if self.source is not None else e.pinned(self.function)

    def truth(self, t: Tracer) -> bool:
        return True

    def get_attribute(self, t: Tracer, name: str) -> Value:
        if name in self.attrs:
            return self.attrs[name]
        return t.attributes.attribute_of_object(self, self.function, name)

    def set_attribute(self, t: Tracer, name: str, value: Value) -> None:
        if name in _DECIDE_A_CALL:
            raise GraphBreak("unsupported-store", f"storing {name} of {self.describe()}")
        t.heap.store_attribute(self, name, value)
        self.attrs[name] = value


_DECIDE_A_CALL = frozenset(("__defaults__", "__kwdefaults__", "__code__"))
"""What a function keeps that its calls go by."""


class ClosureValue(Value):
    """A function made while tracing."""

    __slots__ = ("annotations", "attrs", "closure", "code", "defaults", "globals", "kwdefaults", "name", "qualname")

    def __init__(
        self,
        code: types.CodeType,
        globals: dict[str, Any],
        defaults: Value | None,
        kwdefaults: Value | None,
        closure: tuple[CellValue, ...],
        annotations: Value | None = None,
    ) -> None:
        super().__init__()
        self.code = code
        self.globals = globals
        self.defaults = defaults
        self.kwdefaults = kwdefaults
        self.closure = closure
        self.annotations = annotations
        self.name = code.co_name
        self.qualname = code.co_qualname
        self.attrs: dict[str, Value] = {}

    def python_type(self) -> type:
        return types.FunctionType

    def describe(self) -> str:
        return self.qualname

    def truth(self, t: Tracer) -> bool:
        return True

    def call(self, t: Tracer, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
        return t.caller.inline_closure(self, args, kwargs)

    def rebuild(self, e: Any) -> None:
        e.pinned(_make_function)
        e.pinned(self.code)
        e.pinned(self.globals)
        for part in (self.defaults, self.kwdefaults):
            e.value(part) if part is not None else e.const(None)
        for cell in self.closure:
            e.value(cell)
        e.build("tuple", len(self.closure))
        e.const(self.name)
        e.const(self.qualname)
        e.value(self.annotations) if self.annotations is not None else e.const(None)
        e.call(8)

    def fill(self, e: Any) -> None:
        for name, value in self.attrs.items():
            if name in ("__name__", "__qualname__"):
                continue
            e.value(value)
            e.value(self)
            e.store_attr(name)

    def get_attribute(self, t: Tracer, name: str) -> Value:
        if name in self.attrs:
            return self.attrs[name]
        if name in ("__name__", "__qualname__", "__module__", "__doc__"):
            table = {
                "__name__": self.name,
                "__qualname__": self.qualname,
                "__module__": self.globals.get("__name__"),
                "__doc__": self.code.co_consts[0]
                if self.code.co_consts and isinstance(self.code.co_consts[0], str)
                else None,
            }
            return ConstantValue(table[name])
        if name == "__code__":
            return t.wrapper.wrap_pinned(self.code)
        if name == "__defaults__":
            return self.defaults or ConstantValue(None)
        if name == "__kwdefaults__":
            return self.kwdefaults or ConstantValue(None)
        if name == "__dict__":
            own = {name: value for name, value in self.attrs.items() if name not in _FIELDS}
            return t.wrapper.new_dict(own)
        if name == "__closure__":
            return t.wrapper.sequence(list(self.closure), tuple) if self.closure else ConstantValue(None)
        if name == "__call__":
            return self
        if name == "__annotations__":
            parts = [] if self.annotations is None else list(t.operators.iterate_all(self.annotations))
            made = {key.constant(): value for key, value in zip(parts[::2], parts[1::2], strict=True)}
            self.attrs[name] = t.wrapper.new_dict(made)
            return self.attrs[name]
        if name == "__type_params__" and hasattr(types.FunctionType, name):
            return ConstantValue(())
        return t.attributes.native_attribute(self, name)

    def set_attribute(self, t: Tracer, name: str, value: Value) -> None:
        if name == "__name__" and value.is_constant():
            self.name = value.constant()
        elif name == "__qualname__" and value.is_constant():
            self.qualname = value.constant()
        elif name in ("__defaults__", "__kwdefaults__", "__code__", "__dict__"):
            raise GraphBreak("unsupported-store", f"storing {name} of a function made in the function")
        self.attrs[name] = value


_FIELDS = frozenset(
    (
        "__name__",
        "__qualname__",
        "__module__",
        "__doc__",
        "__annotations__",
        "__type_params__",
        "__defaults__",
        "__kwdefaults__",
    )
)
"""What a function keeps outside of its `__dict__`."""


def _make_function(
    code: types.CodeType,
    globals: dict[str, Any],
    defaults: Any,
    kwdefaults: Any,
    closure: tuple[Any, ...],
    name: str,
    qualname: str,
    annotations: tuple[Any, ...] | None,
) -> types.FunctionType:
    """A function of its parts; annotations are names and values in turn, as the instruction has them."""
    made = types.FunctionType(code, globals, name, defaults, closure or None)
    if annotations is not None:
        made.__annotations__ = dict(zip(annotations[::2], annotations[1::2], strict=True))
    made.__kwdefaults__ = kwdefaults
    made.__qualname__ = qualname
    return made


class MethodValue(Value):
    """A callable bound to its first argument."""

    __slots__ = ("function", "owner")

    def __init__(self, function: Value, owner: Value, source: Source | None = None) -> None:
        super().__init__(source)
        self.function = function
        self.owner = owner

    def python_type(self) -> type:
        return types.MethodType

    def describe(self) -> str:
        return self.function.describe()

    def truth(self, t: Tracer) -> bool:
        return True

    def call(self, t: Tracer, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
        return t.caller.call(self.function, [self.owner.realise(t), *args], kwargs)

    def rebuild(self, e: Any) -> None:
        if self.source is not None:
            e.source(self.source)
            return
        e.pinned(types.MethodType)
        e.value(self.function)
        e.value(self.owner)
        e.call(2)

    def get_attribute(self, t: Tracer, name: str) -> Value:
        if name == "__self__":
            return self.owner
        if name == "__func__":
            return self.function
        return self.function.get_attribute(t, name)


class PartialValue(Value):
    """`functools.partial`; `object` is the real one when it existed before."""

    __slots__ = ("args", "function", "kwargs", "object")

    def __init__(
        self,
        function: Value,
        args: list[Value],
        kwargs: dict[str, Value],
        source: Source | None = None,
        object: Any = MISSING,
    ) -> None:
        super().__init__(source)
        self.function = function
        self.args = args
        self.kwargs = kwargs
        self.object = object

    def python_type(self) -> type:
        return functools.partial

    def real(self) -> Any:
        return self.object

    def truth(self, t: Tracer) -> bool:
        return True

    def call(self, t: Tracer, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
        return t.caller.call(
            self.function.realise(t),
            [*(arg.realise(t) for arg in self.args), *args],
            {**{k: v.realise(t) for k, v in self.kwargs.items()}, **kwargs},
        )

    def rebuild(self, e: Any) -> None:
        if self.source is not None:
            e.source(self.source)
            return
        e.pinned(functools.partial)
        e.value(self.function)
        for value in (*self.args, *self.kwargs.values()):
            e.value(value)
        e.call(1 + len(self.args) + len(self.kwargs), tuple(self.kwargs))

    def get_attribute(self, t: Tracer, name: str) -> Value:
        if name == "func":
            return self.function.realise(t)
        if name == "args":
            return t.wrapper.sequence(list(self.args), tuple)
        if name == "keywords":
            return t.wrapper.new_dict(dict(self.kwargs))
        return super().get_attribute(t, name)


def bind_arguments(
    t: Tracer,
    code: types.CodeType,
    defaults: Sequence[Value],
    kwdefaults: Mapping[str, Value],
    args: Sequence[Value],
    kwargs: Mapping[str, Value],
    name: str,
) -> dict[str, Value]:
    """Parameters to values, as CPython binds them; a mismatch is a traced TypeError. `name` is the function's qualified one."""
    try:
        return _bound(t, code, defaults, kwdefaults, args, kwargs)
    except _Mismatch:
        raise t.exceptions.raised(_error_of_call(code, len(defaults), kwdefaults, len(args), kwargs, name)) from None


def _bound(
    t: Tracer,
    code: types.CodeType,
    defaults: Sequence[Value],
    kwdefaults: Mapping[str, Value],
    args: Sequence[Value],
    kwargs: Mapping[str, Value],
) -> dict[str, Value]:
    count, positional_only, keyword_only = code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount
    names = code.co_varnames[: count + keyword_only]
    bound: dict[str, Value] = dict(zip(names[:count], args, strict=False))
    position = count + keyword_only
    if code.co_flags & 0x04:
        bound[code.co_varnames[position]] = t.wrapper.sequence(list(args[count:]), tuple)
        position += 1
    elif len(args) > count:
        raise _Mismatch
    extra: dict[str, Value] = {}
    accepted = names[positional_only:]
    for key, value in kwargs.items():
        if key not in accepted:
            if not code.co_flags & 0x08:
                raise _Mismatch
            extra[key] = value
        elif key in bound:
            raise _Mismatch
        else:
            bound[key] = value
    if code.co_flags & 0x08:
        bound[code.co_varnames[position]] = t.wrapper.new_dict(extra)
    first_default = count - len(defaults)
    for i, parameter in enumerate(names):
        if parameter in bound:
            continue
        if i < count and i >= first_default:
            bound[parameter] = defaults[i - first_default]
        elif i >= count and parameter in kwdefaults:
            bound[parameter] = kwdefaults[parameter]
        else:
            raise _Mismatch
    return bound


class _Mismatch(Exception):
    """The arguments are not those that the function takes."""


def _error_of_call(
    code: types.CodeType, defaults: int, kwdefaults: Iterable[str], args: int, kwargs: Iterable[str], name: str
) -> BaseException:
    """What CPython raises for such a call: one of a function with the same parameters that does nothing."""
    count, keyword_only = code.co_argcount, code.co_kwonlyargcount
    names = [f"p{i}" if not n.isidentifier() else n for i, n in enumerate(code.co_varnames)]
    parameters = [f"{n}=0" if i >= count - defaults else n for i, n in enumerate(names[:count])]
    if code.co_posonlyargcount:
        parameters.insert(code.co_posonlyargcount, "/")
    place = count + keyword_only
    if code.co_flags & 0x04:
        parameters.append(f"*{names[place]}")
        place += 1
    elif keyword_only:
        parameters.append("*")
    optional = set(kwdefaults)
    parameters += [f"{n}=0" if n in optional else n for n in names[count : count + keyword_only]]
    if code.co_flags & 0x08:
        parameters.append(f"**{names[place]}")
    space: dict[str, Any] = {}
    exec(f"def function({', '.join(parameters)}): pass", space)
    space["function"].__qualname__ = name
    try:
        space["function"](*[None] * args, **dict.fromkeys(kwargs))
    except TypeError as error:
        return error
    return TypeError(f"{name}() does not take these arguments")
