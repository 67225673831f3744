"""Attributes of imported modules, as Python finds them.

In: a module and a name. Out: what the module binds, guarded; what its own `__getattr__` answers, which is traced like any function; else what its
class has. A break where a class of the program's decides (lazily loading modules are of such classes).
"""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any

from ..signals import GraphBreak
from ..sources.source import Attribute, Item, Pinned
from .base import MISSING, Value
from .constants import ConstantValue
from .members import mro_lookup
from .trust import is_trusted_namespace

if TYPE_CHECKING:
    from .base import Tracer

_PEERS_SETTINGS = "torch._dynamo.config"
"""The module of settings of torch's own compiler, which capture leaves alone until the graph has run."""


def module_attribute(t: Tracer, module: Any, name: str) -> Value:
    """`module.name`."""
    obj = module.object
    names = vars(obj)
    t.heap.refuse_written(names)
    stored = t.heap.stored_global(names, name)
    if isinstance(stored, Value):
        return stored
    _refuse_own_class(module, name)
    if names.get("__name__") == _PEERS_SETTINGS and any(t.scopes.foreign()):
        raise GraphBreak("unsupported-attribute", f"{name!r} of {module.describe()}, which the frame has changed")
    if name in names:
        t.guards.binding(names, name, names[name])
        return t.wrapper.wrap(names[name], Item(Pinned(names), name))
    hook = names.get("__getattr__")
    of_the_program = isinstance(hook, types.FunctionType) and not is_trusted_namespace(obj)
    if of_the_program and mro_lookup(type(obj), name)[0] is MISSING:
        t.guards.absent(Pinned(names), name)
        return t.caller.call(t.wrapper.wrap(hook, Item(Pinned(names), "__getattr__")), [ConstantValue(name)], {})
    try:
        found = getattr(obj, name)
    except AttributeError as error:
        t.guards.lacks_attribute(Pinned(obj), name)
        t.guards.binding(names, name)
        raise t.exceptions.raised(error) from None
    return t.wrapper.wrap(found, Attribute(Pinned(obj), name))


def _refuse_own_class(module: Any, name: str) -> None:
    """Break where a class of the program's has a say in what the module's attribute is."""
    cls = type(module.object)
    if cls is types.ModuleType or is_trusted_namespace(module.object):
        return
    asked = ["__getattribute__", name, *(() if name in vars(module.object) else ("__getattr__",))]
    for found in (mro_lookup(cls, member)[0] for member in asked):
        if isinstance(found, types.FunctionType) or (found is not MISSING and hasattr(type(found), "__set__")):
            raise GraphBreak("unsupported-attribute", f"{name!r} of {module.describe()}, whose class decides")
