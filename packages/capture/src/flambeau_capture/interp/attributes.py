"""Attribute access by Python's rules.

In: a value and a name. Out: a value; what was read is guarded where it was found.
"""

from __future__ import annotations

import types
import warnings
from collections import namedtuple
from typing import TYPE_CHECKING, Any

import torch

from ..class_names import HEAP_TYPE, class_name, class_qualname, module_name, name_of, type_name
from ..library import functools, inspect
from ..native import _C
from ..signals import GraphBreak, TracedRaise
from ..sources.source import Attribute, InstanceDict, Item, Pinned, Source
from ..values.base import MISSING, Value
from ..values.bound import BoundBuiltin
from ..values.builtins import ClassValue
from ..values.constants import ConstantValue
from ..values.functions import CellValue, MethodValue
from ..values.lazy import LazyValue
from ..values.mappings import DictValue
from ..values.members import NATIVE_METHODS, is_borrowed, is_native_access, mro_lookup, own_dict
from ..values.objects import ExceptionValue, InstanceDictValue, ObjectValue
from ..values.sequences import TupleValue
from ..values.trust import is_trusted_namespace
from .part import Part

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..values.base import Tracer

_FIELD: Any = type(vars(namedtuple("_Named", "field"))["field"])
"""What the class of a named tuple has under the name of a field."""
_FIELDS_OF_CLASSES = (
    "__name__", "__qualname__", "__module__", "__doc__", "__mro__", "__bases__", "__dict__", "__abstractmethods__",
)  # fmt: skip
_MODULE_TABLES = ("_parameters", "_buffers", "_modules")


class Attributes(Part):
    """Attribute access."""

    def __init__(self, t: Tracer) -> None:
        super().__init__(t)
        #: What `__dict__` of an object gave, by the identity of its value.
        self.instance_dicts: dict[int, Value] = {}

    def get_attribute(self, value: Value, name: str) -> Value:
        """`value.name`."""
        if name == "__class__" and not isinstance(value, ObjectValue):
            return self.t.wrapper.wrap_pinned(value.python_type())
        if name == "__doc__" and isinstance(value, BoundBuiltin):
            return ConstantValue(getattr(getattr(value.owner.python_type(), value.name, None), "__doc__", None))
        try:
            return value.get_attribute(self.t, name).realise(self.t)
        except TracedRaise as error:
            raised = error.value
            if (
                isinstance(raised, ExceptionValue)
                and issubclass(raised.cls, AttributeError)
                and raised.object is MISSING
            ):
                # As CPython: an AttributeError that passes by and tells neither gets both.
                if not {"name", "obj"} & raised.attrs.keys():
                    raised.attrs.update(name=ConstantValue(name), obj=value)
            raise

    def missing_attribute(self, value: Value, name: str, check: Source | None = None) -> Any:
        """Raise the traced AttributeError; `check` is the path to an object that may get the attribute later."""
        if check is not None:
            self.t.guards.lacks_attribute(check, name)
        raise self.t.exceptions.raised(
            AttributeError(f"'{type_name(value.python_type())}' object has no attribute '{name}'")
        )

    def native_attribute(self, value: Value, name: str) -> Value:
        """An attribute of an object of a native class: its methods are bound, what its class holds is constant, what it computes is not known."""
        found, _ = mro_lookup(value.python_type(), name)
        if found is MISSING:
            return self.missing_attribute(value, name)
        if callable(found):
            return BoundBuiltin(value, name)
        if found is None or isinstance(found, str):
            return ConstantValue(found)
        raise GraphBreak("unsupported-attribute", f"{name!r} of {value.describe()}")

    # real objects known by identity

    def attribute_of_object(self, value: Value, obj: Any, name: str) -> Value:
        """An attribute of a real function, method or other object, read for real."""
        if isinstance(obj, types.FunctionType) and name == "__closure__" and obj.__closure__ is not None:
            base = value.source or Pinned(obj)
            return self.t.wrapper.sequence(
                [
                    self.t.wrapper.cell_of(c, Item(Attribute(base, "__closure__"), i))
                    for i, c in enumerate(obj.__closure__)
                ],
                tuple,
            )
        base = value.source or Pinned(obj)
        try:
            found = getattr(obj, name)
        except AttributeError as error:
            self.t.guards.lacks_attribute(base, name)
            raise self.t.exceptions.raised(error) from None
        if isinstance(found, types.MethodWrapperType | types.BuiltinMethodType):
            # A new object at every look.
            if found.__self__ is obj:
                return BoundBuiltin(value, name)
            if found.__self__ is type(obj):
                return BoundBuiltin(self.t.wrapper.wrap_pinned(type(obj)), name)
        # The code is guarded with the function itself, and the globals cannot be assigned.
        if name in ("__code__", "__globals__"):
            return self.t.wrapper.wrap_pinned(found)
        return self.t.wrapper.wrap(found, Attribute(base, name))

    def load_global(self, namespace: dict[str, Any], name: str) -> Value:
        """A global or builtin name as a frame with these globals sees it."""
        from ..sources.source import Builtin, Global

        self.t.heap.refuse_written(namespace)
        stored = self.t.heap.stored_global(namespace, name)
        if isinstance(stored, Value):
            return stored
        own = namespace is self.t.info.globals
        if stored is MISSING and name in namespace:
            if not own:
                self.t.guards.binding(namespace, name, namespace[name])
            return self.t.wrapper.wrap(namespace[name], Global(name) if own else Item(Pinned(namespace), name))
        if stored is MISSING:
            self.t.guards.absent(Pinned(namespace), name)
            self.t.guards.binding(namespace, name)
        builtin_names = namespace.get("__builtins__", self.t.info.builtins)
        table = builtin_names if isinstance(builtin_names, dict) else vars(builtin_names)
        if name in table:
            if is_plain_builtin(table[name], name):
                self.t.guards.binding(table, name, table[name])
                return self.t.wrapper.wrap_pinned(table[name])
            return self.t.wrapper.wrap(table[name], Builtin(name))
        raise self.unbound_name(NameError(f"name '{name}' is not defined"), name)

    def unbound_name(self, error: NameError, name: str) -> TracedRaise:
        """The traced NameError, which tells the name as CPython's does."""
        raised = self.t.exceptions.raised(error)
        if type(error) is NameError:
            raised.value.attrs["name"] = ConstantValue(name)
        return raised

    def store_cell(self, cell: CellValue, value: Value) -> None:
        """Give a cell new contents."""
        self.t.heap.store_cell(cell, value)
        cell.contents = value

    # classes

    def class_attribute(self, value: ClassValue, name: str) -> Value:
        """`cls.name`."""
        cls = value.object
        meta = type(cls)
        if name == "__class__":
            return self.t.wrapper.wrap_pinned(meta)
        over, owner = self.t.members.class_member(meta, name) if meta is not type else (MISSING, type)
        if isinstance(over, property) and owner is not type and not is_trusted_namespace(owner):
            return self._read_property(value, meta, over)
        if name in _FIELDS_OF_CLASSES:
            try:
                field = getattr(cls, name)
            except AttributeError as error:  # of `__module__`
                self.t.members.class_member(cls, name)
                raise self.t.exceptions.raised(error) from None
            return self.t.wrapper.wrap(field, Attribute(Pinned(cls), name))
        found, where = self.t.members.class_member(cls, name)
        if name == "apply" and issubclass(cls, torch.autograd.Function) and where in torch.autograd.Function.__mro__:
            return MethodValue(self.t.wrapper.wrap_pinned(function_apply), value)
        if found is MISSING:
            found, _ = self.t.members.class_member(meta, name)
            if found is MISSING:
                fallback, _ = self.t.members.class_member(meta, "__getattr__")
                if isinstance(fallback, types.FunctionType):
                    return self.t.caller.call(self.t.wrapper.wrap_pinned(fallback), [value, ConstantValue(name)], {})
                if fallback is not MISSING:
                    raise GraphBreak(
                        "unsupported-attribute", f"{name!r} of a class whose metaclass looks it up natively"
                    )
                raise self.t.exceptions.raised(
                    AttributeError(f"type object '{type_name(cls)}' has no attribute '{name}'")
                )
            if isinstance(found, types.FunctionType):
                return MethodValue(self.t.wrapper.wrap_pinned(found), value)
            if isinstance(found, property):
                return self.t.wrapper.wrap(getattr(cls, name), Attribute(Pinned(cls), name))
            return self.bind_class_attribute(value, meta, name, found)
        if isinstance(found, classmethod):
            return MethodValue(
                self.t.wrapper.wrap(found.__func__, Attribute(Attribute(Pinned(cls), name), "__func__")), value
            )
        if isinstance(found, staticmethod):
            return self.t.wrapper.wrap(found.__func__, Attribute(Pinned(cls), name))
        if isinstance(found, types.ClassMethodDescriptorType) and where is object:  # a new object at every look
            return BoundBuiltin(value, name)
        if isinstance(found, (property, functools.cached_property)) or inspect.ismemberdescriptor(found):
            return self.t.wrapper.wrap_pinned(found)
        getter = mro_lookup(type(found), "__get__")[0]
        if isinstance(getter, types.FunctionType):
            return self.t.caller.call(
                self.t.wrapper.wrap_pinned(getter), [self.t.wrapper.wrap_pinned(found), ConstantValue(None), value], {}
            )
        if getter is not MISSING and not isinstance(getter, NATIVE_METHODS):
            raise GraphBreak("unsupported-attribute", f"a {class_name(type(found))} descriptor")
        return self.t.wrapper.wrap(getattr(cls, name), Attribute(Pinned(cls), name))

    def bind_class_attribute(self, value: Value, cls: type, name: str, found: Any, where: type | None = None) -> Value:
        """What `value.name` is when the class has `found` under that name; `where` is the class a `super()` search found it in."""
        home = Pinned(cls if where is None else where)
        if isinstance(found, types.FunctionType):
            return MethodValue(self.t.wrapper.wrap(found, Attribute(home, name)), value)
        if isinstance(found, classmethod):
            return MethodValue(self.t.wrapper.wrap_pinned(found.__func__), self.t.wrapper.wrap_pinned(cls))
        if isinstance(found, staticmethod):
            return self.t.wrapper.wrap(found.__func__, Attribute(home, name))
        if isinstance(found, property):
            return self._read_property(value, cls, found)
        if isinstance(found, functools.cached_property):
            made = self.t.caller.call(self.t.wrapper.wrap_pinned(found.func), [value], {})
            if isinstance(value, ObjectValue):
                value.attrs[name] = made
                self.t.heap.store_attribute(value, name, made)
            return made
        if isinstance(found, (functools._lru_cache_wrapper, _C.Region, _C.Disabled)):
            return MethodValue(self.t.wrapper.wrap_pinned(found), value)
        if isinstance(found, functools.partialmethod):
            raise GraphBreak("unsupported-attribute", "a partialmethod")
        if isinstance(found, types.BuiltinFunctionType):  # no method: it is not bound
            return self.t.wrapper.wrap(found, Attribute(home, name))
        if isinstance(found, NATIVE_METHODS):
            if is_borrowed(found, mro_lookup(cls, name)[1], cls, name):
                raise GraphBreak(
                    "unsupported-attribute", f"{name!r} of {value.describe()}, which is another class's method"
                )
            return BoundBuiltin(value, name)
        if type(found) is _FIELD and isinstance(value, ObjectValue) and isinstance(value.storage, TupleValue):
            return value.storage.items[found.__reduce__()[1][0]].realise(self.t)
        getter = mro_lookup(type(found), "__get__")[0]
        if isinstance(getter, types.FunctionType):
            return self.t.caller.call(
                self.t.wrapper.wrap_pinned(getter),
                [self.t.wrapper.wrap_pinned(found), value, self.t.wrapper.wrap_pinned(cls)],
                {},
            )
        if getter is not MISSING:
            raise GraphBreak("unsupported-attribute", f"a {class_name(type(found))} descriptor")
        if isinstance(mro_lookup(type(home.value), name)[0], property):  # a guard would read the metaclass's
            raise GraphBreak(
                "unsupported-attribute", f"{name!r} of a class whose metaclass has a property of that name"
            )
        if name == "__module__":  # a class answers for itself alone
            home = Pinned(mro_lookup(cls, name)[1])
        return self.t.wrapper.wrap(found, Attribute(home, name))

    def _read_property(self, value: Value, cls: type, found: property) -> Value:
        """`value.name` when the class of the value has the property under that name."""
        if found.fget is None:
            raise self.t.exceptions.raised(_property_error(property.__get__, found, cls))
        return self.t.caller.call(self.t.wrapper.wrap_pinned(found.fget), [value], {})

    # instances

    def object_attribute(self, value: ObjectValue, name: str) -> Value:
        """`value.name` for an instance of a Python class."""
        cls, seen = value.cls, self.t.repeated_calls.seen
        if seen is not None:
            seen.add(value)
        if is_native_access(cls):
            stored = value.attrs.get(name)
            if stored is not None:
                return stored
            if name == "__class__" and mro_lookup(cls, name)[1] is object:
                return self.t.wrapper.wrap_pinned(cls)
            if name == "__dict__":
                return self._instance_dict(value)
        self.t.heap.refuse_written_attributes(value.object)
        access = self.special_method(value, "__getattribute__")
        if access is not None:
            asked = self._or_else_asked(
                value, name, True, lambda: self.t.caller.call(access, [ConstantValue(name)], {})
            )
            assert asked is not None
            return asked
        return self.plain_attribute(value, name)

    def plain_attribute(self, value: ObjectValue, name: str, *, hook: bool = True) -> Value:
        """`object.__getattribute__(value, name)`, then (with `hook`) `__getattr__`."""
        cls = value.cls
        stored = value.attrs.get(name)
        if stored is not None:
            return stored
        deleted = name in value.attrs
        if name == "__class__" and mro_lookup(cls, name)[1] is object:  # a class may name another one
            return self.t.wrapper.wrap_pinned(cls)
        if name == "__dict__":
            return self._instance_dict(value)
        found, _ = self.t.members.class_member(cls, name)
        if found is not MISSING:
            slot = None
            if not deleted:
                slot = self._or_else_asked(value, name, hook, lambda: self._slot_attribute(value, name, found))
            if slot is not None:
                return slot
            if _goes_first(type(found)) and not isinstance(found, type):
                return self._of_the_class(value, name, found, hook)
        obj = value.object
        if obj is not MISSING and not deleted:
            instance = own_dict(obj)
            if isinstance(instance, dict):
                source = value.source
                if name in instance:
                    return self.t.wrapper.wrap(
                        instance[name],
                        Item(InstanceDict(source), name) if source is not None else Pinned(instance[name]),
                    )
                if issubclass(cls, torch.nn.Module):
                    return self._module_attribute(value, name, found, hook=hook)
                if source is not None:
                    self._absent(value, name)
        if found is not MISSING:
            return self._of_the_class(value, name, found, hook)
        if issubclass(cls, torch.nn.Module):
            return self._module_attribute(value, name, found, hook=hook)
        last = self.special_method(value, "__getattr__") if hook else None
        if last is not None:
            return self.t.caller.call(last, [ConstantValue(name)], {})
        if obj is not MISSING and found is MISSING and not isinstance(own_dict(obj), dict) and hasattr(obj, name):
            return self.t.wrapper.wrap(getattr(obj, name), Attribute(value.source or Pinned(obj), name))
        raise self.t.exceptions.raised(AttributeError(f"'{type_name(cls)}' object has no attribute '{name}'"))

    def _of_the_class(self, value: ObjectValue, name: str, found: Any, hook: bool) -> Value:
        """What is found in the class, bound."""
        bound = self._or_else_asked(value, name, hook, lambda: self.bind_class_attribute(value, value.cls, name, found))
        assert bound is not None
        return bound

    def _or_else_asked(
        self, value: ObjectValue, name: str, hook: bool, lookup: Callable[[], Value | None]
    ) -> Value | None:
        """What `lookup` finds; where it raises an AttributeError (an empty slot does, and so may a property), what `__getattr__` says, if it is to be asked."""
        try:
            return lookup()
        except TracedRaise as error:
            last = self.special_method(value, "__getattr__") if hook else None
            if last is None or not issubclass(error.value.python_type(), AttributeError):
                raise
        return self.t.caller.call(last, [ConstantValue(name)], {})

    def _slot_attribute(self, value: ObjectValue, name: str, found: Any) -> Value | None:
        if not (inspect.ismemberdescriptor(found) or inspect.isgetsetdescriptor(found)):
            return None
        if value.object is MISSING:
            return self._field_of_a_new_object(value, name, found)
        home = value.source or Pinned(value.object)
        try:
            with warnings.catch_warnings(record=True, action="always") as told:
                real = found.__get__(value.object, value.cls)
        except AttributeError as error:
            self.t.guards.empty(home, found)
            raise self.t.exceptions.raised(error) from None
        if told:
            raise GraphBreak("unsupported-attribute", f"{name!r} of {value.describe()} warns")
        return self.t.wrapper.wrap(real, Attribute(home, name))

    def _field_of_a_new_object(self, value: ObjectValue, name: str, found: Any) -> Value:
        """A slot that nothing was stored in is empty; what a native class computes is asked of the native object inside."""
        if inspect.ismemberdescriptor(found) and found.__objclass__.__flags__ & HEAP_TYPE:
            raise self.t.exceptions.raised(AttributeError(f"'{type_name(value.cls)}' object has no attribute '{name}'"))
        if value.storage is not None and issubclass(value.storage.python_type(), found.__objclass__):
            return value.storage.get_attribute(self.t, name)
        raise GraphBreak("unsupported-attribute", f"{name!r} of {value.describe()}")

    def _module_attribute(self, value: ObjectValue, name: str, found: Any, *, hook: bool) -> Value:
        """The class attribute, else what `nn.Module.__getattr__` or the class's own finds."""
        source = value.source
        if found is not MISSING:
            if source is not None:
                self._absent(value, name)
            return self._of_the_class(value, name, found, hook)
        own = None
        if hook and self.t.members.class_member(value.cls, "__getattr__")[1] is not torch.nn.Module:
            own = self.special_method(value, "__getattr__")
        if own is not None:
            return self.t.caller.call(own, [ConstantValue(name)], {})
        return self.module_getattr(value, name)

    def _absent(self, value: ObjectValue, name: str) -> None:
        """Guard that an instance has no such attribute, unless it has and the frame deleted it."""
        if value.source is not None and (value.object is MISSING or name not in (own_dict(value.object) or ())):
            self.t.guards.absent(InstanceDict(value.source), name)

    def module_getattr(self, value: ObjectValue, name: str) -> Value:
        """`nn.Module.__getattr__(value, name)`: a parameter, buffer or submodule."""
        for table in _MODULE_TABLES:
            entries = self._module_table(value, table)
            if entries is not None and name in entries:
                self._absent(value, name)  # the instance itself is asked first
                return entries[name].realise(self.t)
        source = value.source
        if source is not None:
            self._absent(value, name)
            for table in _MODULE_TABLES:
                if table in value.attrs or (value.object is not MISSING and table not in value.object.__dict__):
                    continue
                if value.object is MISSING or name not in value.object.__dict__[table]:
                    self.t.guards.absent(Item(InstanceDict(source), table), name)
        raise self.t.exceptions.raised(AttributeError(f"'{type_name(value.cls)}' object has no attribute '{name}'"))

    def _module_table(self, value: ObjectValue, table: str) -> dict[str, Value] | None:
        """Entries of `_parameters`, `_buffers` or `_modules`, lazily wrapped."""
        stored = value.attrs.get(table)
        if isinstance(stored, DictValue):
            return {k: v for k, (_, v) in stored.items.items()}
        known = (
            self.t.wrapper.wrapped.get(id(value.object.__dict__.get(table))) if value.object is not MISSING else None
        )
        if isinstance(known, DictValue):
            return {k: v for k, (_, v) in known.items.items()}
        if value.object is MISSING:
            return None
        entries = value.object.__dict__.get(table) or {}
        base = Item(InstanceDict(value.source or Pinned(value.object)), table)
        return {key: LazyValue(item, Item(base, key)) for key, item in entries.items()}

    def _instance_dict(self, value: ObjectValue) -> Value:
        known = self.instance_dicts.get(id(value))
        if known is None and not getattr(value.cls, "__dictoffset__", 0):
            raise self.t.exceptions.raised(
                AttributeError(f"'{type_name(value.cls)}' object has no attribute '__dict__'")
            )
        if known is None:
            base = None
            if value.object is not MISSING:
                base = self.t.wrapper.wrap(own_dict(value.object), InstanceDict(value.source or Pinned(value.object)))
            known = self.instance_dicts[id(value)] = InstanceDictValue(value, base)
        return known

    def special_method(self, value: ObjectValue, name: str) -> Value | None:
        """A Python-level special method of the class, bound; None for native or absent ones."""
        found, where = self.t.members.class_member(value.cls, name)
        if found is MISSING or where in (object, dict, list, tuple, set):
            return None
        if found is None or isinstance(
            found, property
        ):  # None says that there is none, also where a base class has one
            raise GraphBreak("unsupported-operation", f"{name} of {value.describe()}, where its class has {found!r}")
        if isinstance(found, NATIVE_METHODS):
            if is_borrowed(found, where, value.cls, name):
                raise GraphBreak("unsupported-operation", f"{name} of {value.describe()}, which another class's does")
            return None
        getter = mro_lookup(type(found), "__get__")[0]
        if isinstance(getter, NATIVE_METHODS):
            return self.bind_class_attribute(value, value.cls, name, found)
        if getter is MISSING and callable(found):
            return self.t.wrapper.wrap(found, Attribute(Pinned(value.cls), name))
        # How often a descriptor of the program's is asked, and for what, is up to the operation.
        raise GraphBreak("unsupported-operation", f"{name} of {value.describe()}, a {class_name(type(found))}")

    # stores

    def store_object_attribute(self, value: ObjectValue, name: str, new: Value) -> None:
        """`value.name = new` for an instance of a Python class."""
        hook = self.special_method(value, "__setattr__")
        if hook is not None:
            self.t.caller.call(hook, [ConstantValue(name), new], {})
            return
        self.plain_store(value, name, new)

    def is_registered(self, value: ObjectValue, name: str) -> bool:
        """Whether it is a parameter, a buffer or a submodule, or the name of one that is None."""
        return any(name in (self._module_table(value, table) or ()) for table in _MODULE_TABLES)

    def plain_store(self, value: ObjectValue, name: str, new: Value) -> None:
        """`object.__setattr__`, or `nn.Module.__setattr__` of what is in none of its tables."""
        self.t.heap.refuse_written_attributes(value.object)
        found, _ = self.t.members.class_member(value.cls, name)
        if isinstance(found, property):
            if found.fset is None:
                raise self.t.exceptions.raised(_property_error(property.__set__, found, value.cls, None))
            self.t.caller.call(self.t.wrapper.wrap_pinned(found.fset), [value, new], {})
            return
        if (
            found is not MISSING
            and (hasattr(type(found), "__set__") or hasattr(type(found), "__delete__"))
            and not inspect.ismemberdescriptor(found)
            and name != "__class__"
        ):
            setter = mro_lookup(type(found), "__set__")[0]
            if isinstance(setter, types.FunctionType):
                self.t.caller.call(
                    self.t.wrapper.wrap_pinned(setter), [self.t.wrapper.wrap_pinned(found), value, new], {}
                )
                return
            raise GraphBreak("unsupported-store", f"storing through a {class_name(type(found))} descriptor")
        if name in ("__class__", "__dict__"):
            raise GraphBreak("unsupported-store", f"storing {name}")
        if not value.cls.__dictoffset__ and not inspect.ismemberdescriptor(found):
            raise self._no_room(object.__setattr__, value.cls, name, None)
        self.t.heap.store_attribute(value, name, new, plain=True)
        value.attrs[name] = new

    def _no_room(self, change: Callable[..., None], cls: type, name: str, *new: None) -> Exception:
        """What Python raises where an attribute is stored or deleted that instances of a class have no room for."""
        if mro_lookup(cls, "__new__")[1] is object:
            try:
                change(object.__new__(cls), name, *new)
            except AttributeError as error:
                return self.t.exceptions.raised(error)
            except TypeError:  # a native class whose objects only it can make
                pass
        return GraphBreak("unsupported-store", f"{name!r} of an object of {class_qualname(cls)}, which has no __dict__")

    def delete_object_attribute(self, value: ObjectValue, name: str) -> None:
        """`del value.name`."""
        hook = self.special_method(value, "__delattr__")
        if value.cls.__delattr__ is torch.nn.Module.__delattr__ and not self.is_registered(value, name):
            if self.t.members.class_member(value.cls, "__delattr__", torch.nn.Module)[1] is object:
                hook = None
        if hook is not None:
            self.t.caller.call(hook, [ConstantValue(name)], {})
            return
        self.plain_delete(value, name)

    def plain_delete(self, value: ObjectValue, name: str) -> None:
        """`object.__delattr__(value, name)`."""
        found, _ = self.t.members.class_member(value.cls, name)
        if hasattr(type(found), "__delete__") and not inspect.ismemberdescriptor(found):
            raise GraphBreak("unsupported-store", f"deleting {name!r} through a {class_name(type(found))} descriptor")
        if not value.cls.__dictoffset__ and not inspect.ismemberdescriptor(found):
            raise self._no_room(object.__delattr__, value.cls, name)
        if value.attrs.get(name) is None:
            own = value.object is not MISSING and name in (own_dict(value.object) or ())
            if found is not MISSING and not own and not inspect.ismemberdescriptor(found):
                # What the class has cannot be deleted through an instance.
                if value.source is not None and name not in value.attrs:
                    self._absent(value, name)
                raise self.t.exceptions.raised(
                    AttributeError(f"'{type_name(value.cls)}' object has no attribute '{name}'")
                )
            self.plain_attribute(value, name, hook=False)
        self.forget_attribute(value, name)

    def forget_attribute(self, value: ObjectValue, name: str) -> None:
        """`object.__delattr__(value, name)` of an attribute that is there."""
        self.t.heap.store_attribute(value, name, None)
        value.attrs[name] = None


def function_apply(cls: Any, *args: Any, **kwargs: Any) -> Any:
    """Stands for `Function.apply`, which is written in Python or in C, as torch's version has it."""
    return cls.apply(*args, **kwargs)


def _goes_first(kind: type) -> bool:
    """Whether a descriptor of this type answers in place of what the instance holds: it is also told of writes."""
    return hasattr(kind, "__get__") and (hasattr(kind, "__set__") or hasattr(kind, "__delete__"))


def _property_error(access: Callable[..., Any], found: property, cls: type, *given: Any) -> Exception:
    """What Python says of a property that cannot be read or set. Which name it says, if any, depends on how the property was made."""
    stand_in = type(class_name(cls), (), {"__qualname__": class_qualname(cls)})()
    try:
        access(found, stand_in, *given)
    except AttributeError as error:
        return error.with_traceback(None)
    raise AssertionError("a property without the function was accessed")


def is_plain_builtin(obj: Any, name: str) -> bool:
    """Whether a builtins entry is the original."""
    return (
        isinstance(obj, (type, types.BuiltinFunctionType))
        and name_of(obj) == name
        and module_name(obj) in ("builtins", "io")
    )
