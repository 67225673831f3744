"""`SubclassValue`: a tensor of a class that answers torch's functions itself, by `__torch_function__`.

In: the class, the value of the plain tensor that it is for the graph, and for one that existed before the frame the real one. Out: attributes by
Python's own rules; what is torch's own is asked of `Overrides` (`interp/overrides.py`), which hands it to the class where torch would. Behind the
graph it is made again of the plain tensor.
"""

from __future__ import annotations

import types
from collections.abc import Mapping
from operator import getitem, setitem
from typing import TYPE_CHECKING, Any

import torch

from ..class_names import class_name
from ..library import functools
from ..signals import GraphBreak
from ..sources.source import Computed, InstanceDict, Item, Pinned
from .base import MISSING, Value
from .bound import BoundBuiltin
from .builtins import BuiltinValue
from .constants import ConstantValue
from .members import own_dict

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..sources.source import Source
    from .base import Tracer
    from .tensor import TensorValue

NO_KEYWORDS: Mapping[str, Any] = types.MappingProxyType({})
"""The keyword arguments of `f(**{})`: functions in C hand on an empty dict then, and for `f()` none."""
TENSOR_CLASSES: tuple[Any, ...] = torch.Tensor.__mro__
"""Where torch's own attributes of tensors are."""
_OF_ITSELF = frozenset(("grad", "_grad", "grad_fn", "_base", "_version", "output_nr", "_backward_hooks", "_post_accumulate_grad_hooks"))  # fmt: skip
"""What the plain tensor that the graph gets does not have of the one that it stands for."""
_METHODS_OF_ITSELF = frozenset(("_is_view", "retain_grad", "register_hook", "is_inference", "__deepcopy__"))
_UNCLAIMED = ("__getattribute__", "__setattr__", "__delattr__")


def plain_of(tensor: torch.Tensor) -> torch.Tensor:
    """The plain tensor with the memory and the history of one of a subclass; neither the class nor a mode is asked."""
    with torch._C.DisableTorchFunction(), torch.enable_grad():
        return tensor.as_subclass(torch.Tensor)


def plain_source(source: Source) -> Source:
    """How the plain tensor of what `source` names is reached."""
    return Computed(source, plain_of, f"plain_of({source.name})")


def is_plain_of(source: Source) -> bool:
    """Whether it names the plain tensor of one of a subclass."""
    return isinstance(source, Computed) and source.function is plain_of


def rewrapped(plain: torch.Tensor, cls: type) -> torch.Tensor:
    """The tensor of a subclass that a traced program made of a plain one."""
    with torch._C.DisableTorchFunction(), torch.enable_grad():
        return plain.as_subclass(cls)


def _told(tensor: torch.Tensor, name: str) -> bool:
    with torch._C.DisableTorchFunction():
        return bool(getattr(tensor, name))


_FACTS: dict[str, Callable[[torch.Tensor], bool]] = {
    name: functools.partial(_told, name=name) for name in ("is_leaf", "retains_grad", "requires_grad")
}
"""What torch says of the very tensor, whatever its class says, and not of the plain one with the same memory."""


class SubclassValue(Value):
    """A tensor of class `cls`. `tensor` is the real one, `MISSING` for one made while tracing; `attrs` is what the trace stored (None: deleted)."""

    __slots__ = ("attrs", "cls", "plain", "tensor")

    def __init__(self, cls: type, plain: TensorValue, source: Source | None = None, tensor: Any = MISSING) -> None:
        super().__init__(source)
        self.cls = cls
        self.plain = plain
        self.tensor = tensor
        self.attrs: dict[str, Value | None] = {}

    def python_type(self) -> type:
        return self.cls

    def real(self) -> Any:
        return self.tensor

    def describe(self) -> str:
        return f"{class_name(self.cls)}, {self.plain.describe()}"

    def rebuild(self, e: Any) -> None:
        if self.source is not None:
            e.source(self.source)
            return
        e.pinned(rewrapped)
        e.value(self.plain)
        e.pinned(self.cls)
        e.call(2)

    def fill(self, e: Any) -> None:
        if self.source is not None:
            return
        for name, value in self.attrs.items():
            if value is not None:
                e.pinned(object.__setattr__)
                e.value(self)
                e.const(name)
                e.value(value)
                e.call(3)
                e.pop()

    # attributes

    def get_attribute(self, t: Tracer, name: str) -> Value:
        found, where = t.members.class_member(self.cls, name)
        is_torchs = where in TENSOR_CLASSES
        if found is not MISSING and (hasattr(type(found), "__set__") or hasattr(type(found), "__delete__")):
            if is_torchs:
                return t.overrides.read(self, name)
            return t.attributes.bind_class_attribute(self, self.cls, name, found)
        own = self._own_attribute(t, name)
        if own is not None:
            return own
        if found is MISSING:
            hook, _ = t.members.class_member(self.cls, "__getattr__")
            if hook is MISSING:
                return t.attributes.missing_attribute(self, name)
            return t.caller.call(
                t.attributes.bind_class_attribute(self, self.cls, "__getattr__", hook), [ConstantValue(name)], {}
            )
        if is_torchs and callable(found) and not isinstance(found, classmethod | staticmethod):
            return BoundBuiltin(self, name)
        return t.attributes.bind_class_attribute(self, self.cls, name, found)

    def _own_attribute(self, t: Tracer, name: str) -> Value | None:
        """What the tensor itself holds under the name; None for nothing, which is guarded."""
        if name in self.attrs:
            return self.attrs[name]
        if self.source is None:
            return None
        held = own_dict(self.tensor)
        if name in held:
            return t.wrapper.wrap(held[name], Item(InstanceDict(self.source), name))
        t.guards.absent(InstanceDict(self.source), name)
        return None

    def is_parameter(self, t: Tracer) -> bool:
        """Whether `nn.Parameter` takes it for one, by a mark on the tensor."""
        marked = self._own_attribute(t, "_is_param")
        return marked is not None and marked.truth(t)

    def own_fact(self, t: Tracer, name: str) -> Value:
        """What torch says of this very tensor, with no class or mode asked."""
        if name in _OF_ITSELF or name == "__dict__":
            raise GraphBreak("unsupported-attribute", f"{name!r} of {self.describe()}")
        # In inference mode no alias requires grad.
        if name not in _FACTS or (name == "requires_grad" and not torch.is_inference_mode_enabled()):
            return t.overrides.given_back([self], {}, self.plain.get_attribute(t, name))
        requires_grad = self.plain.fake.requires_grad
        if self.source is None:
            return ConstantValue(requires_grad if name == "requires_grad" else name == "is_leaf" and not requires_grad)
        fact = _FACTS[name]
        answer = fact(self.tensor)
        t.guards.constant(Computed(self.source, fact, f"{name}({self.source.name})"), answer)
        # A write can end a tensor's being a leaf.
        is_written = name == "is_leaf" and requires_grad and not self.plain.tensor.requires_grad
        return ConstantValue(answer and not is_written)

    def set_attribute(self, t: Tracer, name: str, value: Value) -> None:
        found, where = t.members.class_member(self.cls, name)
        if isinstance(found, property) and where not in TENSOR_CLASSES and found.fset is not None:
            t.caller.call(t.wrapper.wrap_pinned(found.fset), [self, value], {})
            return
        if found is not MISSING and (where in TENSOR_CLASSES or hasattr(type(found), "__set__")):
            raise GraphBreak("unsupported-store", f"storing {name!r} of {self.describe()}")
        self._refuse_own_rule(t)
        t.heap.store_attribute(self, name, value)
        self.attrs[name] = value

    def delete_attribute(self, t: Tracer, name: str) -> None:
        found, _ = t.members.class_member(self.cls, name)
        if found is not MISSING or self._own_attribute(t, name) is None:
            raise GraphBreak("unsupported-store", f"deleting {name!r} of {self.describe()}")
        self._refuse_own_rule(t)
        t.heap.store_attribute(self, name, None)
        self.attrs[name] = None

    def _refuse_own_rule(self, t: Tracer) -> None:
        for name in _UNCLAIMED:
            if t.members.class_member(self.cls, name)[1] not in TENSOR_CLASSES:
                raise GraphBreak("unsupported-store", f"an attribute of {self.describe()}, whose class has {name}")

    # operations

    def special(self, t: Tracer, name: str) -> Value | None:
        """The special method that a program wrote for the class, bound to this tensor; None where torch's own is inherited."""
        found, where = t.members.class_member(self.cls, name)
        if found is MISSING or where in TENSOR_CLASSES:
            return None
        return t.attributes.bind_class_attribute(self, self.cls, name, found)

    def key(self, t: Tracer) -> Any:
        """What it is as the key of a dict: itself."""
        if self.special(t, "__hash__") is not None or self.special(t, "__eq__") is not None:
            raise GraphBreak("unsupported-operation", f"hashing {self.describe()}")
        return self if self.tensor is MISSING else self.tensor

    def do(self, t: Tracer, name: str, *args: Value) -> Value:
        """What a special method does that takes no keywords: the program's own or torch's."""
        own = self.special(t, name)
        return t.caller.call(own, args, {}) if own is not None else self.call_method(t, name, args, {})

    def call(self, t: Tracer, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
        own = self.special(t, "__call__")
        return t.caller.call(own, args, kwargs) if own is not None else super().call(t, args, kwargs)

    def call_method(self, t: Tracer, name: str, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
        """The method that torch has under the name."""
        if name in _METHODS_OF_ITSELF:
            raise GraphBreak("unsupported-call", f"Tensor.{name}() of {self.describe()}")
        return t.overrides.method(self, name, args, kwargs)

    def get_item(self, t: Tracer, key: Value) -> Value:
        own = self.special(t, "__getitem__")
        if own is not None:
            return t.caller.call(own, [key], {})
        return t.recorder.record("call_function", getitem, [self, key], {})

    def set_item(self, t: Tracer, key: Value, value: Value) -> None:
        own = self.special(t, "__setitem__")
        if own is not None:
            t.caller.call(own, [key, value], {})
        else:
            t.recorder.record("call_function", setitem, [self, key, value], {})

    def length(self, t: Tracer) -> Value:
        return self.do(t, "__len__")

    def how_many(self, t: Tracer) -> None:
        self.length(t)

    def truth(self, t: Tracer) -> bool:
        return self.do(t, "__bool__").truth(t)

    def contains(self, t: Tracer, item: Value) -> bool:
        return self.do(t, "__contains__", item).truth(t)

    def iterate(self, t: Tracer) -> Value:
        return self.do(t, "__iter__")


ACCESSORS = (types.GetSetDescriptorType, types.MethodWrapperType)


def is_of_tensors(accessor: Any) -> bool:
    """Whether it is torch's for an attribute of tensors (`torch.Tensor.shape`), or one of its methods."""
    accessor = getattr(accessor, "__self__", accessor)
    return isinstance(accessor, types.GetSetDescriptorType) and accessor.__objclass__ in TENSOR_CLASSES


class AccessorValue(BuiltinValue):
    """`torch.Tensor.shape`, and `torch.Tensor.shape.__get__`, which `__torch_function__` is given where an attribute is read."""

    __slots__ = ()

    def get_attribute(self, t: Tracer, name: str) -> Value:
        if name in ("__get__", "__set__", "__delete__") and isinstance(self.object, types.GetSetDescriptorType):
            bound = getattr(self.object, name)  # a new object at every look
            return AccessorValue(bound, Pinned(bound))
        return super().get_attribute(t, name)

    def call(self, t: Tracer, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
        if getattr(self.object, "__name__", "") != "__get__" or len(args) != 1 or kwargs:
            raise GraphBreak("unsupported-call", f"calling {self.object!r}")
        return t.attributes.get_attribute(args[0].realise(t), self.object.__self__.__name__)
