"""Between tensors and arrays: both lie in the same memory, unless one is made of the other.

In: `tensor.numpy()`, `torch.from_numpy`, `torch.as_tensor`, `torch.tensor` and `torch.asarray` of arrays, `numpy.asarray` of tensors. Out: arrays and tensors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from ...numpy_classes import ARRAY, SCALARS, TORCH_DTYPES
from ...replacements import replaces
from ...signals import GraphBreak
from ...values.constants import ConstantValue
from ...values.ndarrays import ArrayValue
from ...values.tensor import TensorValue
from .calls import computes
from .operands import apply, array_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ...values.base import Tracer, Value

    Args = Sequence[Value]
    Kwargs = Mapping[str, Value]


def array_in(t: Tracer, tensor: Value, *, force: bool = False) -> ArrayValue:
    """The array in the memory of a tensor; what torch refuses, it refuses in its own words."""
    assert isinstance(tensor, TensorValue)
    fake = tensor.fake
    refused = (fake.requires_grad and not force) or fake.device.type != "cpu" or fake.is_conj() or fake.is_neg()
    if force and (fake.device.type != "cpu" or fake.is_conj() or fake.is_neg()):
        raise GraphBreak("numpy", "Tensor.numpy(force=True) of a tensor that has to be copied")
    if refused or fake.dtype not in TORCH_DTYPES or fake.layout is not torch.strided:
        raise GraphBreak("operator-error", f"Tensor.numpy() of {tensor.describe()}")
    return ArrayValue(apply(t, torch.Tensor.detach, tensor))


@replaces(torch.Tensor.numpy)
def tensor_numpy(t: Tracer, args: Args, kwargs: Kwargs) -> ArrayValue:
    """`tensor.numpy()`."""
    if len(args) != 1 or not {"force"}.issuperset(kwargs):
        raise GraphBreak("numpy", "Tensor.numpy() with arguments")
    return array_in(t, args[0].realise(t), force=bool("force" in kwargs and t.folder.concrete(kwargs["force"])))


def _given(t: Tracer, args: Args, kwargs: Kwargs, name: str = "data") -> Value | None:
    found = args[0] if args else kwargs.get(name)
    return None if found is None else found.realise(t)


def _plain(t: Tracer, target: Any, args: Args, kwargs: Kwargs) -> Value:
    """The call where no array is given."""
    from ...replacements import torch_decision
    from ...torch_policy import Decision

    if torch_decision(target) is Decision.ALWAYS_RECORD:
        return t.recorder.record("call_function", target, args, kwargs)
    raise GraphBreak("unsupported-call", f"calling {target.__name__}")


@replaces(torch.from_numpy)
def from_numpy(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    value = _given(t, args, kwargs, "")
    if len(args) != 1 or kwargs or not isinstance(value, ArrayValue) or value.is_scalar:
        raise GraphBreak("operator-error", "from_numpy of what is no array")
    return apply(t, torch.Tensor.detach, array_of(t, value, torch.from_numpy).tensor(t))


@computes(ARRAY.item)
def item(t: Tracer, a: Value) -> Value:
    """The one element as a number of Python's, where the tensor gives it."""
    tensor = array_of(t, a, ARRAY.item).tensor(t)
    return tensor.call_method(t, "item", [], {})


def _made_of_arrays(target: Any) -> None:
    """`torch.tensor` copies, the others copy where they have to."""

    @replaces(target)
    def rule(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
        value = _given(t, args, kwargs, "obj" if target is torch.asarray else "data")
        is_constant_scalar = value is not None and value.is_constant() and type(value.constant()) in SCALARS
        if not isinstance(value, ArrayValue) and not is_constant_scalar:
            return _plain(t, target, args, kwargs)
        rest = {name: given for name, given in kwargs.items() if name not in ("data", "obj")}
        if len(args) > 1 or not {"dtype", "device"}.issuperset(rest):
            raise GraphBreak("numpy", f"{target.__name__} of an array, with these arguments")
        dtype, device = (t.folder.concrete(rest[name]) if name in rest else None for name in ("dtype", "device"))
        elsewhere = t.devices.entered or t.devices.outer is not None
        if torch.device(device).type != "cpu" if device is not None else elsewhere:
            raise GraphBreak("numpy", f"{target.__name__} of an array, on another device")
        if not isinstance(value, ArrayValue):
            assert value is not None
            # Which dtype that is, torch knows: NumPy's numbers keep theirs, but for those that are Python's too.
            asked = target(value.constant(), dtype=dtype)
            number = [ConstantValue(()), ConstantValue(value.constant().item())]
            return t.recorder.record("call_function", torch.full, number, {"dtype": ConstantValue(asked.dtype)})
        if value.is_scalar:
            return _of_a_scalar(t, target, value, dtype)
        tensor = array_of(t, value, target).tensor(t)
        if dtype is None or dtype is tensor.fake.dtype:
            return apply(t, torch.Tensor.clone if target is torch.tensor else torch.Tensor.detach, tensor)
        return apply(t, torch.Tensor.to, tensor, dtype)


def _of_a_scalar(t: Tracer, target: Any, value: ArrayValue, dtype: torch.dtype | None) -> Value:
    asked = target(value.dtype().type(0), dtype=dtype)
    tensor = value.tensor(t)
    if tensor.fake.dtype is asked.dtype:
        return apply(t, torch.Tensor.clone, tensor)
    return apply(t, torch.Tensor.to, tensor, asked.dtype)


for _target in (torch.tensor, torch.as_tensor, torch.asarray):
    _made_of_arrays(_target)
