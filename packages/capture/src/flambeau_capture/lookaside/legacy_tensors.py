"""Constructors of tensors from before `torch.tensor` and `torch.empty`: `torch.Tensor(...)`, `torch.FloatTensor(...)`, `tensor.new(...)`.

In: calls of them met while tracing. Out: the functions of today that do the same, with the dtype and the device written out, which no default
device of the program's changes: `empty` for sizes, `tensor` for a sequence of numbers, `alias` for a tensor.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from ..replacements import replaces
from ..signals import GraphBreak
from ..values.base import Value
from ..values.constants import ConstantValue
from ..values.symbolic import SymbolicValue
from ..values.tensor import TensorValue

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..values.base import Tracer

    Args = Sequence[Value]
    Kwargs = Mapping[str, Value]

_CPU = torch.device("cpu")
_TYPED: Any = tuple(getattr(torch, name) for name in (
    "FloatTensor", "DoubleTensor", "HalfTensor", "BFloat16Tensor", "ByteTensor", "CharTensor", "ShortTensor", "IntTensor", "LongTensor", "BoolTensor",
))  # fmt: skip
"""Classes of tensors of one dtype on the CPU; those of other devices are made where such a device is."""


@replaces(torch.Tensor)
def make_tensor(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    """`torch.Tensor(...)`: of the default dtype, but another name for a tensor of any."""
    return _made(t, args, kwargs, torch.get_default_dtype(), _CPU, of_any=True)


def _typed(cls: Any) -> None:
    def replacement(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
        return _made(t, args, kwargs, cls.dtype, _CPU)

    replaces(cls)(replacement)


for _cls in _TYPED:
    _typed(_cls)


@replaces(torch.Tensor.new)
def new(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    """`tensor.new(...)`: of the tensor's dtype, on its device."""
    owner = args[0].realise(t) if args else None
    if not isinstance(owner, TensorValue) or owner.fake.layout is not torch.strided:
        raise GraphBreak("unsupported-call", "Tensor.new of something else than a strided tensor")
    return _made(t, args[1:], kwargs, owner.fake.dtype, owner.fake.device)


def _made(
    t: Tracer, args: Args, kwargs: Kwargs, dtype: torch.dtype, device: torch.device, *, of_any: bool = False
) -> Value:
    options: dict[str, Value] = {"dtype": ConstantValue(dtype), "device": ConstantValue(device)}
    args = [arg.realise(t) for arg in args]
    if not kwargs and all(arg.python_type() is int for arg in args):
        sizes = t.wrapper.sequence(args or [ConstantValue(0)], tuple)
        return t.recorder.record("call_function", torch.empty, [sizes], options)
    if not kwargs and len(args) == 1:
        (given,) = args
        if given.python_type() is torch.Size:
            return t.recorder.record("call_function", torch.empty, [given], options)
        if isinstance(given, TensorValue):
            alike = given.fake.device == device and given.fake.layout is torch.strided
            if alike and (of_any or given.fake.dtype is dtype):
                return t.recorder.record("call_function", torch.ops.aten.alias.default, [given], {})
        elif given.python_type() in (list, tuple, range) and _is_numbers(t, given):
            return t.recorder.record("call_function", torch.tensor, [given], options)
    raise GraphBreak("unsupported-call", "a legacy constructor of tensors with arguments that torch may refuse or read")


def _is_numbers(t: Tracer, data: Value) -> bool:
    """Whether it is a sequence of numbers, or of such sequences: of a tensor in it the value would be read."""
    kinds = (bool, int, float)
    for item in t.operators.iterate_all(data):
        if item.python_type() in kinds and (item.is_constant() or isinstance(item, SymbolicValue)):
            continue
        if item.python_type() not in (list, tuple, range) or not _is_numbers(t, item):
            return False
    return True
