"""Attributes of wrapper tensors that hold what is inside of them.

In: the value of a wrapper and a name. Out: the value of what the object has under the name: a tensor inside, or a constant; None where it has nothing.
"""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any

import torch

from ..class_names import class_module, class_name
from ..constant_objects import is_constant_object
from ..graph.inner_tensors import is_wrapper
from ..signals import GraphBreak
from ..sources.source import Attribute
from .base import MISSING, Value
from .constants import ConstantValue
from .members import mro_lookup, own_dict
from .trust import is_torch_member

if TYPE_CHECKING:
    from .base import Tracer


def inner_attribute(t: Tracer, wrapper: Any, name: str) -> Value | None:
    """What the wrapper itself holds under `name`; its class is asked for everything else."""
    fake = wrapper.fake
    if not is_wrapper(fake):
        return None
    held = (own_dict(fake) or {}).get(name, MISSING)
    if held is MISSING:
        found, _ = mro_lookup(type(fake), name)
        if isinstance(found, property) and is_torch_member(found):
            return _told(t, getattr(fake, name))
        if not isinstance(found, types.MemberDescriptorType):
            return None
        held = getattr(fake, name, MISSING)
        if held is MISSING:
            return None
    if isinstance(held, torch.Tensor):
        if wrapper.tensor is not MISSING:
            return t.wrapper.wrap(getattr(wrapper.tensor, name), Attribute(wrapper.source, name))
        return t.recorder.record("call_function", getattr, [wrapper, ConstantValue(name)], {})
    if is_constant_object(held) and wrapper.tensor is MISSING:
        return ConstantValue(held)
    raise GraphBreak("unsupported-attribute", f"attribute {name!r} of a {class_name(type(fake))}")


def _told(t: Tracer, answer: Any) -> Value | None:
    """What a property of one of torch's own classes tells, which follows from what is guarded; None where that is a tensor or a symbol."""
    if is_constant_object(answer) or class_module(type(answer)) == "torch.distributed.device_mesh":
        return t.wrapper.from_python(answer)
    return None
