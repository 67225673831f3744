"""Attributes, super() and imports."""

from __future__ import annotations

import builtins
import sys
from types import BuiltinFunctionType, MethodDescriptorType, ModuleType, WrapperDescriptorType
from typing import TYPE_CHECKING, Any

from ...signals import GraphBreak, TracedRaise
from ...sources.source import Item, Pinned
from ...values.bound import BoundBuiltin, LoadedMethod
from ...values.functions import MethodValue
from ...values.members import mro_lookup
from ...values.tensor import TensorValue
from ..registry import handles

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...bytecode.model import Instruction
    from ...values.base import Value
    from ..frame import Frame


@handles("LOAD_ATTR")
def load_attr(f: Frame, i: Instruction) -> None:
    f.push(f.tracer.attributes.get_attribute(f.pop(), i.value))


@handles("LOAD_METHOD")
def load_method(f: Frame, i: Instruction) -> None:
    owner = f.pop()
    found = f.tracer.attributes.get_attribute(owner, i.value)
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
        f.push_callable(found.function.realise(f.tracer), found.owner.realise(f.tracer))
    else:
        f.push_callable(found.realise(f.tracer), None)


@handles("STORE_ATTR")
def store_attr(f: Frame, i: Instruction) -> None:
    target = f.pop()
    target.set_attribute(f.tracer, i.value, f.pop())


@handles("DELETE_ATTR")
def delete_attr(f: Frame, i: Instruction) -> None:
    f.pop().delete_attribute(f.tracer, i.value)


@handles("LOAD_SUPER_ATTR", "LOAD_SUPER_METHOD")
def load_super(f: Frame, i: Instruction) -> None:
    function, cls, owner = f.pop_many(3)
    made = f.tracer.caller.call(function, [cls, owner], {})
    found = made.get_attribute(f.tracer, i.value)
    if i.name == "LOAD_SUPER_METHOD":
        _push_method(f, found)
    else:
        f.push(found)


@handles("IMPORT_NAME")
def import_name(f: Frame, i: Instruction) -> None:
    names, level = f.pop().constant(), f.pop().constant()
    f.tracer.heap.refuse_written(sys.modules)
    name = _absolute_name(f, i.value, level)
    if name is None or not _is_imported(name, names):
        raise GraphBreak("unsupported-call", f"importing {i.value}, which may run code")
    # The frame holds for these modules, and while Python imports; another may be put in the place of one.
    f.tracer.guards.binding(vars(builtins), "__import__", builtins.__import__)
    loaded = [f.tracer.wrapper.wrap(sys.modules[part], Item(Pinned(sys.modules), part)) for part in _packages_of(name)]
    f.push(loaded[-1] if names or level else loaded[0])


def _absolute_name(f: Frame, name: str, level: int) -> str | None:
    """What is imported, by its full name; None where the program's own code decides that, or Python refuses it."""
    if "__import__" in f.globals or not isinstance(builtins.__import__, BuiltinFunctionType):
        return None
    if not level:
        return name
    package = f.globals.get("__package__")
    if not package or level > package.count(".") + 1:
        return None
    base = package.rsplit(".", level - 1)[0]
    return f"{base}.{name}" if name else base


def _packages_of(name: str) -> list[str]:
    """The module's packages from the outermost, then the module."""
    parts = name.split(".")
    return [".".join(parts[:count]) for count in range(1, len(parts) + 1)]


def _is_imported(name: str, names: Sequence[str] | None) -> bool:
    """Whether importing runs no code: the module, its packages and the submodules that are asked for are there already."""
    modules = [sys.modules.get(part) for part in _packages_of(name)]
    if not all(isinstance(module, ModuleType) for module in modules):
        return False
    members = vars(modules[-1])
    if getattr(members.get("__spec__"), "_initializing", False):
        return False
    # A package is asked whether it has what it does not bind, which its own `__getattr__` answers.
    quiet = "__path__" not in members
    return all(
        asked != "*"
        and (asked in members or quiet or (f"{name}.{asked}" in sys.modules and "__getattr__" not in members))
        for asked in names or ()
    )


@handles("IMPORT_FROM")
def import_from(f: Frame, i: Instruction) -> None:
    module = f.stack[-1]
    try:
        found = f.tracer.attributes.get_attribute(module, i.value)
    except TracedRaise as error:
        if not issubclass(error.value.python_type(), AttributeError):
            raise
        name = f"{vars(module.real()).get('__name__')}.{i.value}"
        if name not in sys.modules:
            # The error tells the module's file, and whether its import is under way.
            raise GraphBreak("unsupported-attribute", f"{name} is imported, which is not there") from None
        found = f.tracer.wrapper.wrap(sys.modules[name], Item(Pinned(sys.modules), name))
    f.push(found)


@handles(
    "IMPORT_STAR", "LOAD_NAME", "STORE_NAME", "DELETE_NAME", "LOAD_LOCALS", "LOAD_BUILD_CLASS", "SETUP_ANNOTATIONS"
)
def class_or_module_scope(f: Frame, i: Instruction) -> None:
    raise GraphBreak(
        "unsupported-instruction", "a class is defined" if i.name == "LOAD_BUILD_CLASS" else f"instruction {i.name}"
    )
