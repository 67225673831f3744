"""What of torch and the standard library is assumed not to change, and which of their native functions are pure.

In: modules, their globals, classes, functions. Out: `is_trusted_namespace`, `holds_still`, `is_setting`, `is_pure_native`.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from ..class_names import class_module, module_name
from ..constant_objects import is_constant_object
from ..library import functools


@lru_cache(maxsize=4096)
def _trusted_name(name: str) -> bool:
    top = name.partition(".")[0]
    return (
        top in ("torch", "flambeau_capture", "torchvision", "torchaudio")
        or top in sys.stdlib_module_names
        or top == "builtins"
    )


_STILL = (
    type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType, types.MethodType, types.MethodDescriptorType,
    types.WrapperDescriptorType, types.GetSetDescriptorType, types.MemberDescriptorType, types.MappingProxyType, types.CodeType,
    types.CellType, property, classmethod, staticmethod, functools.partial, functools._lru_cache_wrapper, tuple, frozenset,
)  # fmt: skip
_MEMBER_KINDS = ("builtins", "torch", "torch._C")
_PURE_MODULES = frozenset((
    "builtins", "_operator", "operator", "math", "cmath", "itertools", "functools", "_functools", "_struct", "binascii", "_bisect",
    "_string", "_sre", "re", "_statistics", "_json", "unicodedata", "zlib", "_abc", "_collections_abc", "_typing", "typing",
    "inspect", "copyreg", "enum", "dataclasses", "fractions", "numbers", "abc", "collections", "_collections",
    "string", "textwrap", "_codecs", "types",
))  # fmt: skip
"""Modules of the standard library whose native functions compute from their arguments alone (exceptions: `replacements.impure`)."""


def holds_still(obj: Any) -> bool:
    """Whether what a trusted namespace binds has contents that do not change either: code and constants, but no data."""
    return isinstance(obj, _STILL) or is_constant_object(obj)


def is_setting(namespace: Any, name: Any, value: Any) -> bool:
    """Whether this plain value of a trusted module or class is a switch that programs set, and no constant."""
    if not isinstance(namespace, types.ModuleType | dict | type) or not isinstance(name, str):
        return False
    return isinstance(value, bool | int | float | str | None) and not name.isupper() and not name.startswith("__")


def is_pure_native(function: Any) -> bool:
    """Whether a function or class in C of the standard library may be called once, while tracing, for constants."""
    owner = getattr(function, "__self__", None)
    module = module_name(function) or module_name(owner)
    return module in _PURE_MODULES


def is_pure_module(module: types.ModuleType) -> bool:
    """Whether all native functions of a module of the standard library compute from their arguments alone."""
    return module.__name__ in _PURE_MODULES


def is_torch_member(found: Any) -> bool:
    """Whether what a tensor class has under a name is torch's own or Python's, and not put there by a program."""
    if isinstance(found, types.FunctionType | property | classmethod | staticmethod):
        function = found.fget if isinstance(found, property) else found
        return is_trusted_module_name(module_name(function))
    return class_module(type(found)) in _MEMBER_KINDS


def is_trusted_module_name(name: Any) -> bool:
    """Whether a module of that name is assumed not to be patched."""
    return isinstance(name, str) and name != "__main__" and _trusted_name(name)


def is_trusted_namespace(obj: Any) -> bool:
    """Whether the contents of a pinned object (a module, its globals, a class, a function) are assumed not to change."""
    if isinstance(obj, types.ModuleType):
        return is_trusted_module_name(getattr(obj, "__name__", None))
    if isinstance(obj, dict):
        return is_trusted_module_name(obj.get("__name__"))
    return is_trusted_module_name(module_name(obj))


def classes_in(classes: Any) -> Iterator[type]:
    """The classes of an argument of `isinstance`: one, a union, or tuples of these in any depth; and objects of the program's in their place."""
    if issubclass(type(classes), type) or not is_trusted_namespace(type(classes)):
        yield classes
        return
    for one in classes if isinstance(classes, tuple) else getattr(classes, "__args__", ()):
        yield from classes_in(one)
