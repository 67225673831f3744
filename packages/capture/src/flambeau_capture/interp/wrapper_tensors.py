"""Wrapper tensors that a frame is given or makes: an input of the graph each, or a node.

In: a tensor of a class with `__tensor_flatten__`, or a call of such a class. Out: its value. The fake is put together by the class itself, from the
fakes of the tensors inside, so that the class's own `__torch_dispatch__` says what operations give. What is guarded: the class and its
methods, the tensors inside like any others, what the class tells of itself (`__tensor_flatten__`), and the wrapper's own dtype, sizes and strides.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.nested._internal.nested_tensor import NestedTensor, _nt_view_dummy

from ..class_names import class_module, class_name
from ..constant_objects import PLAIN_TYPES, is_constant_object
from ..graph.dimension_marks import MARKS
from ..graph.inner_tensors import is_wrapper
from ..guards.spec import ShapeExpression, TensorMatch
from ..library import copy, functools
from ..native import _C
from ..refusal import CannotCapture
from ..signals import GraphBreak
from ..sources.source import Attribute, InstanceDict, Item, TensorSize, TensorStride
from ..values.members import own_dict
from ..values.tensor import TensorValue
from ..values.trust import is_trusted_module_name
from .part import Part
from .wrapper_code import HeldCode, tells_constants

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..sources.source import Source
    from ..values.base import Tracer, Value
    from ..values.builtins import ClassValue

_OWN = ("_is_param", MARKS)
"""Attributes that torch or the user's marks put on tensors of any class."""
_LAID_OUT = ("shape", "stride", "dtype")
"""What a distributed tensor tells of how it is laid out."""
_ERRORS = (RuntimeError, LookupError, TypeError, ValueError, AttributeError, AssertionError, NotImplementedError)


class WrapperTensors(Part):
    """The wrappers of one trace."""

    def __init__(self, t: Tracer) -> None:
        super().__init__(t)
        self._code = HeldCode(t)
        #: Of each that existed before the frame the fake, and the fakes of the tensors inside.
        self._given: list[tuple[Any, list[torch.Tensor]]] = []

    def wrap(self, obj: Any, source: Source) -> TensorValue:
        """The value of a wrapper that existed before the frame, guarded."""
        self._code.hold(type(obj))
        made, inside = _wrapped(self.t, obj, source)
        self.t.graph.wraps = True
        self._given.append((made.fake, inside))
        return made

    def construct(self, value: ClassValue, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
        """`cls(*args, **kwargs)` of a class of wrappers: a node that calls the class."""
        self._code.hold(value.object)
        made = self.t.recorder.record("call_function", value.object, args, kwargs)
        if type(made) is not TensorValue or made.python_type() is not value.object:
            raise GraphBreak("unsupported-call", f"constructing {class_name(value.object)}, which gives another object")
        return made

    def note_writes(self) -> None:
        """Count writes to wrappers, whose dispatch writes unseen by autograd, as writes to the tensors inside. Raises `CannotCapture` where a
        history would have to follow."""
        for fake, inside in self._given:
            if fake.is_inference() or not fake._version:
                continue
            if fake.requires_grad:
                raise CannotCapture(
                    GraphBreak("external-mutation", "a wrapper tensor that requires grad is written"), recursive=True
                )
            torch.autograd.graph.increment_version(inside)

    def refuse_called(self) -> None:
        """Raise `CannotCapture` where code of a class was called that must not run while it is compiled, whoever caught the break there."""
        if self._code.called is not None:
            raise CannotCapture(self._code.called)


def _wrapped(t: Tracer, obj: Any, source: Source) -> tuple[TensorValue, list[torch.Tensor]]:
    kind = type(obj)
    t.guards.type_is(source, kind)
    names, context = _taken_apart(obj)
    if any(isinstance(part, torch.Tensor) for part in _leaves(context)):
        raise GraphBreak("unsupported-tensor", f"a {class_name(kind)} whose context holds tensors")
    if not (tells_constants(kind) and is_constant_object(context)):
        told = functools.partial(_tells_the_same, tuple(names), _frozen(context))
        t.guards.holds(source, told, f"what {class_name(kind)}.__tensor_flatten__ tells")
    inner = {name: _inner_value(t, obj, name, source) for name in names if isinstance(getattr(obj, name), torch.Tensor)}
    parts = {name: inner[name].fake if name in inner else _inner_object(t, obj, name, source) for name in names}
    sizes, strides = _sizes(t, obj, inner)
    with t.graph.unpatched, t.graph.fake_mode, torch.no_grad():
        try:
            fake = kind.__tensor_unflatten__(parts, context, sizes, strides)
            if isinstance(fake, torch.Tensor) and fake.requires_grad != obj.requires_grad:
                fake.requires_grad_(obj.requires_grad)
        except _ERRORS as error:
            raise GraphBreak(
                "unsupported-tensor", f"a {class_name(kind)} that is not put together of fakes: {error}"
            ) from error
    _check_alike(t, obj, fake, source, names, _containers(context))
    if getattr(obj, "_is_param", False):
        fake._is_param = True
    _guard_layout(t, obj, fake, source)
    made = TensorValue(fake, None, source, obj)
    t.wrapper.fake_owner[id(fake)] = made
    return made, [value.fake for value in inner.values()]


def _taken_apart(obj: Any) -> tuple[list[str], Any]:
    kind = type(obj)
    try:
        names, context = obj.__tensor_flatten__()
    except _ERRORS as error:
        raise GraphBreak("unsupported-tensor", f"a {class_name(kind)} that cannot be taken apart: {error}") from error
    if not any(type(name) is str and isinstance(getattr(obj, name, None), torch.Tensor) for name in names):
        raise GraphBreak("unsupported-tensor", f"a {class_name(kind)} whose tensors cannot be named")
    return list(names), context


def _leaves(context: Any) -> list[Any]:
    if isinstance(context, (list, tuple, set, frozenset)):
        return [leaf for part in context for leaf in _leaves(part)]
    if isinstance(context, dict):
        return [leaf for part in context.values() for leaf in _leaves(part)]
    return [context]


def _frozen(context: Any) -> Any:
    """The context, which a write to a container in it does not change; without sizes and strides of the wrapper, which are guarded by themselves."""
    if _is_layout(context):
        return context.dtype
    if type(context) in (list, tuple, set):
        return type(context)(map(_frozen, context))
    if type(context) is dict:
        return {key: _frozen(part) for key, part in context.items()}
    if is_constant_object(context) or _is_torchs(type(context)):
        return context
    try:
        own = copy.deepcopy(context)
        is_compared = bool(own == context)
    except (*_ERRORS, copy.Error) as error:
        raise GraphBreak("unsupported-tensor", f"{class_name(type(context))} in a context cannot be copied") from error
    if not is_compared:
        raise GraphBreak("unsupported-tensor", f"{class_name(type(context))} in a context differs from its copy")
    return own


def _is_layout(context: Any) -> bool:
    return getattr(type(context), "_fields", None) == _LAID_OUT and _is_torchs(type(context))


def _tells_the_same(names: tuple[str, ...], context: Any, wrapper: Any) -> bool:
    own, told = wrapper.__tensor_flatten__()
    return tuple(own) == names and _is_as(context, told)


def _is_as(frozen: Any, told: Any) -> bool:
    """Whether a context is what it was: equal numbers of other classes are others."""
    if frozen is told:
        return True
    if _is_layout(told):
        told = told.dtype
    kind = type(frozen)
    if kind is not type(told):
        return False
    if kind is list or kind is tuple:
        return len(frozen) == len(told) and all(map(_is_as, frozen, told))
    if kind is dict:
        return len(frozen) == len(told) and all(key in told and _is_as(part, told[key]) for key, part in frozen.items())
    return _C.same_constant(frozen, told) if kind in PLAIN_TYPES else bool(frozen == told)


def _is_torchs(kind: type) -> bool:
    return is_trusted_module_name(class_module(kind))


def _inner_value(t: Tracer, obj: Any, name: str, source: Source) -> TensorValue:
    stored = own_dict(obj)
    where = Item(InstanceDict(source), name) if isinstance(stored, dict) and name in stored else Attribute(source, name)
    value = t.wrapper.wrap(getattr(obj, name), where)
    if not isinstance(value, TensorValue):
        raise GraphBreak("unsupported-tensor", f"a {class_name(type(obj))} around {value.describe()}")
    return value


def _inner_object(t: Tracer, obj: Any, name: str, source: Source) -> Any:
    """What a wrapper names beside tensors, as a mesh of devices: the very object."""
    part = getattr(obj, name)
    t.guards.identity(Attribute(source, name), part)
    return part


def _sizes(t: Tracer, obj: Any, inner: Mapping[str, TensorValue]) -> tuple[Any, Any]:
    """Sizes and strides to put a fake together with: those of a tensor inside that is laid out the same, whose symbols they share, else the numbers."""
    if obj.is_nested:
        return _ragged_sizes(t, obj, inner), None
    for value in inner.values():
        alike = value.tensor
        if not is_wrapper(alike) and tuple(alike.shape) == tuple(obj.shape) and alike.stride() == obj.stride():
            return value.fake.shape, value.fake.stride()
    return obj.shape, obj.stride()


def _ragged_sizes(t: Tracer, obj: Any, inner: Mapping[str, TensorValue]) -> list[Any]:
    """Sizes of a jagged tensor: in its ragged dimension a symbol of its own, one for each tensor of offsets (or lengths) that says what the parts are."""
    if type(obj) is not NestedTensor:
        raise GraphBreak("unsupported-tensor", f"a nested {class_name(type(obj))}")
    _nt_view_dummy()  # torch keeps the first that it makes, which may be no fake
    counted = inner.get("_lengths", inner["_offsets"]).fake
    sizes, ragged = list(obj.shape), obj._ragged_idx
    if counted.nested_int_memo is None:
        t.graph.need_shape_env()
        with t.graph.unpatched, t.graph.fake_mode:
            counted.nested_int_memo = t.graph.fake_mode.create_symbolic_nested_int(
                nt_tensor_id=sizes[ragged].node.nested_int()
            )
    sizes[ragged] = counted.nested_int_memo
    return sizes


def _containers(context: Any) -> list[Any]:
    """Lists and dicts in a context, whose contents are guarded with it."""
    if type(context) not in (list, tuple, dict):
        return []
    parts = context.values() if type(context) is dict else context
    inner = [container for part in parts for container in _containers(part)]
    return inner if type(context) is tuple else [context, *inner]


def _check_alike(t: Tracer, obj: Any, fake: Any, source: Source, names: list[str], told_of: list[Any]) -> None:
    """Break where the fake is not to the class's functions what the real one is; `told_of`: containers that are guarded already."""
    kind = type(obj)
    told = f"a {class_name(kind)} that is put together as another"
    if type(fake) is not kind or (fake.dtype, fake.device, fake.requires_grad) != (
        obj.dtype,
        obj.device,
        obj.requires_grad,
    ):
        raise GraphBreak("unsupported-tensor", told)
    if list(fake.__tensor_flatten__()[0]) != names or fake.ndim != obj.ndim:
        raise GraphBreak("unsupported-tensor", told)
    if not obj.is_nested and tuple(map(_number, (*fake.shape, *fake.stride()))) != (*obj.shape, *obj.stride()):
        raise GraphBreak("unsupported-tensor", told)
    if _is_torchs(kind):
        return
    stored, shown = own_dict(obj), own_dict(fake)
    for name, held in stored.items() if isinstance(stored, dict) else ():
        if name in names or name in _OWN:
            continue
        seen = shown.get(name, shown) if isinstance(shown, dict) else stored
        if is_constant_object(held):
            if type(seen) is not type(held) or seen != held:
                raise GraphBreak("unsupported-tensor", f"{told}: {name!r} is not what it was")
            t.guards.constant(Item(InstanceDict(source), name), held)
        elif seen is not held:
            raise GraphBreak("unsupported-tensor", f"{told}: {name!r} is not part of its context")
        elif not any(held is container for container in told_of):
            t.guards.identity(Item(InstanceDict(source), name), held)


def _number(size: Any) -> Any:
    return size.node.hint if isinstance(size, torch.SymInt) else size


def _guard_layout(t: Tracer, obj: Any, fake: Any, source: Source) -> None:
    """Guard what the wrapper itself is like; where the fake has symbols, that the sizes go on to follow from those of the tensors inside."""
    if obj.is_nested:
        # Its sizes follow from the tensors inside and what it tells of itself.
        t.guards.constant(Attribute(source, "requires_grad"), obj.requires_grad)
        return
    free = {at for at, size in enumerate(fake.shape) if isinstance(size, torch.SymInt)}
    free_strides = {at for at, stride in enumerate(fake.stride()) if isinstance(stride, torch.SymInt)}
    position = t.frames.user_position()
    t.guards.add(TensorMatch.of(source, obj, dynamic_sizes=free, dynamic_strides=free_strides, position=position))
    for numbers, places, reached in ((fake.shape, free, TensorSize), (fake.stride(), free_strides, TensorStride)):
        for at in sorted(places):
            t.guards.add(_follows(t, numbers[at], reached(source, at)))


def _follows(t: Tracer, number: torch.SymInt, where: Source) -> ShapeExpression:
    expression = number.node.expr
    known = t.graph.symbol_sources
    symbols = sorted(map(str, expression.free_symbols))
    if any(name not in known for name in symbols):
        raise GraphBreak("unsupported-tensor", "a wrapper whose sizes follow from no tensor inside")
    own = "own"
    return ShapeExpression(f"Eq({own}, {expression})", ((own, where), *((name, known[name]) for name in symbols)))
