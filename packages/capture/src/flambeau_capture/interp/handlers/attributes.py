"""Attributes, super() and imports."""

from __future__ import annotations

import builtins
import sys
from types import BuiltinFunctionType, MethodDescriptorType, WrapperDescriptorType
from typing import TYPE_CHECKING, Any

from ...values.builtins import BoundBuiltin, LoadedMethod
from ...values.functions import MethodValue
from ...values.tensor import TensorValue
from ..members import mro_lookup
from ..registry import handles
from ..signals import GraphBreak

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...bytecode.model import Instruction
    from ...values.base import Value
    from ..frame import Frame


@handles("LOAD_ATTR")
def load_attr(f: Frame, i: Instruction) -> None:
    f.push(f.tracer.get_attribute(f.pop(), i.value))


@handles("LOAD_METHOD")
def load_method(f: Frame, i: Instruction) -> None:
    owner = f.pop()
    found = f.tracer.get_attribute(owner, i.value)
    function = _loaded(owner, found)
    if function is None:
        _push_method(f, found)
    else:
        f.push_callable(LoadedMethod(function), owner)


def _loaded(owner: Value, found: Value) -> Any:
    """The method in C that a native class has under the name, which Python does not bind for a call."""
    if type(found) is not BoundBuiltin or found.owner is not owner or isinstance(owner, TensorValue):
        return None
    function, _ = mro_lookup(owner.python_type(), found.name)
    is_method = isinstance(function, MethodDescriptorType | WrapperDescriptorType)
    return function if is_method and function.__name__ == found.name else None


def _push_method(f: Frame, found: Value) -> None:
    if type(found) is MethodValue and found.source is None:
        f.push_callable(f.tracer.realise(found.function), f.tracer.realise(found.owner))
    else:
        f.push_callable(f.tracer.realise(found), None)


@handles("STORE_ATTR")
def store_attr(f: Frame, i: Instruction) -> None:
    target = f.pop()
    f.tracer.set_attribute(target, i.value, f.pop())


@handles("DELETE_ATTR")
def delete_attr(f: Frame, i: Instruction) -> None:
    f.pop().delete_attribute(f.tracer, i.value)


@handles("LOAD_SUPER_ATTR", "LOAD_SUPER_METHOD")
def load_super(f: Frame, i: Instruction) -> None:
    function, cls, owner = f.pop_many(3)
    made = f.tracer.call(function, [cls, owner], {})
    found = made.get_attribute(f.tracer, i.value)
    if i.name == "LOAD_SUPER_METHOD":
        _push_method(f, found)
    else:
        f.push(found)


@handles("IMPORT_NAME")
def import_name(f: Frame, i: Instruction) -> None:
    names, level = f.pop().constant(), f.pop().constant()
    if not _is_imported(f, i.value, names, level):
        raise GraphBreak("unsupported-call", f"{i.value} is imported for the first time")
    f.push(f.tracer.wrap_pinned(__import__(i.value, f.globals, {}, names, level)))


def _is_imported(f: Frame, name: str, names: Sequence[str] | None, level: int) -> bool:
    """Whether importing runs no code: the module, its packages and the submodules that are asked for are there already."""
    if "__import__" in f.globals or not isinstance(builtins.__import__, BuiltinFunctionType):
        return False
    if level:
        package = f.globals.get("__package__")
        if not package or level > package.count(".") + 1:
            return False
        base = package.rsplit(".", level - 1)[0]
        name = f"{base}.{name}" if name else base
    parts = name.split(".")
    module = sys.modules.get(name)
    if module is None or not all(".".join(parts[:count]) in sys.modules for count in range(1, len(parts))):
        return False
    if getattr(getattr(module, "__spec__", None), "_initializing", False):
        return False
    return all(
        asked != "*" and (asked in vars(module) or f"{name}.{asked}" in sys.modules or not hasattr(module, "__path__"))
        for asked in names or ()
    )


@handles("IMPORT_FROM")
def import_from(f: Frame, i: Instruction) -> None:
    module = f.stack[-1]
    real = module.real()
    if not hasattr(real, i.value):
        sub = sys.modules.get(f"{real.__name__}.{i.value}")
        if sub is None:
            # The error tells the module's file, and whether its import is under way.
            raise GraphBreak("unsupported-attribute", f"{i.value!r} is imported from {real.__name__}, which has none")
        f.push(f.tracer.wrap_pinned(sub))
        return
    f.push(f.tracer.get_attribute(module, i.value))


@handles(
    "IMPORT_STAR", "LOAD_NAME", "STORE_NAME", "DELETE_NAME", "LOAD_LOCALS", "LOAD_BUILD_CLASS", "SETUP_ANNOTATIONS"
)
def class_or_module_scope(f: Frame, i: Instruction) -> None:
    raise GraphBreak(
        "unsupported-instruction", "a class is defined" if i.name == "LOAD_BUILD_CLASS" else f"instruction {i.name}"
    )
