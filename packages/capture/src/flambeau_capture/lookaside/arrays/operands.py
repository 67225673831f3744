"""Operands of NumPy's functions, and what NumPy says of the result.

In: values. Out: tensors of one dtype for torch's functions (`Operand.as_loop`), small arrays laid out as the operands are (`model`), by which NumPy itself is
asked for the dtype, the class and the layout of a result, and results as values (`result`).
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import torch
from attrs import frozen

from ...class_names import name_of
from ...numpy_classes import ARRAY, DTYPES, SCALARS, numpy
from ...signals import GraphBreak
from ...values.constants import ConstantValue
from ...values.ndarrays import ArrayValue
from ...values.sequences import ListValue, TupleValue
from ...values.symbolic import SymbolicValue
from ...values.tensor import TensorValue
from .calls import Unknown, known, made_of, refuse

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...values.base import Tracer, Value

_WEAK = (int, float, complex)
_LARGEST = 3
"""Elements of a model along each dimension: enough to tell an order of strides, also of the differences."""


@frozen(eq=False)
class Operand:
    """An array in the graph, or a number: one of Python's counts as of any dtype of its kind."""

    array: ArrayValue | None
    number: Any = None

    def kind(self) -> Any:
        """The dtype, or the class of a number of Python's."""
        if self.array is not None:
            return self.array.dtype()
        if type(self.number) in _WEAK:
            return type(self.number)
        return numpy.dtype(type(self.number))

    def in_loop(self, t: Tracer, dtype: Any, *, as_tensor: bool) -> Value:
        """The operand as a tensor of this dtype; a number as one of Python's, rounded as NumPy does, unless a tensor is wanted."""
        if self.array is not None:
            return converted(t, self.array.tensor(t), dtype)
        try:
            exact = numpy.asarray(self.number, dtype=dtype).item()
        except OverflowError as error:
            raise GraphBreak("numpy", str(error)) from None
        if not as_tensor:
            return ConstantValue(exact)
        given = [ConstantValue(()), ConstantValue(exact)]
        return t.recorder.record("call_function", torch.full, given, {"dtype": ConstantValue(DTYPES[dtype])})


def operand(t: Tracer, value: Value, function: Any) -> Operand:
    """An argument as an operand; a list or tuple becomes an array, as in NumPy."""
    value = value.realise(t)
    if isinstance(value, ArrayValue):
        if value.dtype() not in DTYPES:
            refuse(function, f"of an array of {value.dtype()}")
        return Operand(value)
    if isinstance(value, SymbolicValue):
        return Operand(None, value.concrete(t))
    if value.is_constant() and type(value.constant()) in (bool, *_WEAK, *SCALARS):
        return Operand(None, value.constant())
    if isinstance(value, (TupleValue, ListValue)):
        try:
            made = numpy.asarray(known(t, value))
        except (Unknown, ValueError):
            refuse(function, "of a sequence that is not known while tracing")
        if made.dtype in DTYPES:
            return Operand(made_of(t, made))
    refuse(function, f"of {value.describe()}")


def array_of(t: Tracer, value: Value, function: Any) -> ArrayValue:
    """An argument that has to be an array (a scalar of NumPy's is one without dimensions)."""
    found = operand(t, value, function)
    if found.array is not None:
        return found.array
    return made_of(t, numpy.asarray(found.number))


def converted(t: Tracer, tensor: TensorValue, dtype: Any) -> TensorValue:
    """The tensor in this dtype of NumPy's, itself where it has it."""
    wanted = DTYPES[dtype]
    if tensor.fake.dtype is wanted:
        return tensor
    if tensor.fake.dtype.is_complex and not wanted.is_complex and wanted is not torch.bool:
        raise GraphBreak("numpy", "complex numbers become real, which warns")
    return apply(t, torch.Tensor.to, tensor, wanted)


def apply(t: Tracer, function: Any, *args: Any, **kwargs: Any) -> TensorValue:
    """One of torch's functions, or a method of tensors, recorded; what is no value is a constant."""
    given = [_as_value(t, arg) for arg in args]
    named = {name: _as_value(t, arg) for name, arg in kwargs.items()}
    if getattr(torch.Tensor, getattr(function, "__name__", ""), None) is function:
        found = t.recorder.record("call_method", name_of(function), given, named)
    else:
        found = t.recorder.record("call_function", function, given, named)
    assert isinstance(found, TensorValue)
    return found


def _as_value(t: Tracer, arg: Any) -> Value:
    if isinstance(arg, (TensorValue, ConstantValue, SymbolicValue, TupleValue, ListValue)):
        return arg
    if isinstance(arg, (list, tuple)):
        return t.wrapper.sequence([_as_value(t, part) for part in arg], type(arg))
    return t.wrapper.from_python(arg)


# models


def hint(size: Any) -> int:
    """The number that a size is in this call."""
    if isinstance(size, torch.SymInt):
        if not size.node.has_hint():
            raise GraphBreak("numpy", "an array whose size depends on data")
        return int(size.node.hint)
    return int(size)


def model(t: Tracer, value: ArrayValue) -> Any:
    """A small array of ones with its dtype, its dimensions and the order of its strides."""
    fake = value.tensor(t).fake
    sizes, strides = [hint(size) for size in fake.shape], [hint(stride) for stride in fake.stride()]
    if value.is_scalar:
        return value.dtype().type(1)
    order = sorted(range(len(sizes)), key=lambda d: -strides[d])
    small = [min(sizes[d], _LARGEST) for d in order]
    kept = [1 if strides[d] == 0 else n for d, n in zip(order, small, strict=True)]
    made = (
        numpy.broadcast_to(numpy.ones(kept, value.dtype()), small) if kept != small else numpy.ones(kept, value.dtype())
    )
    return made.transpose([order.index(d) for d in range(len(order))])


def stand_in(t: Tracer, found: Operand) -> Any:
    """A model of an operand; a number itself."""
    return found.number if found.array is None else model(t, found.array)


def ask(function: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """What NumPy makes of models. What it refuses, the program's own call refuses in its own words."""
    try:
        with warnings.catch_warnings(record=True, action="always") as told, numpy.errstate(all="ignore"):
            found = function(*args, **kwargs)
    except Exception as error:
        raise GraphBreak(
            "operator-error", f"{getattr(function, '__name__', function)} raises {type(error).__name__}"
        ) from None
    if told:
        refuse(function, "warns")
    return found


# results


def error_handling() -> str:
    """What NumPy is told to do about numbers out of range."""
    return ",".join(numpy.geterr().values())


def watch_errors(t: Tracer) -> None:
    """Guard that NumPy raises nothing for numbers out of range: what torch computes does not. That it may warn is left out."""
    told = error_handling()
    if "raise" in told or "call" in told or "print" in told or "log" in told:
        raise GraphBreak("numpy", "NumPy is told to raise or call something for numbers out of range")
    t.guards.answer(error_handling, (), {}, told)


def result(t: Tracer, tensor: TensorValue, asked: Any, out: ArrayValue | None = None) -> ArrayValue:
    """A new array, of the dtype, class and layout that NumPy gives `asked`; with `out` what it is written to."""
    tensor = converted(t, tensor, asked.dtype)
    if out is not None:
        write(t, out, tensor)
        return out
    if type(asked) is not ARRAY:
        return ArrayValue(tensor, is_scalar=True)
    return ArrayValue(laid_out(t, tensor, asked))


def write(t: Tracer, target: ArrayValue, tensor: Value) -> None:
    """Give an array the values of a tensor. NumPy refuses to broadcast what is written to."""
    watch_errors(t)
    t.recorder.record("call_method", "copy_", [target.tensor(t), tensor], {})


def laid_out(t: Tracer, tensor: TensorValue, asked: Any) -> TensorValue:
    """The tensor, dense, with its dimensions in memory in the order of the strides of `asked`."""
    fake = tensor.fake
    sizes, strides = [hint(size) for size in fake.shape], [hint(stride) for stride in fake.stride()]
    if 0 in sizes:
        return tensor
    order = sorted(range(len(sizes)), key=lambda d: -asked.strides[d] if sizes[d] > 1 else 0)
    step = 1
    for d in reversed(order):
        if sizes[d] > 1 and strides[d] != step:
            break
        step *= sizes[d]
    else:
        return tensor
    back = [order.index(d) for d in range(len(order))]
    in_order = apply(t, torch.Tensor.permute, tensor, order)
    dense = apply(t, torch.Tensor.clone, in_order, memory_format=torch.contiguous_format)
    return apply(t, torch.Tensor.permute, dense, back)
