"""Names of classes, as Python keeps them and as its messages say them; and whether a class gives its objects a name.

In: a class. Out: its name, its qualified name, its module, `type_name`, `objects_have`. `cls.__module__` may be missing, and a metaclass may put a property of its own before
any of the three: reading them so would raise while tracing, or run code of the program.
"""

from __future__ import annotations

from typing import Any

from .library import functools

_FIELDS: Any = type.__dict__

HEAP_TYPE = 1 << 9
"""The flag of classes that are made while a program runs, as those written in Python are."""


def class_name(cls: type) -> str:
    """What `cls.__name__` is where no metaclass has another."""
    return str(_FIELDS["__name__"].__get__(cls))


def class_qualname(cls: type) -> str:
    """What `cls.__qualname__` is where no metaclass has another."""
    return str(_FIELDS["__qualname__"].__get__(cls))


def class_module(cls: type) -> str:
    """What `cls.__module__` is where no metaclass has another; empty when there is none, or none that is text."""
    try:
        module = _FIELDS["__module__"].__get__(cls)
    except AttributeError:
        return ""
    return module if isinstance(module, str) else ""


def full_name(cls: type) -> str:
    """Module and qualified name."""
    module = class_module(cls)
    return f"{module}.{class_qualname(cls)}" if module else class_qualname(cls)


def name_of(obj: Any) -> str:
    """`obj.__name__` of a function, class or anything else, in messages: no metaclass is asked."""
    return class_name(obj) if isinstance(obj, type) else str(getattr(obj, "__name__", obj))


def module_name(obj: Any) -> Any:
    """`obj.__module__` of a function, class or anything else, None when there is none: no metaclass is asked."""
    return class_module(obj) or None if isinstance(obj, type) else getattr(obj, "__module__", None)


def objects_have(cls: type, name: str) -> bool:
    """Whether the class gives `name` to its objects; `hasattr` of a class finds what its metaclass gives to the class, too."""
    return any(name in base.__dict__ for base in cls.__mro__)


def type_name(cls: type) -> str:
    """How CPython's messages name a class: those written in C carry their module, also when they look like Python's."""
    of_python = cls.__flags__ & HEAP_TYPE and cls is not functools.partial
    if of_python or class_module(cls) == "builtins":
        return class_name(cls)
    return full_name(cls)
