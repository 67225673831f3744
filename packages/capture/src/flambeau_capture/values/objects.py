"""Instances of Python classes: user objects, modules, exceptions, subclasses of containers.

In: a real object, or a class that the traced program instantiates. Out: attributes by Python's own rules (data descriptors, the
instance, the class, `__getattr__`), every one guarded where it was found. What an instance of a container class holds is kept in
`storage`, an ordinary container value.
"""

from __future__ import annotations

import sys
import types
from typing import TYPE_CHECKING, Any

from ..class_names import HEAP_TYPE, class_module, class_name, full_name, objects_have, type_name
from ..library import collections, inspect, weakref
from ..signals import GraphBreak, TracedRaise
from ..sources.source import Attribute, CallResult
from .base import MISSING, Value
from .by_index import IndexIterator
from .constants import ConstantValue
from .iterators import SequenceIterator
from .mappings import DictValue
from .sequences import ListValue, TupleValue
from .sets import SetValue

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..sources.source import Source
    from .base import Tracer


class ObjectValue(Value):
    """An instance of `cls`. `object` is the real one, `MISSING` for one made while tracing; `attrs` is what the trace stored (None: deleted)."""

    __slots__ = ("attrs", "cls", "object", "storage")

    def __init__(
        self, cls: type, object: Any = MISSING, source: Source | None = None, storage: Value | None = None
    ) -> None:
        super().__init__(source)
        self.cls = cls
        self.object = object
        self.storage = storage
        self.attrs: dict[str, Value | None] = {}

    def python_type(self) -> type:
        return self.cls

    def real(self) -> Any:
        return self.object

    def describe(self) -> str:
        return f"an object of {full_name(self.cls)}"

    def rebuild(self, e: Any) -> None:
        if self.source is not None:
            e.source(self.source)
            return
        if self.object is not MISSING:
            e.pinned(self.object)
            return
        e.pinned(_new_instance)
        e.pinned(self.cls)
        if self.storage is not None and not isinstance(self.storage, _mutable_storage()):
            e.value(self.storage)
        else:
            e.const(None)
        e.call(2)

    def fill(self, e: Any) -> None:
        if self.object is not MISSING or self.source is not None:
            return
        present = {name: value for name, value in self.attrs.items() if value is not None}
        mutable = self.storage is not None and isinstance(self.storage, _mutable_storage())
        if not present and not mutable:
            return
        e.pinned(_fill_instance)
        e.value(self)
        for name, value in present.items():
            e.const(name)
            e.value(value)
        e.build("dict", len(present))
        e.value(self.storage) if mutable else e.const(None)
        e.call(3)
        e.pop()

    # attributes

    def get_attribute(self, t: Tracer, name: str) -> Value:
        return t.attributes.object_attribute(self, name)

    def set_attribute(self, t: Tracer, name: str, value: Value) -> None:
        t.attributes.store_object_attribute(self, name, value)

    def delete_attribute(self, t: Tracer, name: str) -> None:
        t.attributes.delete_object_attribute(self, name)

    # operations by the class's special methods

    def special(self, t: Tracer, name: str) -> Value | None:
        """The class's special method bound to this object, None when there is none (or only an inherited native one)."""
        return t.attributes.special_method(self, name)

    def _do(self, t: Tracer, name: str, *args: Value) -> Value:
        method = self.special(t, name)
        if method is not None:
            return t.caller.call(method, list(args), {})
        if objects_have(self.cls, name) or name not in _LACKS:
            raise GraphBreak("unsupported-operation", f"{name} of {self.describe()}")
        raise t.exceptions.raised(TypeError(_LACKS[name].format(type_name(self.cls))))

    def call(self, t: Tracer, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
        if type(self.object) in _PLAIN_REFERENCES and not args and not kwargs and self.source is not None:
            found = self.object()
            if found is not None and t.lifetimes.lets_go_of(found):
                raise GraphBreak(
                    "unsupported-call", "a weak reference to what a variable holds until the frame lets go of it"
                )
            return t.wrapper.wrap(found, CallResult(self.source))
        method = self.special(t, "__call__")
        if method is None:
            if callable(self.object) and self.object is not MISSING:
                return t.caller.call_builtin(self, self.object, args, kwargs)
            raise t.exceptions.raised(TypeError(f"'{class_name(self.cls)}' object is not callable"))
        return t.caller.call(method, args, kwargs)

    def call_method(self, t: Tracer, name: str, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
        if self.storage is None:
            return t.caller.generic_method(self, name, args, kwargs)
        if isinstance(t.members.class_lookup(self.cls, name), types.ClassMethodDescriptorType):
            raise GraphBreak("unsupported-call", f"the class method {name} of {self.describe()}")
        if not objects_have(self.storage.python_type(), name):
            raise GraphBreak("unsupported-call", f"{name} of {self.describe()}")
        if name in ("copy", "__or__", "__ror__", "__copy__"):
            self.refuse_remaking()
        if name == "__getitem__" and len(args) == 1 and not kwargs and isinstance(self.storage, DictValue):
            found = self.storage.lookup(t, args[0])
            if found is None and objects_have(self.cls, "__missing__"):
                return self._do(t, "__missing__", args[0])
        found = self.storage.call_method(t, name, args, kwargs)
        if self.storage.is_constant() and (name == "__iter__" or _gives(found, self.storage.constant())):
            # Where nothing changes, some methods give the object itself.
            raise GraphBreak("unsupported-call", f"{name} of {self.describe()}")
        return self.as_outside(found)

    def as_outside(self, found: Value) -> Value:
        """What an operation gives that gave what the object holds: the object, or of one that cannot change its plain equal."""
        if found is not self.storage:
            return found
        return self if isinstance(found, _mutable_storage()) and found.python_type() is not frozenset else _plain(found)

    def refuse_remaking(self) -> None:
        """Break where a method of these dicts calls the class of the object, whatever that is, to make another one."""
        if issubclass(self.cls, (collections.OrderedDict, collections.defaultdict)):
            raise GraphBreak("unsupported-call", f"an operation that makes another object of {full_name(self.cls)}")

    def get_item(self, t: Tracer, key: Value) -> Value:
        method = self.special(t, "__getitem__")
        if method is None and isinstance(self.storage, DictValue) and objects_have(self.cls, "__missing__"):
            found = self.storage.lookup(t, key)
            return self._do(t, "__missing__", key) if found is None else found
        if method is None and self.storage is not None and objects_have(self.cls, "__getitem__"):
            return self.as_outside(self.storage.get_item(t, key))
        return self._do(t, "__getitem__", key)

    def set_item(self, t: Tracer, key: Value, value: Value) -> None:
        if self.special(t, "__setitem__") is None and self.storage is not None:
            self.storage.set_item(t, key, value)
        else:
            self._do(t, "__setitem__", key, value)

    def delete_item(self, t: Tracer, key: Value) -> None:
        if self.special(t, "__delitem__") is None and self.storage is not None:
            self.storage.delete_item(t, key)
        else:
            self._do(t, "__delitem__", key)

    def contains(self, t: Tracer, item: Value) -> bool:
        if self.special(t, "__contains__") is not None:
            return self._do(t, "__contains__", item).truth(t)
        if self.storage is not None and objects_have(self.cls, "__contains__"):
            return self.storage.contains(t, item)
        if not objects_have(self.cls, "__iter__") and not objects_have(self.cls, "__getitem__"):
            raise GraphBreak("unsupported-operation", f"membership in {self.describe()}")
        return any(t.operators.same_or_equal(other, item) for other in t.operators.iterate_all(self))

    def length(self, t: Tracer) -> Value:
        if self.special(t, "__len__") is None and self.storage is not None and objects_have(self.cls, "__len__"):
            return self.storage.length(t)
        found = self._do(t, "__len__")
        if found.python_type() is not int:
            found = ConstantValue(t.folder.integer(found))
        if t.operators.compare("<", found, ConstantValue(0)).truth(t):
            raise t.exceptions.raised(ValueError("__len__() should return >= 0"))
        if found.is_constant() and found.constant() > sys.maxsize:
            raise t.exceptions.raised(OverflowError("cannot fit 'int' into an index-sized integer"))
        return found

    def truth(self, t: Tracer) -> bool:
        if self.special(t, "__bool__") is not None:
            found = self._do(t, "__bool__")
            if found.python_type() is not bool:
                returned = type_name(found.python_type())
                raise t.exceptions.raised(TypeError(f"__bool__ should return bool, returned {returned}"))
            return found.truth(t)
        is_number = self.storage is not None and objects_have(self.cls, "__bool__")
        if not is_number and self.special(t, "__len__") is not None:
            return self.length(t).truth(t)
        if self.storage is not None:
            return self.storage.truth(t)
        if self.object is not MISSING and (objects_have(self.cls, "__bool__") or objects_have(self.cls, "__len__")):
            raise GraphBreak("unsupported-operation", f"the truth of {self.describe()}")
        return True

    def iterate(self, t: Tracer) -> Value:
        if self.special(t, "__iter__") is not None:
            found = self._do(t, "__iter__")
            if not objects_have(found.python_type(), "__next__"):
                raise t.exceptions.raised(
                    TypeError(f"iter() returned non-iterator of type '{type_name(found.python_type())}'")
                )
            return found
        if self.storage is not None and objects_have(self.cls, "__iter__"):
            if isinstance(self.storage, ConstantValue) and type(self.storage.value) is str:
                return SequenceIterator([ConstantValue(text) for text in self.storage.value], self, _OVER_TEXT)
            return self.storage.iterate(t)
        if objects_have(self.cls, "__iter__"):
            raise GraphBreak("unsupported-operation", f"iterating over {self.describe()}")
        if self.special(t, "__getitem__") is not None:
            return IndexIterator(self)
        raise t.exceptions.raised(TypeError(f"'{type_name(self.cls)}' object is not iterable"))

    def how_many(self, t: Tracer) -> None:
        has_length = objects_have(self.cls, "__len__")
        method = self.special(t, "__len__" if has_length else "__length_hint__")
        if method is not None and has_length:
            self.length(t)
        elif method is not None:
            t.folder.integer(t.caller.call(method, [], {}))

    def advance(self, t: Tracer) -> Value:
        return super().advance(t) if self.special(t, "__next__") is None else self._do(t, "__next__")

    def next(self, t: Tracer) -> Value | None:
        if self.special(t, "__next__") is None:
            return super().next(t)
        try:
            return self._do(t, "__next__")
        except TracedRaise as error:
            if issubclass(error.value.python_type(), StopIteration):
                return None
            raise


def _gives(found: Value, constant: Any) -> bool:
    """Whether a method's result is the text or number that it was asked of, or has it among its parts."""
    if not found.is_constant():
        return any(_gives(part, constant) for part in getattr(found, "items", ()))
    result = found.constant()
    return any(
        type(part) is type(constant) and part == constant for part in (result if type(result) is tuple else (result,))
    )


#: Weak references whose call does nothing but give what they refer to.
_PLAIN_REFERENCES = (weakref.ref, weakref.KeyedRef, weakref.WeakMethod)
_LACKS = {
    "__len__": "object of type '{}' has no len()",
    "__getitem__": "'{}' object is not subscriptable",
    "__setitem__": "'{}' object does not support item assignment",
}


class OpaqueValue(Value):
    """An object that is passed on and not looked into: whatever is done with it breaks the graph for the reason `code`."""

    __slots__ = ("code", "object")

    def __init__(self, object: Any, source: Source, code: str) -> None:
        super().__init__(source)
        self.object = object
        self.code = code

    def python_type(self) -> type:
        return type(self.object)

    def real(self) -> Any:
        return self.object

    def describe(self) -> str:
        return f"a {full_name(type(self.object))}"

    def get_attribute(self, t: Tracer, name: str) -> Value:
        from .bound import BoundBuiltin

        if callable(getattr(type(self.object), name, None)):
            return BoundBuiltin(self, name)
        raise GraphBreak(self.code, f"attribute {name!r} of {self.describe()}")

    def call_method(self, t: Tracer, name: str, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
        raise GraphBreak(self.code, f"method {name!r} of {self.describe()}")


class InstanceDictValue(DictValue):
    """`owner.__dict__`, live both ways: it shows the attributes that the trace stored, and what is written to it becomes one.

    `base` is the real object's dict, None for an object made while tracing.
    """

    __slots__ = ("base", "owner")

    def __init__(self, owner: ObjectValue, base: Value | None) -> None:
        super().__init__({})
        self.owner = owner
        self.base = base

    def rebuild(self, e: Any) -> None:
        e.value(self.owner)
        e.attr("__dict__")

    def fill(self, e: Any) -> None:
        """Nothing: the owner holds the contents."""

    def guard_all(self, t: Tracer) -> None:
        if isinstance(self.base, DictValue):
            self.base.assume_all(t)
        self._refresh()

    def guard_key(self, t: Tracer, key: Any, value: Value) -> None:
        if isinstance(self.base, DictValue) and key not in self.owner.attrs:
            self.base.assume_key(t, key, value)
        self._refresh()

    def call_method(self, t: Tracer, name: str, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
        self._refresh()
        return super().call_method(t, name, args, kwargs)

    def _refresh(self) -> None:
        items = dict(self.base.items) if isinstance(self.base, DictValue) else {}
        for name, value in self.owner.attrs.items():
            if value is None:
                items.pop(name, None)
            elif not isinstance(getattr(self.owner.cls, name, None), types.MemberDescriptorType):  # a slot is no item
                items[name] = (ConstantValue(name), value)
        self.items = items

    def set_item(self, t: Tracer, key: Value, value: Value) -> None:
        name = self._name(t, key)
        t.heap.store_attribute(self.owner, name, value)
        self.owner.attrs[name] = value

    def delete_item(self, t: Tracer, key: Value) -> None:
        name = self._name(t, key)
        if self.lookup(t, key) is None:
            raise t.exceptions.raised(KeyError(name))
        t.attributes.forget_attribute(self.owner, name)

    def _name(self, t: Tracer, key: Value) -> str:
        name = t.folder.concrete(key)
        if not isinstance(name, str) or hasattr(type(t.members.class_lookup(self.owner.cls, name)), "__set__"):
            raise GraphBreak("unsupported-store", f"storing {name!r} in the __dict__ of {self.owner.describe()}")
        return name

    def changed(self, t: Tracer) -> None:
        raise GraphBreak("unsupported-store", f"reordering or clearing the __dict__ of {self.owner.describe()}")


class TracebackValue(Value):
    """Where an exception that was never raised for real came from: there is such an object, no more is known."""

    __slots__ = ()

    def python_type(self) -> type:
        return types.TracebackType

    def truth(self, t: Tracer) -> bool:
        return True

    def rebuild(self, e: Any) -> None:
        raise GraphBreak("cannot-rebuild", "the traceback of an exception that was not raised for real")


EXCEPTIONS_WITH_FIELDS = (
    OSError, ImportError, SyntaxError, UnicodeError, SystemExit, StopIteration, BaseExceptionGroup
)  # fmt: skip
"""Native exceptions that hold more than `args`, which their `__init__` or `__new__` makes of its arguments."""


def give_outer_context(error: BaseException) -> None:
    """Give an exception that tracing made, and that came after none of the frame's, the context that raising it for real would have given it."""
    if error.__context__ is None:
        object.__setattr__(error, "__context__", sys.exc_info()[1])  # past a `__setattr__` of the program's


class ExceptionValue(ObjectValue):
    """An exception; `arguments` are its `args`, `line` is where in the frame that is captured it was raised first, `suppress` what was stored of
    whether its context is hidden, which else goes by whether it has a cause."""

    __slots__ = ("arguments", "cause", "context", "line", "suppress")

    def __init__(self, cls: type, arguments: list[Value], object: Any = MISSING, source: Source | None = None) -> None:
        super().__init__(cls, object, source)
        self.arguments = arguments
        self.cause: Value | None = None
        self.context: Value | None = None
        self.line: int | None = None
        self.suppress: Value | None = None

    def truth(self, t: Tracer) -> bool:
        return True

    def rebuild(self, e: Any) -> None:
        if self.source is not None or self.object is not MISSING:
            super().rebuild(e)
            return
        e.pinned(new_exception)
        e.pinned(self.cls)
        for argument in self.arguments:
            e.value(argument)
        e.build("tuple", len(self.arguments))
        e.call(2)

    def fill(self, e: Any) -> None:
        if self.source is None:
            if self.context is None and self.line is not None:
                e.pinned(give_outer_context)
                e.value(self)
                e.call(1)
                e.pop()
            for name, part in (("__cause__", self.cause), ("__context__", self.context), (_SUPPRESS, self.suppress)):
                if part is not None:  # past a `__setattr__` of the program's
                    e.pinned(object.__setattr__)
                    e.value(self)
                    e.const(name)
                    e.value(part)
                    e.call(3)
                    e.pop()
        super().fill(e)

    def get_attribute(self, t: Tracer, name: str) -> Value:
        if name == "args" and "args" not in self.attrs:
            return t.wrapper.sequence(list(self.arguments), tuple)
        if name in ("__cause__", "__context__"):
            own = self.cause if name == "__cause__" else self.context
            if own is None and self.object is not MISSING and self.source is not None:
                return t.wrapper.wrap(getattr(self.object, name), Attribute(self.source, name))
            if own is None and name == "__context__" and self.line is not None:
                t.exceptions.none_handled_outside("the context of an exception")
            return own or ConstantValue(None)
        if name == _SUPPRESS and self.object is MISSING:
            return self.suppress or ConstantValue(self.cause is not None)
        if name == "__traceback__":
            raise GraphBreak("unsupported-attribute", "the traceback of an exception")
        if name == "__dict__" and self.has_own_fields():
            raise GraphBreak("unsupported-attribute", "the __dict__ of an exception with fields of its own")
        if name == "value" and issubclass(self.cls, StopIteration):
            return self.arguments[0] if self.arguments else ConstantValue(None)
        if name == "with_traceback":
            raise GraphBreak("unsupported-attribute", "with_traceback of an exception")
        if (
            self.object is MISSING
            and name not in self.attrs
            and _is_native_field(t.members.class_lookup(self.cls, name))
        ):
            raise GraphBreak("unsupported-attribute", f"{name!r} of an exception that was not raised for real")
        return super().get_attribute(t, name)

    def keep_fields(self, t: Tracer, error: BaseException) -> None:
        """What a real error holds that its `args` do not tell: the name of a file, of a module."""
        plain = new_exception(type(error), error.args)
        native = [base for base in type(error).__mro__ if not base.__flags__ & HEAP_TYPE and base is not BaseException]
        for name, field in [pair for base in native for pair in vars(base).items()]:
            found = getattr(error, name, None) if _is_native_field(field) else None
            if found is not None and found != getattr(plain, name, None):
                self.attrs[name] = t.wrapper.from_python(found)

    def has_own_fields(self) -> bool:
        """Whether `args` alone do not tell its text."""
        if self.object is not MISSING and issubclass(self.cls, EXCEPTIONS_WITH_FIELDS):
            return True
        return any(_is_native_field(getattr(self.cls, name, None)) for name in self.attrs)

    def set_attribute(self, t: Tracer, name: str, value: Value) -> None:
        if name == "__traceback__" and self.object is MISSING:
            return
        if name in _CHAINING and self.object is not MISSING:
            raise GraphBreak("unsupported-store", f"{name} of an exception that existed before the frame")
        if name in _CHAINING and name != "args":
            self._chain(t, name, value)
            return
        if name == "args":
            self.arguments = list(t.operators.iterate_all(value))
            return
        super().set_attribute(t, name, value)

    def _chain(self, t: Tracer, name: str, value: Value) -> None:
        """Store what it came of, or whether that is shown."""
        if name == _SUPPRESS:
            if value.python_type() is not bool:
                raise t.exceptions.raised(TypeError("attribute value type must be bool"))
            self.suppress = ConstantValue(value.truth(t))
            return
        is_none = value.is_constant() and value.constant() is None
        what = name.strip("_")
        if not is_none and not issubclass(value.python_type(), BaseException):
            raise t.exceptions.raised(TypeError(f"exception {what} must be None or derive from BaseException"))
        setattr(self, what, value)
        if what == "cause":
            self.suppress = None


_SUPPRESS = "__suppress_context__"
_CHAINING = frozenset(("__cause__", "__context__", "__traceback__", "args", _SUPPRESS))
"""What the fields of an exception tell that every exception has."""


def _is_native_field(found: Any) -> bool:
    return inspect.ismemberdescriptor(found) or inspect.isgetsetdescriptor(found)


_OVER_TEXT = type(iter("\u00e9"))
"""Python's iterator over what is no plain text of ASCII alone."""


def _plain(storage: Value) -> Value:
    """A value of its own that equals what an object holds, which cannot change."""
    if isinstance(storage, TupleValue):
        return TupleValue(list(storage.items), tuple)
    if isinstance(storage, SetValue):
        return SetValue(storage.items, frozenset, table=storage.table)
    return ConstantValue(storage.constant())


def _mutable_storage() -> tuple[type, ...]:
    return (DictValue, ListValue, SetValue)


def _new_instance(cls: Any, storage: Any) -> Any:
    """An instance with nothing in it; `storage` is the content of immutable container classes."""
    for base in (tuple, str, int, float, frozenset, bytes):
        if storage is not None and issubclass(cls, base):
            return base.__new__(cls, storage)
    return native_maker(cls).__new__(cls)


def native_maker(cls: type) -> Any:
    """The class whose `__new__`, one of C, makes the instances of this one: no other class's may."""
    return next(
        base for base in cls.__mro__ if "__new__" in base.__dict__ and not _is_python_new(base.__dict__["__new__"])
    )


def _is_python_new(new: Any) -> bool:
    return hasattr(getattr(new, "__func__", new), "__code__")


def _fill_instance(obj: Any, attrs: dict[str, Any], storage: Any) -> None:
    """Give a new instance its attributes and contents with no user code run."""
    if isinstance(storage, dict):
        native = next(
            base
            for base in type(obj).__mro__
            if class_module(base) in ("builtins", "collections") and issubclass(base, dict)
        )
        for key, value in storage.items():
            native.__setitem__(obj, key, value)
    elif isinstance(storage, list):
        list.extend(obj, storage)
    elif isinstance(storage, set):
        set.update(obj, storage)
    for name, value in attrs.items():
        object.__setattr__(obj, name, value)


def new_exception(cls: Any, arguments: tuple[Any, ...]) -> Any:
    """An exception with these `args`, whatever its `__init__` takes, and the fields that its native class makes of them."""
    made = native_maker(cls).__new__(cls, *arguments)
    if issubclass(cls, EXCEPTIONS_WITH_FIELDS):
        native = next(base for base in cls.__mro__ if not base.__flags__ & HEAP_TYPE)
        native.__init__(made, *arguments)
    object.__setattr__(made, "args", arguments)
    return made
