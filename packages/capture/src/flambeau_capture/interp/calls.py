"""Calls: what is inlined, replaced, recorded, folded or refused; construction of objects.

In: a callable and arguments as values. Out: the result as a value. Order for every callable: the lookaside table, marks put on it by the
user, the torch policy, then inlining (Python) or folding (C, on constants only).
"""

from __future__ import annotations

import enum
import re
import types
from typing import TYPE_CHECKING, Any

import torch

from .. import replacements
from ..class_names import HEAP_TYPE, class_module, class_name, class_qualname, full_name, type_name
from ..graph.inner_tensors import is_wrapper_class
from ..library import collections, contextlib, functools, inspect, weakref
from ..native import _C
from ..signals import GraphBreak, TracedRaise
from ..sources.source import Attribute, Item, Pinned
from ..torch_policy import Decision
from ..values.autocast import AutocastValue, DerivedAutocastValue
from ..values.base import MISSING, Value
from ..values.builtins import ClassValue
from ..values.constants import ConstantValue
from ..values.functions import CellValue, ClosureValue, FunctionValue, MethodValue, bind_arguments
from ..values.generators import GeneratorValue
from ..values.mappings import DictValue
from ..values.members import mro_lookup
from ..values.objects import EXCEPTIONS_WITH_FIELDS, ExceptionValue, ObjectValue, native_maker
from ..values.sequences import ListValue, TupleValue, is_plain_named
from ..values.sets import SetValue
from ..values.subclasses import SubclassValue
from ..values.symbolic import SymbolicValue
from ..values.tensor import TensorValue, method_name
from ..values.trust import classes_in, is_pure_native, is_trusted_namespace
from . import enum_members, native_slots
from . import told as told_of
from .cached import call_cached
from .exceptions import has_python_init
from .frame import Frame, Place
from .operations import COMPARE
from .part import Part
from .tensor_classes import construct_tensor

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_DESCRIPTORS = (types.MethodDescriptorType, types.WrapperDescriptorType)
_PURE_OBJECTS = (re.Pattern, re.Match)
"""Immutable objects whose native methods compute from constants."""
_COROUTINES = 0x80 | 0x100 | 0x200
_OPERATOR_METHODS = {
    **{f"__{name}__": symbol for symbol, name in (("+", "add"), ("-", "sub"), ("*", "mul"), ("/", "truediv"), ("//", "floordiv"), ("%", "mod"), ("**", "pow"), ("@", "matmul"), ("&", "and"), ("|", "or"), ("^", "xor"), ("<<", "lshift"), (">>", "rshift"))},
    **{f"__{name}__": symbol for symbol, name in (("<", "lt"), ("<=", "le"), ("==", "eq"), ("!=", "ne"), (">", "gt"), (">=", "ge"))},
}  # fmt: skip


_TAKE = {
    "__len__": 0, "__iter__": 0, "__bool__": 0, "__str__": 0, "__repr__": 0, "__hash__": 0, "__reversed__": 0, "__getitem__": 1,
    "__contains__": 1, "__delitem__": 1, "__setitem__": 2,
}  # fmt: skip
"""How many arguments the special methods of containers take."""
_NOT_NATIVE = (types.FunctionType, types.NoneType)
_TENSORS = (TensorValue, SubclassValue)


class Caller(Part):
    """Calls and construction."""

    def call(self, function: Value, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
        """`function(*args, **kwargs)`."""
        return function.realise(self.t).call(self.t, args, kwargs).realise(self.t)

    def call_through(
        self, places: tuple[Place, ...], function: Value, args: Sequence[Value], kwargs: Mapping[str, Value]
    ) -> Value:
        """A call that plain Python makes from these places, in functions that are not traced."""
        self.t.frames.left_out = places
        try:
            return self.call(function, args, kwargs)
        finally:
            self.t.frames.left_out = ()

    # Python functions

    def call_function(
        self, value: FunctionValue, function: types.FunctionType, args: Sequence[Value], kwargs: Mapping[str, Value]
    ) -> Value:
        """Call a Python function that existed before the frame."""
        told = told_of.substituted(self.t, function, args, kwargs)
        if told is not None:
            return told
        replaced = replacements.find(function)
        if replaced is not None:
            return replaced(self.t, args, kwargs)
        wrapper = replacements.find_wrapper(function.__code__)
        if wrapper is not None:
            return wrapper(self.t, value, args, kwargs)
        told = told_of.marked(self.t, function, args, kwargs)
        if told is not None:
            return told
        decision = replacements.torch_decision(function)
        if decision is Decision.ALWAYS_RECORD or (
            decision is Decision.RECORD and self.t.recorder.has_tensor(args, kwargs)
        ):
            if self.t.members.patched_callee(function) is not None or self.t.overrides.applies(args, kwargs):
                return self.inline_function(value, function, args, kwargs)
            name = method_name(function)
            if name is not None and args and isinstance(args[0].realise(self.t), _TENSORS):
                return self.call_bound(args[0], name, args[1:], kwargs)
            return self.t.recorder.record("call_function", function, args, kwargs)
        if decision is Decision.BREAK and not self.t.config.dont_skip_tracing:
            raise GraphBreak("unsupported-call", f"calling {value.describe()}")
        if decision is Decision.CONTROL_FLOW:
            raise GraphBreak("control-flow-operator", f"calling {value.describe()}")
        return self.inline_function(value, function, args, kwargs)

    def inline_function(
        self, value: FunctionValue, function: types.FunctionType, args: Sequence[Value], kwargs: Mapping[str, Value]
    ) -> Value:
        """Trace into the body of a function."""
        base = value.source or Pinned(function)
        stable = Pinned(function) if self.t.guards.is_trusted(base) or "<locals>" not in function.__qualname__ else base
        given = Attribute(stable, "__defaults__")
        if function.__defaults__ and not self.t.guards.is_trusted(given):
            self.t.guards.length(given, len(function.__defaults__))
        defaults = [self.t.wrapper.wrap(d, Item(given, i)) for i, d in enumerate(function.__defaults__ or ())]
        kwdefaults = {
            k: self.t.wrapper.wrap(d, Item(Attribute(stable, "__kwdefaults__"), k))
            for k, d in (function.__kwdefaults__ or {}).items()
        }
        cells = [
            self.t.wrapper.cell_of(c, Item(Attribute(stable, "__closure__"), i))
            for i, c in enumerate(function.__closure__ or ())
        ]
        try:
            bound = bind_arguments(self.t, function.__code__, defaults, kwdefaults, args, kwargs, function.__qualname__)
        except TracedRaise:
            for name in ("__defaults__", "__kwdefaults__"):  # more of them would do
                self.t.wrapper.wrap(getattr(function, name), Attribute(stable, name))
            raise
        return self._with_origin(
            self.run_inlined(function.__code__, function.__globals__, bound, cells), value, args, kwargs
        )

    def _with_origin(self, result: Value, function: Value, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
        """A generator that has not started can be made again: by the same call."""
        if isinstance(result, GeneratorValue) and not result.started and result.origin is None:
            result.origin = (function, tuple(args), dict(kwargs))
        return result

    def inline_closure(self, value: ClosureValue, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
        """Trace into a function made while tracing."""
        wrapper = replacements.find_wrapper(value.code)
        if wrapper is not None:
            return wrapper(self.t, value, args, kwargs)
        defaults = list(self.t.operators.iterate_all(value.defaults)) if value.defaults is not None else []
        kwdefaults = (
            {self.t.wrapper.to_python(k): v for k, v in self.t.operators.mapping_items(value.kwdefaults)}
            if value.kwdefaults is not None
            else {}
        )
        bound = bind_arguments(self.t, value.code, defaults, kwdefaults, args, kwargs, value.qualname)
        return self._with_origin(self.run_inlined(value.code, value.globals, bound, value.closure), value, args, kwargs)

    def run_inlined(
        self, code: types.CodeType, namespace: dict[str, Any], bound: dict[str, Value], closure: Sequence[CellValue]
    ) -> Value:
        """A child frame, run to its end (a generator is left suspended at its start)."""
        if code.co_flags & _COROUTINES:
            raise GraphBreak("generator-function", f"calling the coroutine {code.co_qualname}")
        if self.t.frames.depth >= self.t.config.inline_depth:
            raise GraphBreak("too-deep", f"more than {self.t.config.inline_depth} calls inlined into each other")
        cells = {name: CellValue(bound.pop(name, None)) for name in code.co_cellvars}
        cells.update(zip(code.co_freevars, closure, strict=True))
        left_out, self.t.frames.left_out = self.t.frames.left_out, ()
        caller, suspends = self.t.frames.frame, code.co_flags & 0x20
        frame = Frame(self.t, code, namespace, bound, cells, None if suspends else caller)
        if suspends:
            return GeneratorValue(frame)
        frame.left_out = left_out
        self.t.frames.frame = frame
        self.t.frames.depth += 1
        try:
            return frame.run()
        except GraphBreak as error:
            self.t.frames.locate(error)
            raise
        finally:
            self.t.frames.frame = caller
            self.t.frames.depth -= 1

    # native callables

    def call_builtin(self, value: Value, function: Any, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
        """Call something written in C."""
        told = told_of.substituted(self.t, function, args, kwargs)
        if told is not None:
            return told
        replaced = replacements.find(function)
        if replaced is not None:
            return replaced(self.t, args, kwargs)
        replacements.refuse_marked(function)
        if isinstance(function, functools._lru_cache_wrapper):
            return call_cached(self.t, value, function, args, kwargs)
        if isinstance(function, _C.Region):
            # Part of this region then: its backend and options are those of the outermost.
            inner = self.t.wrapper.wrap(function.callable, Attribute(value.source or Pinned(function), "callable"))
            return self.call(inner, args, kwargs)
        if isinstance(function, _DESCRIPTORS) and args:
            return self.call_descriptor(function, args, kwargs)
        decision = replacements.torch_decision(function)
        if decision is Decision.ALWAYS_RECORD:
            return self.t.recorder.record("call_function", function, args, kwargs)
        if decision is Decision.RECORD:
            if self.t.recorder.has_tensor(args, kwargs):
                return self.t.recorder.record("call_function", function, args, kwargs)
            return self.t.folder.fold(function, args, kwargs)
        if decision is Decision.ASK:
            return self.t.folder.ask(function, args, kwargs)
        if decision is Decision.CONTROL_FLOW:
            raise GraphBreak("control-flow-operator", f"calling {value.describe()}")
        if decision is Decision.BREAK:
            raise GraphBreak("unsupported-call", f"calling {value.describe()}")
        owner = getattr(function, "__self__", None)
        if owner is not None and not isinstance(owner, (types.ModuleType, type)):
            # A method taken before the frame: what its object holds may change between the calls.
            where = Attribute(value.source or Pinned(function), "__self__")
            return self.call_bound(self.t.wrapper.wrap(owner, where), function.__name__, args, kwargs)
        if decision is Decision.FOLD or is_pure_native(function):
            if replacements.is_impure(function):
                raise GraphBreak("unsupported-call", f"calling {value.describe()}")
            if (
                self.t.recorder.has_tensor(args, kwargs)
                and any(isinstance(a, SymbolicValue) for a in args)
                and not any(isinstance(a, TensorValue) for a in args)
            ):
                return self.t.folder.fold(
                    function,
                    [
                        self.t.wrapper.from_python(self.t.folder.concrete(a)) if isinstance(a, SymbolicValue) else a
                        for a in args
                    ],
                    kwargs,
                )
            return self.t.folder.fold(function, args, kwargs)
        if function is weakref.proxy or function is weakref.ref.__new__:
            raise self.t.lifetimes.weakly_held(args if function is weakref.proxy else args[1:])
        raise GraphBreak("unsupported-call", f"calling {value.describe()}")

    def call_descriptor(self, function: Any, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
        """An unbound native method: `list.append(x, 1)`, `dict.__setitem__(self, k, v)`."""
        owner, name = args[0], function.__name__
        if not issubclass(owner.python_type(), function.__objclass__):
            wanted, got = type_name(function.__objclass__), type_name(owner.python_type())
            if isinstance(function, types.WrapperDescriptorType):
                raise self.t.exceptions.raised(
                    TypeError(f"descriptor {name!r} requires a {wanted!r} object but received a {got!r}")
                )
            raise self.t.exceptions.raised(
                TypeError(f"descriptor {name!r} for {wanted!r} objects doesn't apply to a {got!r} object")
            )
        of_all = function.__objclass__ is object or (name == "__getattribute__" and isinstance(owner, ObjectValue))
        if isinstance(owner, ObjectValue) and owner.storage is not None and not of_all:
            if not issubclass(owner.storage.python_type(), function.__objclass__):
                # What a subclass of a class in C has beside its contents: the factory of a dict with defaults.
                raise GraphBreak("unsupported-call", f"{function!r} of {owner.describe()}")
            if mro_lookup(owner.storage.python_type(), name)[0] is not function:
                raise GraphBreak("unsupported-call", f"{function!r} of {owner.describe()}, whose class has another one")
            holder = owner if owner.storage.is_constant() else owner.storage
            return holder.call_method(self.t, name, args[1:], kwargs)
        if isinstance(owner, ObjectValue) and of_all and (owner.storage is None or name not in _OPERATOR_METHODS):
            return self.generic_method(owner, name, args[1:], kwargs)
        has_own = mro_lookup(owner.python_type(), name)[0] is not function
        inherits = isinstance(owner, _TENSORS) or (isinstance(owner, ObjectValue) and owner.storage is None)
        if (has_own and not inherits) or (of_all and isinstance(owner, ClassValue)):
            raise GraphBreak("unsupported-call", f"{function!r} of {owner.describe()}, whose class has another one")
        return self.call_bound(owner, name, args[1:], kwargs)

    def call_bound(self, owner: Value, name: str, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
        """`owner.name(...)` where the class implements the method in C."""
        owner = owner.realise(self.t)
        if isinstance(owner, ClassValue):
            if name == "__call__":
                return self.construct(owner, args, kwargs, natively=True)
            if name == "__new__" and args:
                return self.make_instance(args[0], args[1:])
            if name == "__init_subclass__":
                if args or kwargs:
                    raise GraphBreak("unsupported-call", "object.__init_subclass__ with arguments")
                return ConstantValue(None)
            return self.t.folder.fold(getattr(owner.object, name), args, kwargs)
        if name == "__get__" and isinstance(owner, (FunctionValue, ClosureValue)):
            return owner if args[0].is_constant() and args[0].constant() is None else MethodValue(owner, args[0])
        if name == "__call__":
            return self.call(owner, args, kwargs)
        if isinstance(owner, ObjectValue):
            if isinstance(owner, AutocastValue) and name in ("__enter__", "__exit__"):
                return owner.call_method(self.t, name, args, kwargs)
            return self.generic_method(owner, name, args, kwargs)
        return owner.call_method(self.t, name, args, kwargs)

    def generic_method(self, owner: Value, name: str, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
        """Special methods that the interpreter implements for every value, else folding."""
        none = ConstantValue(None)
        if name in _OPERATOR_METHODS and len(args) == 1 and not kwargs:
            return self._operator_method(owner, name, args[0])
        if name in _OPERATOR_METHODS:
            raise GraphBreak("unsupported-call", f"{name} with these arguments")
        if isinstance(owner, ObjectValue) and issubclass(type(owner.object), _PURE_OBJECTS):
            return self.t.folder.fold(getattr(owner.object, name), args, kwargs)
        if isinstance(owner, ObjectValue):
            found = self._object_method(owner, name, args, kwargs)
            if found is not None:
                return found
            if owner.storage is not None:
                return owner.call_method(self.t, name, args, kwargs)
        if name in _TAKE and (len(args) != _TAKE[name] or kwargs):
            self.t.folder.real_error(getattr(owner.python_type(), name), [owner, *args], kwargs)
        match name:
            case "__len__":
                return owner.length(self.t)
            case "__getitem__":
                return owner.get_item(self.t, args[0])
            case "__setitem__":
                owner.set_item(self.t, args[0], args[1])
                return none
            case "__delitem__":
                owner.delete_item(self.t, args[0])
                return none
            case "__contains__":
                return ConstantValue(owner.contains(self.t, args[0]))
            case "__iter__":
                return owner.iterate(self.t)
            case "__bool__":
                return ConstantValue(owner.truth(self.t))
            case "__str__" | "__repr__":
                return self.t.texts.to_text(owner, name.strip("_"))
            case "__hash__":
                return ConstantValue(hash(self.t.wrapper.hashable(owner)))
            case "__init__" if isinstance(owner, (ListValue, DictValue)) or (
                isinstance(owner, SetValue) and owner.cls is set
            ):
                return self._fill_storage(owner, args, kwargs)
            case "__reversed__":
                return self.call(self.t.wrapper.wrap_pinned(reversed), [owner], {})
            case "__init__":
                return self._init_of_object(owner.python_type(), args, kwargs)
            case "__init_subclass__" if not args and not kwargs:
                return none
        if self.t.wrapper.is_foldable(owner):
            return self.t.folder.fold_method(owner, name, args, kwargs)
        raise GraphBreak("unsupported-call", f"method {name!r} of {owner.describe()}")

    def _operator_method(self, owner: Value, name: str, other: Value) -> Value:
        """The special method of an operator, as a native class has it."""
        symbol = _OPERATOR_METHODS[name]
        of_object = getattr(owner.python_type(), name, None) is getattr(object, name, MISSING)
        if isinstance(owner, ObjectValue) and owner.storage is None and not of_object:
            raise GraphBreak("unsupported-call", f"{name} of {owner.describe()}")
        if of_object:
            return self._compared_as_objects(owner, name, other)
        if isinstance(owner, ObjectValue) and name == "__or__":
            owner.refuse_remaking()
        target = owner.storage if isinstance(owner, ObjectValue) and owner.storage is not None else owner
        if self.t.wrapper.is_foldable(target) and self.t.wrapper.is_foldable(other):
            found = self.t.folder.fold(getattr(target.python_type(), name), [target, other], {})
        elif not isinstance(target, TensorValue) and target.python_type() is not other.python_type():
            raise GraphBreak("unsupported-call", f"{name} of {owner.describe()} and {other.describe()}")
        else:
            compares = symbol in COMPARE
            found = (
                self.t.operators.compare(symbol, target, other)
                if compares
                else self.t.operators.binary(symbol, target, other)
            )
        return owner.as_outside(found) if isinstance(owner, ObjectValue) else found

    def _object_method(
        self, owner: ObjectValue, name: str, args: Sequence[Value], kwargs: Mapping[str, Value]
    ) -> Value | None:
        match name:
            case "__setattr__":
                self.t.attributes.plain_store(owner, args[0].constant(), args[1])
            case "__delattr__":
                self.t.attributes.plain_delete(owner, args[0].constant())
            case "__dir__" | "__sizeof__" | "__reduce__" | "__reduce_ex__" | "__getstate__" if (
                owner.storage is not None
            ):
                raise GraphBreak("unsupported-call", f"{name} of {owner.describe()}, which is more than what it holds")
            case "__getattribute__":
                return self.t.attributes.plain_attribute(owner, args[0].constant(), hook=False)
            case "__init__" if isinstance(owner, ExceptionValue):
                if owner.object is not MISSING or issubclass(owner.cls, EXCEPTIONS_WITH_FIELDS):
                    raise GraphBreak(
                        "unsupported-call", f"{class_qualname(owner.cls)}.__init__ of an exception with fields"
                    )
                owner.arguments = list(args)
            case "__init__" if issubclass(owner.cls, collections.defaultdict):
                raise GraphBreak("unsupported-call", f"__init__ of {owner.describe()}")
            case "__init__" if not isinstance(owner.storage, (ListValue, DictValue, SetValue)):
                return self._init_of_object(owner.cls, args, kwargs)
            case "__hash__":
                return native_slots.hashed(self.t, owner)
            case "__repr__" | "__str__":
                raise GraphBreak("unsupported-call", f"{name} of {owner.describe()}")
            case "__format__" if self.t.members.class_lookup(owner.cls, name) is vars(object)[name]:
                raise GraphBreak("unsupported-call", f"{name} of {owner.describe()}")
            case _:
                return None
        return ConstantValue(None)

    def _compared_as_objects(self, owner: Value, name: str, other: Value) -> Value:
        """What `object` has for a comparison."""
        if name == "__ne__":
            equal = self.call(self.t.attributes.get_attribute(owner, "__eq__"), [other], {})
            return (
                equal if equal.is_constant() and equal.constant() is NotImplemented else self.t.operators.negate(equal)
            )
        return ConstantValue(True if name == "__eq__" and self.t.operators.identical(owner, other) else NotImplemented)

    def _init_of_object(self, cls: type, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
        """`object.__init__`, which takes arguments where the class has a `__new__` of its own that reads them, and no other `__init__`."""
        found, _ = self.t.members.class_member(cls, "__init__")
        native = next(init for base in cls.__mro__ if not isinstance(init := vars(base).get("__init__"), _NOT_NATIVE))
        if native is not object.__init__:
            raise GraphBreak("unsupported-call", f"{class_qualname(cls)}.__init__, which is written in C")
        if not args and not kwargs:
            return ConstantValue(None)
        if found is not native or self.t.members.class_member(cls, "__new__")[1] is object:
            owner = "object" if found is not native else type_name(cls)
            text = f"{owner}.__init__() takes exactly one argument (the instance to initialize)"
            raise self.t.exceptions.raised(TypeError(text))
        return ConstantValue(None)

    def _fill_storage(
        self, owner: Value, args: Sequence[Value], kwargs: Mapping[str, Value], cls: type = object
    ) -> Value:
        if len(args) > 1 or (kwargs and not isinstance(owner, DictValue)):
            raise GraphBreak("unsupported-call", "filling a container from other than one argument")
        if owner.python_type() in (collections.deque, collections.defaultdict) or issubclass(
            cls, collections.defaultdict
        ):
            raise GraphBreak("unsupported-call", f"{class_name(owner.python_type())}.__init__")
        if isinstance(owner, (ListValue, SetValue)) and owner.items:
            owner.call_method(self.t, "clear", [], {})
        if isinstance(owner, ListValue) and args:
            owner.m_extend(self.t, args[0])
        elif isinstance(owner, DictValue):
            owner.m_update(self.t, *args, **kwargs)
        elif isinstance(owner, SetValue) and args:
            owner.call_method(self.t, "update", args, {})
        return ConstantValue(None)

    # classes

    def construct(
        self, value: ClassValue, args: Sequence[Value], kwargs: Mapping[str, Value], *, natively: bool = False
    ) -> Value:
        """`cls(*args, **kwargs)`; `natively`: `type.__call__(cls, *args, **kwargs)`, past what the metaclass has."""
        cls = value.object
        replaced = replacements.find(cls)
        if replaced is not None:
            return replaced(self.t, args, kwargs)
        told = told_of.allowed_object(self.t, cls, args, kwargs)
        if told is not None:
            return told
        if issubclass(cls, enum.Enum):
            return enum_members.construct(self.t, cls, args, dict(kwargs))
        if issubclass(cls, type):
            raise GraphBreak("unsupported-call", f"{class_name(cls)}() makes a class, another one at each call")
        if class_module(cls).startswith("torch._C") and hasattr(cls, "__enter__"):
            # torch's C++ guards take effect when they are made, so that making one here would reach into the tracing itself.
            raise GraphBreak("unsupported-call", f"making the guard {full_name(cls)}")
        meta_call, _ = self.t.members.class_member(type(cls), "__call__")
        if isinstance(meta_call, type):
            return self.call(
                self.t.wrapper.wrap_pinned(meta_call), args, kwargs
            )  # that of a TypedDict: it makes a plain dict
        calls_python = isinstance(meta_call, types.FunctionType) and not natively
        if calls_python and class_module(cls).partition(".")[0] != "torch":
            return self.call(self.t.wrapper.wrap_pinned(meta_call), [value, *args], kwargs)
        if is_wrapper_class(cls) and not calls_python:
            return self.t.wrapper.wrapper_tensors.construct(value, args, kwargs)
        if issubclass(cls, torch.Tensor):
            return construct_tensor(self.t, value, args, kwargs)
        if calls_python and not issubclass(cls, torch.nn.Module):
            raise GraphBreak("unsupported-call", f"constructing {full_name(cls)}")
        if is_plain_named(cls) and not isinstance(cls.__dict__.get("__new__"), types.BuiltinFunctionType):
            return self._construct_named(cls, args, kwargs)
        new, where = self.t.members.class_member(cls, "__new__")
        new = getattr(new, "__func__", new)
        if isinstance(new, types.FunctionType) and class_module(where) not in ("typing", "abc"):
            made = self.call(self.t.wrapper.wrap_pinned(new), [value, *args], kwargs)
        elif replacements.torch_decision(cls) is Decision.FOLD or (
            is_pure_native(cls)
            and not has_python_init(cls)
            and not issubclass(cls, (BaseException, dict, list, set, tuple))
        ):
            if cls is object and not args and not kwargs:
                return ObjectValue(object)
            return self.t.folder.fold(cls, args, kwargs)
        elif kwargs and issubclass(cls, (int, float, str, bytes, tuple)):
            raise GraphBreak("unsupported-call", "keyword arguments for a native __new__")
        else:
            made = self.make_instance(value, args)
        if cls not in made.python_type().__mro__:
            return made
        init, init_owner = self.t.members.class_member(made.python_type(), "__init__")
        is_native = isinstance(init, types.WrapperDescriptorType) and not init_owner.__flags__ & HEAP_TYPE
        if not is_native and not isinstance(init, types.FunctionType):
            raise GraphBreak("unsupported-call", f"constructing {full_name(cls)}, whose __init__ is no function")
        if isinstance(init, types.FunctionType):
            returned = self.call(self.t.wrapper.wrap_pinned(init), [made, *args], kwargs)
            if returned.python_type() is not types.NoneType:
                raise self.t.exceptions.raised(
                    TypeError(f"__init__() should return None, not '{class_name(returned.python_type())}'")
                )
        elif (
            isinstance(made, ObjectValue)
            and not isinstance(made, ExceptionValue)
            and isinstance(made.storage, (ListValue, DictValue, SetValue))
        ):
            self._fill_storage(made.storage, args, kwargs, cls)
        elif (args or kwargs) and init_owner is object and where is object:
            raise self.t.exceptions.raised(TypeError(f"{class_name(cls)}() takes no arguments"))
        elif kwargs and isinstance(made, ExceptionValue):
            raise GraphBreak("unsupported-call", "an exception made with keyword arguments")
        return made

    def _construct_named(self, cls: Any, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
        new = cls.__new__
        if isinstance(new, types.FunctionType):
            defaults = [self.t.wrapper.from_python(d) for d in new.__defaults__ or ()]
            given = [ConstantValue(None), *args]
            bound = bind_arguments(self.t, new.__code__, defaults, {}, given, kwargs, new.__qualname__)
            return TupleValue([bound[name] for name in new.__code__.co_varnames[1 : new.__code__.co_argcount]], cls)
        return TupleValue(self.t.operators.collect(args[0]), cls)

    def make_instance(self, value: Value, args: Sequence[Value]) -> Value:
        """`cls.__new__(cls, *args)` with nothing initialised."""
        cls = value.real()
        if issubclass(cls, BaseException):
            return self.t.exceptions.make_exception(cls, args)
        if issubclass(cls, weakref.ref):
            return self.t.lifetimes.reference(cls, args)
        if issubclass(cls, dict):
            base = collections.OrderedDict if issubclass(cls, collections.OrderedDict) else dict
            return ObjectValue(cls, storage=DictValue({}, base))
        if issubclass(cls, list):
            return ObjectValue(cls, storage=ListValue([]))
        if issubclass(cls, set):
            return ObjectValue(cls, storage=SetValue({}))
        if issubclass(cls, tuple):
            items = self.t.operators.collect(args[0]) if args else []
            return TupleValue(items, cls) if is_plain_named(cls) else ObjectValue(cls, storage=TupleValue(items, tuple))
        for scalar in (int, float, str, bytes):
            if issubclass(cls, scalar):
                if native_maker(cls) is not scalar:
                    # Numbers of NumPy: what is done with them asks their class in C, which knows more of them than the number.
                    raise GraphBreak("unsupported-call", f"constructing {full_name(cls)}")
                return ObjectValue(cls, storage=self.t.folder.fold(scalar, args, {}))
        native, where = self.t.members.class_member(cls, "__new__")
        if not cls.__flags__ & HEAP_TYPE and cls is not object:
            raise GraphBreak("unsupported-call", f"constructing {full_name(cls)}")
        if (
            where is not object
            and not isinstance(getattr(native, "__func__", native), types.FunctionType)
            and class_module(where) not in ("typing", "_abc")
        ):
            raise GraphBreak("unsupported-call", f"constructing {full_name(cls)}")
        if self.t.members.class_member(cls, "__del__")[0] is not MISSING:
            # It runs when the last variable lets go of the object: between effects that a cut frame has behind a graph.
            raise GraphBreak("unsupported-call", f"constructing {full_name(cls)}, which has a __del__", whole=True)
        if mro_lookup(cls, "__abstractmethods__")[0] is not MISSING:
            self.t.guards.answer(inspect.isabstract, (cls,), {}, inspect.isabstract(cls))
            if inspect.isabstract(cls):
                return self.t.folder.fold(object.__new__, [value], {})
        return DerivedAutocastValue(cls) if issubclass(cls, torch.autocast) else ObjectValue(cls)

    # classes that are asked about

    def class_or_tuple(self, value: Value) -> Any:
        """The real class or tuple of classes."""
        return self.t.folder.concrete(value)

    def asked_of_class(self, cls: type, classes: Any, check: str = "__instancecheck__") -> None:
        """Guard what a class answers for itself to `isinstance` and `issubclass`: an abstract one may get a subclass later."""
        for one in classes_in(classes):
            _, owner = mro_lookup(type(one), check)
            if owner in (type, None) or (is_trusted_namespace(one) and is_trusted_namespace(cls)):
                continue
            if not is_trusted_namespace(owner):
                raise GraphBreak("unsupported-call", f"{class_name(type(one))}.{check} decides")
            with contextlib.suppress(TypeError):  # of a class that refuses to answer, the caller too
                self.t.guards.answer(issubclass, (cls, one), {}, issubclass(cls, one))
