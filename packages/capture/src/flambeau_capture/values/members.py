"""Members of classes, as Python finds them.

In: a class and a name. Out: `mro_lookup`, what it has under the name, and where; `is_borrowed`, whether that is a native method of another;
`own_dict`, what an object holds itself; `is_native_access`, whether Python alone finds its attributes;
`own_content`, the number or text that it is; `may_be_hashed`, whether a key may be hashed; `has_quiet_class`, whether its class may.
"""

from __future__ import annotations

import types
from typing import Any

from ..class_names import HEAP_TYPE
from ..constant_objects import PLAIN_TYPES, is_nan
from .base import MISSING
from .trust import is_trusted_namespace

NATIVE_METHODS = (
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    types.BuiltinFunctionType,
    types.ClassMethodDescriptorType,
)
"""Types of methods that are written in C, as classes hold them."""

_COMPARISONS = ("__hash__", "__eq__", "__ne__")


def is_borrowed(found: Any, where: Any, cls: type, name: str) -> bool:
    """Whether a class of the program's has a native method under a name that is not the one which the class would inherit."""
    if not (isinstance(found, NATIVE_METHODS) and where.__flags__ & HEAP_TYPE) or is_trusted_namespace(where):
        return False
    natives = (vars(base) for base in cls.__mro__ if not base.__flags__ & HEAP_TYPE)
    return next((names[name] for names in natives if name in names), None) is not found


def mro_lookup(cls: type, name: str, after: type | None = None) -> tuple[Any, Any]:
    """The class attribute and the class that has it, `(MISSING, None)` when there is none; the search may start after a class."""
    mro = cls.__mro__
    if after is not None:
        mro = mro[mro.index(after) + 1 :]
    for base in mro:
        if name in base.__dict__:
            return base.__dict__[name], base
    return MISSING, None


def may_be_hashed(key: Any) -> bool:
    """Whether no function of the program runs where a key is hashed or compared: those that dataclasses generate only ask the fields.

    Nor may it be nan, of which it matters which one it is.
    """
    if not has_quiet_class(key):
        return False
    kind = type(key)
    if kind in PLAIN_TYPES:
        return not is_nan(key)
    if kind is tuple or kind is frozenset:
        return all(map(may_be_hashed, key))
    return all(_is_quiet(*mro_lookup(kind, name)) for name in _COMPARISONS)


def has_quiet_class(obj: Any) -> bool:
    """Whether no function of the program runs where the object's class is hashed or compared, nor, of a class, where that is: a metaclass may have some."""
    kind = type(obj)
    meta = type(kind)
    classes = () if meta is type else (meta,)
    if kind is not type and issubclass(kind, type):
        classes = (*classes, kind)
    return all(_is_quiet(*mro_lookup(one, name)) for one in classes for name in _COMPARISONS)


def _is_quiet(found: Any, where: type) -> bool:
    if isinstance(found, types.FunctionType):
        made = found.__code__
        return (
            is_trusted_namespace(where)
            or made.co_qualname.startswith("__create_fn__.")
            or made.co_filename.startswith("<attrs generated")
        )
    return not type(found).__flags__ & HEAP_TYPE


def is_native_access(cls: type) -> bool:
    """Whether the attributes of instances are found by Python's own rule, and by no `__getattribute__` of the program."""
    return isinstance(mro_lookup(cls, "__getattribute__")[0], NATIVE_METHODS)


def own_dict(obj: Any) -> Any:
    """The `__dict__` of an object, or None; its class is not asked, which may have a `__getattribute__` of the program."""
    try:
        return object.__getattribute__(obj, "__dict__")
    except AttributeError:
        return None


def own_content(obj: Any) -> Any:
    """The plain number or text inside an instance of a subclass, which is not asked for it."""
    kind = type(obj)
    if issubclass(kind, str):
        return str.__str__(obj)
    if issubclass(kind, bytes):
        return bytes.__getitem__(obj, slice(None))
    return int.__int__(obj) if issubclass(kind, int) else float.__float__(obj)
