"""Tensors of subclasses: real ones wrapped, and those that a program makes by calling the class.

In: a real tensor and its source, or a class and arguments. Out: `SubclassValue`s; a break for classes whose tensors are more than a plain tensor with
`__torch_function__` and attributes.
"""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any

import torch

from ..class_names import class_name, full_name
from ..signals import GraphBreak
from ..values.base import MISSING, Value
from ..values.subclasses import TENSOR_CLASSES, SubclassValue, plain_of, plain_source
from ..values.tensor import TensorValue

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..sources.source import Source
    from ..values.base import Tracer
    from ..values.builtins import ClassValue

_UNCLAIMED = ("__torch_dispatch__", "__getattribute__", "__del__")
"""What a class must leave to torch and Python."""


def refuse_class(t: Tracer, cls: Any) -> None:
    """Break where tensors of a class are more than a plain tensor with `__torch_function__` and attributes."""
    if not isinstance(cls, type) or not issubclass(cls, torch.Tensor):
        raise GraphBreak("unsupported-tensor", f"{cls!r} as the class of a tensor")
    for name in _UNCLAIMED:
        found, where = t.members.class_member(cls, name)
        if found is not MISSING and where not in TENSOR_CLASSES:
            raise GraphBreak("unsupported-tensor", f"a {class_name(cls)}, whose class has {name}")
    found, _ = t.members.class_member(cls, "__torch_function__")
    is_plain_method = not isinstance(found, classmethod | staticmethod)
    if is_plain_method and found is not torch._C._disabled_torch_function_impl:
        # Torch warns of it.
        raise GraphBreak("unsupported-tensor", f"a {class_name(cls)}, whose __torch_function__ is no classmethod")


def wrap_subclass(t: Tracer, tensor: torch.Tensor, source: Source) -> Value:
    """The value of a tensor of a subclass that existed before the frame: the graph gets the plain one."""
    cls = type(tensor)
    refuse_class(t, cls)
    t.guards.type_is(source, cls)
    plain = t.wrapper.wrap(plain_of(tensor), plain_source(source))
    assert isinstance(plain, TensorValue)
    t.overrides.has_subclasses = True
    return SubclassValue(cls, plain, source, tensor)


def construct_tensor(t: Tracer, value: ClassValue, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
    """`cls(*args, **kwargs)` of a class of tensors."""
    cls = value.object
    if cls is torch.Tensor or issubclass(cls, torch.nn.Parameter) or type(cls) is not type(torch.Tensor):
        raise GraphBreak("unsupported-call", f"constructing {full_name(cls)}")
    refuse_class(t, cls)
    new, _ = t.members.class_member(cls, "__new__")
    new = getattr(new, "__func__", new)
    if isinstance(new, types.FunctionType):
        made = t.caller.call(t.wrapper.wrap_pinned(new), [value, *args], kwargs)
    else:
        made = alias_of_class(t, [value, *args], kwargs)
    if not issubclass(made.python_type(), cls):
        return made
    init, where = t.members.class_member(made.python_type(), "__init__")
    if isinstance(init, types.FunctionType):
        t.caller.call(t.wrapper.wrap_pinned(init), [made, *args], kwargs)
    elif where not in TENSOR_CLASSES:
        raise GraphBreak("unsupported-call", f"constructing {full_name(cls)}, whose __init__ is no function")
    return made


def alias_of_class(t: Tracer, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
    """`torch.Tensor.__new__(cls, tensor)`: another tensor with the same memory and history."""
    if len(args) != 2 or kwargs or not isinstance(args[1], TensorValue) or t.overrides.listens:
        raise GraphBreak("unsupported-call", "a tensor is made by its class of something else than a plain tensor")
    return t.overrides.as_subclass(args[1], [args[0]], {})
