"""Real objects to values and back.

In: an object and its source, or a value. Out: `wrap` (guarded), `from_python` (a fresh object, nothing to guard), `to_python` (a value
that is constant through and through).
"""

from __future__ import annotations

import enum
import types
from typing import TYPE_CHECKING, Any

import torch

from ..class_names import class_module, class_qualname, type_name
from ..constant_objects import PLAIN_TYPES, UNHASHABLE, is_annotation, is_constant_object
from ..guards.spec import own_length
from ..library import collections, functools, itertools, threading, weakref
from ..numpy_classes import SCALARS, is_numpy_constant
from ..signals import GraphBreak
from ..sources.source import Attribute, CallResult, CellContents, DictKeyAt, Item, Pinned, Source, StoredItem
from ..values.autocast import wrap_autocast
from ..values.base import MISSING, Value
from ..values.bound import BoundBuiltin, LoadedMethod
from ..values.builtins import BuiltinValue, ClassValue, PythonModuleValue, RealValue
from ..values.constants import ConstantValue
from ..values.counters import CounterValue
from ..values.functions import CellValue, FunctionValue, MethodValue, PartialValue
from ..values.keys import as_hashed
from ..values.lazy import LazyValue
from ..values.mappings import DictValue, ProxyValue, order_tells_all
from ..values.members import NATIVE_METHODS, has_quiet_class, may_be_hashed, mro_lookup, own_content, own_dict
from ..values.ndarrays import ArrayValue
from ..values.objects import ExceptionValue, ObjectValue, OpaqueValue
from ..values.references import ReferenceValue
from ..values.scripted import ScriptedValue
from ..values.sequences import ListValue, SliceValue, TupleValue, is_plain_named
from ..values.sets import SetValue
from ..values.subclasses import ACCESSORS, AccessorValue, SubclassValue, is_of_tensors
from ..values.supers import wrap_super
from ..values.symbolic import SymbolicValue
from ..values.tensor import TensorValue
from ..values.thread_locals import ThreadLocalValue
from . import native_slots
from .changing_numbers import ChangingNumbers
from .enum_members import hold_methods
from .numpy_objects import wrap_numpy
from .part import Part
from .tensor_inputs import TensorInputs
from .wrapper_tensors import WrapperTensors

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..graph.dynamics import Dynamics
    from ..values.base import Tracer

_C_CALLABLES = (
    types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType, types.MethodWrapperType, types.ClassMethodDescriptorType,
    type(torch.ops.aten.add), type(torch.ops.aten.add.Tensor), torch._ops.HigherOrderOperator,
)  # fmt: skip
_DICTS = (dict, collections.OrderedDict, collections.defaultdict)


class NotConstant(Exception):
    """`to_python` met a value that is not a constant."""


class Wrapper(Part):
    """Values for real objects, one for each object, and objects for values.

    Args:
        dynamics: what earlier compiles of the code taught.
    """

    def __init__(self, t: Tracer, dynamics: Dynamics) -> None:
        super().__init__(t)
        self.dynamics = dynamics
        #: By the address of the object.
        self.wrapped: dict[int, Value] = {}
        #: Kept while the trace lasts, for `wrapped` knows objects by their address; an entry must not keep its first arguments.
        self.met: list[Any] = []
        #: Kept by the entry: they are part of it.
        self.keep_alive: list[Any] = []
        self.declared = None if dynamics.declared is None else dynamics.declared.begin(t.info, t.graph)
        self.numbers = ChangingNumbers(t, dynamics, self.declared)
        self.fake_owner: dict[int, Value] = {}
        self.tensor_inputs: list[tuple[torch.Tensor, torch.Tensor, Source]] = []
        self.tensors = TensorInputs(t, dynamics, self.declared)
        self.wrapper_tensors = WrapperTensors(t)
        self.real_cells: dict[int, CellValue] = {}
        #: Whether what is traced will be run for real when the graph is.
        self.rehearsing = False

    # real object -> value

    def wrap(self, obj: Any, source: Source) -> Value:
        """A value for an object that existed before the frame, guarded."""
        _refuse_loud_class(obj)
        if is_constant_object(obj) and not _holds_slice(obj):
            return self._wrap_constant(obj, source)
        known = self.wrapped.get(id(obj))
        if known is not None:
            if (
                known.source is not None
                and known.source is not source
                and not isinstance(known, (ClassValue, BuiltinValue, PythonModuleValue, FunctionValue))
            ):
                self.t.guards.alias(source, known.source)
            elif isinstance(known, RealValue) or (isinstance(known, FunctionValue) and known.source is not source):
                self.t.guards.identity(source, obj)
            return known
        made = self._wrap_new(obj, source)
        self.wrapped[id(obj)] = made
        (self.keep_alive if isinstance(source, Pinned) else self.met).append(obj)
        return made

    def wrap_pinned(self, obj: Any) -> Value:
        """A value for an object that the entry keeps alive: nothing to guard."""
        _refuse_loud_class(obj)
        if is_constant_object(obj):
            return ConstantValue(obj)
        known = self.wrapped.get(id(obj))
        if known is not None:
            return known
        return self.wrap(obj, Pinned(obj))

    def _wrap_constant(self, obj: Any, source: Source) -> Value:
        kind = type(obj)
        if kind in (int, float) and not isinstance(source, Pinned) and not self.t.guards.is_trusted(source):
            symbolic = self.numbers.wrap(obj, source)
            if symbolic is not None:
                return symbolic
        if kind is tuple and not isinstance(source, Pinned) and self.numbers.in_tuple(obj, source):
            return self._wrap_sequence(obj, source)
        if kind in SCALARS:
            self.t.guards.type_is(source, kind)
            self.t.guards.constant(CallResult(Attribute(source, "item")), obj.item())
        elif isinstance(obj, enum.Enum) or is_numpy_constant(obj):
            self.t.guards.identity(source, obj)
        elif kind in UNHASHABLE:
            self.t.guards.type_is(source, kind)
            self.t.guards.constant(Attribute(source, "dtype"), obj.dtype)
        else:
            self.t.guards.constant(source, obj)
        return ConstantValue(obj, source)

    def _wrap_new(self, obj: Any, source: Source) -> Value:
        kind = type(obj)
        if kind in weakref.ProxyTypes:  # the first: one of what is gone raises when it is asked for anything
            raise GraphBreak("unsupported-argument", "a weak proxy")
        if issubclass(kind, torch.Tensor):  # not `isinstance`: an object may name another class
            return self.tensors.wrap(obj, source)
        if kind in (list, tuple, collections.deque, torch.Size):
            return self._wrap_sequence(obj, source)
        if kind in _DICTS:
            self.t.guards.type_is(source, kind)
            return self._wrap_dict(obj, source)
        if kind in (set, frozenset):
            self.t.guards.type_is(source, kind)
            return self._wrap_set(obj, source)
        if kind is types.FunctionType:
            self._guard_function(obj, source)
            return FunctionValue(obj, source)
        if kind is types.MethodType:
            self.t.guards.type_is(source, kind)
            function = self.wrap(obj.__func__, Attribute(source, "__func__"))
            return MethodValue(function, LazyValue(obj.__self__, Attribute(source, "__self__")), source)
        if issubclass(kind, type):
            self.t.guards.identity(source, obj)
            return ClassValue(obj, source)
        if issubclass(kind, types.ModuleType):
            self.t.guards.identity(source, obj)
            return PythonModuleValue(obj, source)
        if kind in ACCESSORS and is_of_tensors(obj):
            self.t.guards.identity(source, obj)
            return AccessorValue(obj, source)
        if is_annotation(obj):
            self.t.guards.identity(source, obj)
            return ConstantValue(obj, source)
        if kind is functools.partial:
            return self._wrap_partial(obj, source)
        if kind is types.CellType:
            self.t.guards.type_is(source, kind)
            return self.cell_of(obj, source)
        if issubclass(kind, (*_C_CALLABLES, functools._lru_cache_wrapper)) or kind in (
            type(torch.ops.aten),
            type(torch.ops),
        ):
            self.t.guards.identity(source, obj)
            return BuiltinValue(obj, source)
        if is_plain_named(kind):
            return self._wrap_sequence(obj, source)
        if kind is slice:
            self.t.guards.type_is(source, kind)
            start, stop, step = (
                LazyValue(getattr(obj, part), Attribute(source, part)) for part in ("start", "stop", "step")
            )
            return SliceValue((start, stop, step), source)
        return self._wrap_object(obj, source)

    def _wrap_object(self, obj: Any, source: Source) -> Value:
        kind = type(obj)  # not `isinstance`: an object may name another class
        if issubclass(kind, BaseException):
            self.t.guards.type_is(source, kind)
            given = Attribute(source, "args")
            self.t.guards.length(given, len(obj.args))
            return ExceptionValue(kind, [LazyValue(a, Item(given, i)) for i, a in enumerate(obj.args)], obj, source)
        if class_module(kind) == "numpy":
            return wrap_numpy(self.t, obj, source)
        if kind is types.MappingProxyType:
            self.t.guards.type_is(source, kind)
            try:
                shown = dict(obj.items())
            except AttributeError:
                raise GraphBreak("unsupported-argument", "a mappingproxy of what is no mapping") from None
            if not all(map(is_constant_object, shown)):
                raise GraphBreak("unsupported-argument", "a mappingproxy with keys that are no constants")
            items: dict[Any, tuple[Value, Value]] = {
                key: (ConstantValue(key), LazyValue(value, Item(source, key))) for key, value in shown.items()
            }
            return ProxyValue(items, source, obj)
        if issubclass(kind, torch.autocast):
            self.t.guards.type_is(source, kind)
            return wrap_autocast(self.t, obj, source)
        if kind is torch.jit.ScriptFunction:
            self.t.guards.identity(source, obj)
            return ScriptedValue(obj, source)
        if kind is itertools.count or kind is threading.local:
            self.t.guards.type_is(source, kind)
            return CounterValue(obj, source) if kind is itertools.count else ThreadLocalValue(obj, source)
        if issubclass(kind, threading.local):
            raise GraphBreak("unsupported-argument", "a class derived from threading.local")
        if kind is super:
            return wrap_super(self.t, obj, source)
        storage: Value | None = None
        if issubclass(kind, dict):
            storage = self._wrap_dict(obj, source)
            if isinstance(storage, OpaqueValue):
                raise GraphBreak("unsupported-operation", "a dict with keys whose __hash__ or __eq__ is the program's")
        elif issubclass(kind, (list, tuple)):
            storage = self._wrap_sequence(obj, source, storage=True)
        elif issubclass(kind, (set, frozenset)):
            storage = self._wrap_set(obj, source)
        elif issubclass(kind, (str, int, float, bytes)):
            storage = ConstantValue(own_content(obj))
            self.t.guards.identity(source, obj)
        self.t.guards.type_is(source, kind)
        if issubclass(kind, torch.optim.Optimizer):
            self.numbers.meet_optimizer(obj)
        if isinstance(own_dict(obj), dict) or hasattr(kind, "__slots__") or storage is not None:
            return ObjectValue(kind, obj, source, storage)
        self.t.guards.identity(source, obj)
        return ObjectValue(kind, obj, source)

    def _guard_function(self, obj: types.FunctionType, source: Source) -> None:
        # Made anew for each call, most likely: what else it is made of is guarded where it is looked at.
        is_made_anew = "<locals>" in obj.__qualname__ and not self.t.guards.is_trusted(source)
        if not isinstance(source, Pinned) and not is_made_anew:
            self.t.guards.identity(source, obj)
        self.t.guards.function(source, obj)

    def _wrap_partial(self, obj: Any, source: Source) -> Value:
        self.t.guards.type_is(source, functools.partial)
        args_source, kwargs_source = Attribute(source, "args"), Attribute(source, "keywords")
        self.t.guards.length(args_source, len(obj.args))
        if not self.t.guards.is_trusted(source):
            self.t.guards.dict_keys(kwargs_source, obj.keywords)
        args: list[Value] = [LazyValue(a, Item(args_source, i)) for i, a in enumerate(obj.args)]
        kwargs: dict[str, Value] = {k: LazyValue(v, Item(kwargs_source, k)) for k, v in obj.keywords.items()}
        return PartialValue(LazyValue(obj.func, Attribute(source, "func")), args, kwargs, source, obj)

    def _wrap_sequence(self, obj: Any, source: Source, *, storage: bool = False) -> Value:
        if not storage:
            self.t.guards.type_is(source, type(obj))
        if not (issubclass(type(obj), tuple) and self.t.guards.is_trusted(source)):
            self.t.guards.length(source, own_length(obj))
        kind = type(obj)
        item_source = _item_source(kind)
        elements = (list if issubclass(type(obj), list) else tuple).__iter__(obj) if storage else obj
        items: list[Value] = [LazyValue(item, item_source(source, i)) for i, item in enumerate(elements)]
        if issubclass(type(obj), tuple):
            return TupleValue(items, tuple if storage else kind, source)
        limit = getattr(obj, "maxlen", None) if kind is collections.deque else None
        if kind is collections.deque:
            self.t.guards.constant(Attribute(source, "maxlen"), limit)
        return ListValue(items, list if storage else kind, source, limit)

    def _wrap_dict(self, obj: Any, source: Source) -> Value:
        self.numbers.meet_dict(obj, source)
        items: dict[Any, tuple[Value, Value]] = {}
        item_source = _item_source(type(obj))
        base: Any = collections.OrderedDict if issubclass(type(obj), collections.OrderedDict) else dict
        if not all(map(may_be_hashed, dict.__iter__(obj))):  # an OrderedDict's own iterator hashes them
            return OpaqueValue(obj, source, "unsupported-operation")
        if base is not dict and not order_tells_all(obj):
            raise GraphBreak("unsupported-operation", "an OrderedDict that a method of dict wrote to, past its order")
        for i, (key, value) in enumerate(base.items(obj)):
            if is_constant_object(key):
                items[key] = (ConstantValue(key), LazyValue(value, item_source(source, key)))
            else:
                key_value: Value = LazyValue(key, Pinned(key) if _hashes_by_identity(key) else DictKeyAt(source, i))
                items[as_hashed(key)] = (key_value, LazyValue(value, item_source(source, key)))
        default = None
        if issubclass(type(obj), collections.defaultdict):
            default = LazyValue(obj.default_factory, Attribute(source, "default_factory"))
        kind = (
            type(obj)
            if type(obj) in _DICTS
            else collections.OrderedDict
            if issubclass(type(obj), collections.OrderedDict)
            else dict
        )
        return DictValue(items, kind, source, default.realise(self.t) if default is not None else None, origin=obj)

    def _wrap_set(self, obj: Any, source: Source) -> Value:
        base = frozenset if issubclass(type(obj), frozenset) else set
        members = list(base.__iter__(obj))
        if not all(may_be_hashed(item) and (is_constant_object(item) or _hashes_by_identity(item)) for item in members):
            raise GraphBreak("unsupported-operation", "a set with members that are compared by value")
        self.t.guards.members(source, iter(members))
        made = SetValue({item: self.wrap(item, Pinned(item)) for item in members}, base, source, obj)
        if type(obj) is not base:
            made.table = base(obj)  # no method of the subclass is asked
            if list(made.table) != members:
                raise GraphBreak("unsupported-operation", "a set of a subclass, whose order a copy does not keep")
        return made

    def cell_of(self, cell: types.CellType, source: Source) -> CellValue:
        """The value of a closure cell, one for each real cell."""
        known = self.real_cells.get(id(cell))
        if known is not None:
            return known
        try:
            contents: Value | None = LazyValue(cell.cell_contents, CellContents(source))
        except ValueError:
            contents = None
        made = CellValue(contents, source, cell)
        self.real_cells[id(cell)] = made
        self.met.append(cell)
        return made

    # fresh objects

    def from_constant(self, value: Any) -> Value:
        """What LOAD_CONST pushes."""
        if type(value) in PLAIN_TYPES or is_constant_object(value):
            return ConstantValue(value)
        return self.wrap_pinned(value)

    def from_python(self, obj: Any) -> Value:
        """A value for an object that the trace computed from constants."""
        _refuse_loud_class(obj)
        if is_constant_object(obj):
            return ConstantValue(obj)
        kind = type(obj)
        if kind is list or kind is collections.deque:
            return ListValue([self.from_python(item) for item in obj], kind, maxlen=getattr(obj, "maxlen", None))
        if isinstance(obj, tuple) and (kind in (tuple, torch.Size) or hasattr(kind, "_fields")):
            return TupleValue([self.from_python(item) for item in obj], kind)
        if kind in _DICTS:
            return DictValue({k: (self.from_python(k), self.from_python(v)) for k, v in obj.items()}, kind)
        if kind in (set, frozenset):
            return SetValue({item: self.from_python(item) for item in obj}, kind, table=obj)
        return self.wrap_pinned(obj)

    def sequence(self, items: Sequence[Value], cls: type) -> Value:
        """A fresh list or tuple."""
        return ListValue(list(items), cls) if issubclass(cls, list) else TupleValue(list(items), cls)

    def new_dict(self, items: dict[str, Value]) -> Value:
        """A fresh dict with string keys."""
        return DictValue({name: (ConstantValue(name), value) for name, value in items.items()})

    # value -> real object

    def is_foldable(self, value: Value) -> bool:
        """Whether `to_python` answers."""
        try:
            self.to_python(value)
        except NotConstant:
            return False
        return True

    def to_python(self, value: Value, within: tuple[Value, ...] = ()) -> Any:
        """The real object of a value that is constant through and through. Raises NotConstant.

        `within` are the containers that are being made of what is in them.
        """
        value = value.realise(self.t)
        if value.is_constant():
            return value.constant()
        if isinstance(value, (RealValue, FunctionValue)):
            if isinstance(value, FunctionValue):
                # Whoever asks for the function itself takes more from it than its code, which alone may be guarded.
                self.t.guards.identity(value.source, value.function)
            return value.real()
        if any(value is outer for outer in within):
            raise NotConstant(f"a {value.describe()} that contains itself")
        within = (*within, value)
        if isinstance(value, TupleValue):
            items = [self.to_python(item, within) for item in value.items]
            if issubclass(value.cls, torch.Size) or hasattr(value.cls, "n_sequence_fields"):
                # Classes with a constructor in C: `tuple.__new__` refuses them.
                return value.cls(items)
            return tuple.__new__(value.cls, items) if value.cls is not tuple else tuple(items)
        if isinstance(value, ListValue):
            items = [self.to_python(item, within) for item in value.items]
            return collections.deque(items, value.maxlen) if value.cls is collections.deque else items
        if isinstance(value, DictValue) and value.cls in (dict, collections.OrderedDict):
            value.guard_all(self.t)
            return value.cls((self.to_python(k, within), self.to_python(v, within)) for k, v in value.items.values())
        if isinstance(value, SetValue):
            return value.cls(self.to_python(item, within) for item in value.ordered(self.t))
        if isinstance(value, SliceValue):
            return slice(*(self.to_python(part, within) for part in value.parts))
        if (
            isinstance(value, ObjectValue)
            and value.storage is not None
            and value.storage.is_constant()
            and value.object is not MISSING
        ):
            return value.object
        raise NotConstant(value.describe())

    def hashable(self, value: Value) -> Any:
        """What a value hashes to as a dict key."""
        value = value.realise(self.t)
        if value.is_constant():
            constant = value.constant()
            hold_methods(self.t, hash, (constant,))
            if not may_be_hashed(constant):
                raise GraphBreak("unsupported-operation", f"hashing {value.describe()}")
            try:
                hash(constant)
            except TypeError as error:
                raise self.t.exceptions.raised(error) from None
            return constant
        if isinstance(value, SliceValue) and slice.__hash__ is not None:
            return self.hashable(ConstantValue(slice(*(self.hashable(part) for part in value.parts))))
        if isinstance(value, ArrayValue) and value.is_scalar:
            raise GraphBreak("data-dependent-value", f"hashing {value.describe()} that the graph computes")
        if isinstance(value, SubclassValue):
            return value.key(self.t)
        if isinstance(value, TensorValue):
            return ("tensor", id(value.tensor)) if value.tensor is not MISSING else value
        if isinstance(value, SymbolicValue):
            return value.concrete(self.t)
        if isinstance(value, TupleValue):
            return tuple(self.hashable(item) for item in value.items)
        if isinstance(value, (ListValue, DictValue)) or (isinstance(value, SetValue) and value.cls is set):
            raise self.t.exceptions.raised(TypeError(f"unhashable type: '{type_name(value.python_type())}'"))
        if isinstance(value, SetValue):
            return frozenset(value.items)
        if isinstance(value, ObjectValue):
            for name in ("__hash__", "__eq__"):
                self.t.members.class_member(value.cls, name)
            if _object_hash(value.cls):
                return value.object if value.object is not MISSING else value
            if value.object is not MISSING and _hashes_by_identity(value.object):
                return value.object
            if (key := native_slots.hashable(self.t, value)) is not MISSING:
                return key
            raise GraphBreak("unsupported-operation", f"hashing {value.describe()}")
        if isinstance(value, ReferenceValue):
            self.hashable(value.referent)  # whose hash it has
            return value.key
        if isinstance(value, (MethodValue, BoundBuiltin, LoadedMethod)):
            # Equal to another that binds the same, whichever object each of them is.
            raise GraphBreak("unsupported-operation", f"hashing the bound method {value.describe()}")
        if value.python_type().__hash__ is None:
            raise self.t.exceptions.raised(TypeError(f"unhashable type: '{type_name(value.python_type())}'"))
        real = value.real()
        return value if real is MISSING else real


def _refuse_loud_class(obj: Any) -> None:
    """Break the graph where tables of classes, of ours or of Python's, would ask the program's metaclass."""
    if not has_quiet_class(obj):
        told = class_qualname(obj if isinstance(obj, type) else type(obj))
        raise GraphBreak("unsupported-operation", f"{told}, whose metaclass has a __hash__ or __eq__ of its own")


def _item_source(kind: Any) -> Any:
    """How an item of a container of this class is reached: by its subscript, unless that is code of the user's."""
    return Item if isinstance(mro_lookup(kind, "__getitem__")[0], NATIVE_METHODS) else StoredItem


def _holds_slice(obj: Any) -> bool:
    """Whether a constant is a slice or a tuple with one: what bounds a slice may be a number that changes."""
    return type(obj) is slice or (type(obj) is tuple and any(_holds_slice(item) for item in obj))


def _object_hash(kind: Any) -> bool:
    return kind.__hash__ is object.__hash__


def _hashes_by_identity(obj: Any) -> bool:
    kind = type(obj)
    return _object_hash(kind) or kind in (types.BuiltinFunctionType, types.MethodWrapperType)
