"""What arrays hold: conversions and copies, subscripts, writes, choices between arrays.

In: calls. Out: arrays, with views where NumPy gives views and copies where it copies.
"""

from __future__ import annotations

from operator import getitem, setitem
from typing import TYPE_CHECKING, Any

import torch

from ...numpy_classes import ARRAY, DTYPES, SCALARS, numpy
from ...signals import GraphBreak
from ...values.constants import NONE, TRUE, ZERO, ConstantValue
from ...values.ndarrays import ArrayValue, without_masks
from ...values.sequences import ListValue, SliceValue, TupleValue
from ...values.symbolic import SymbolicValue
from ...values.tensor import TensorValue
from .calls import computes, constant, refuse
from .exchange import array_in
from .operands import (
    apply,
    array_of,
    ask,
    converted,
    model,
    operand,
    result,
    stand_in,
    watch_errors,
)

if TYPE_CHECKING:
    from ...values.base import Tracer, Value

AS_IT_LIES = ConstantValue("K")
ANY_CAST = ConstantValue("unsafe")
_INTEGERS = "iu"


def dtype_of(t: Tracer, value: Value | None, function: Any) -> Any:
    """A `dtype=` argument, None where there is none."""
    found = constant(t, value, function)
    try:
        wanted = None if found is None else numpy.dtype(found)
    except TypeError:
        raise GraphBreak("operator-error", "a dtype that NumPy does not know") from None
    if wanted is not None and wanted not in DTYPES:
        refuse(function, f"with the dtype {wanted}")
    return wanted


def copied(t: Tracer, array: ArrayValue, function: Any, *args: Any, **kwargs: Any) -> ArrayValue:
    """What NumPy gives as a new array of the same elements; it is asked how that is laid out."""
    asked = ask(function, [model(t, array), *args], kwargs)
    tensor = array.tensor(t)
    made = converted(t, tensor, asked.dtype)
    return result(t, apply(t, torch.Tensor.clone, tensor) if made is tensor else made, asked)


# conversions


def _copy_with(target: Any, default: str) -> None:
    usual = ConstantValue(default)

    @computes(target)
    def rule(t: Tracer, a: Value, order: Value = usual) -> Value:
        array = array_of(t, a, target)
        wanted = constant(t, order, target)
        if array.is_scalar:
            return array if target is ARRAY.copy else ArrayValue(apply(t, torch.Tensor.clone, array.tensor(t)))
        return copied(t, array, numpy.copy, order=wanted)


@computes(ARRAY.astype, *([numpy.astype] if hasattr(numpy, "astype") else []))
def astype(
    t: Tracer,
    a: Value,
    dtype: Value,
    order: Value = AS_IT_LIES,
    casting: Value = ANY_CAST,
    subok: Value = TRUE,
    copy: Value = TRUE,
) -> Value:
    array, wanted = array_of(t, a, ARRAY.astype), dtype_of(t, dtype, ARRAY.astype)
    given = {name: constant(t, value, ARRAY.astype) for name, value in (("order", order), ("casting", casting))}
    if wanted == array.dtype() and (array.is_scalar or not constant(t, copy, ARRAY.astype)):
        if given["order"] not in ("K", "A") and not array.is_scalar:
            refuse(ARRAY.astype, "in another order")
        return array
    return copied(t, array, ARRAY.astype if not array.is_scalar else _astype_of_scalar, wanted, **given)


def _astype_of_scalar(scalar: Any, dtype: Any, **kwargs: Any) -> Any:
    return scalar.astype(dtype, **kwargs)


def _as_array(target: Any, *, copies: bool) -> None:
    """`numpy.asarray` and `numpy.array`: of what is an array already, itself or a copy."""

    @computes(target)
    def rule(
        t: Tracer, a: Value, dtype: Value | None = None, *, copy: Value | None = None, order: Value | None = None
    ) -> Value:
        wanted, is_copied = dtype_of(t, dtype, target), constant(t, copy, target)
        if order is not None:
            refuse(target, "in an order")
        if isinstance(a, (TupleValue, ListValue)):
            return _stacked(t, a, wanted, target)
        if isinstance(a, TensorValue):
            ask(target, [torch.zeros(1)], {})  # NumPy may warn at how torch gives it the array
        array = array_in(t, a) if isinstance(a, TensorValue) else array_of(t, a, target)
        if array.is_scalar:
            array = ArrayValue(apply(t, torch.Tensor.clone, array.tensor(t)))
        is_new = (copies and is_copied is None) or is_copied or (wanted is not None and wanted != array.dtype())
        if not is_new:
            return array
        if is_copied is False and copies:
            raise GraphBreak("operator-error", "numpy.array() that has to copy")
        return copied(t, array, numpy.array, wanted)


def _stacked(t: Tracer, sequence: TupleValue | ListValue, dtype: Any, target: Any) -> ArrayValue:
    """An array of a sequence of arrays and numbers."""
    parts = [operand(t, item, target) for item in sequence.items]
    asked = ask(numpy.array, [[stand_in(t, part) for part in parts]], {"dtype": dtype})
    if asked.dtype not in DTYPES:
        refuse(target, f"of {asked.dtype}")
    tensors = [part.in_loop(t, asked.dtype, as_tensor=True) for part in parts]
    return result(t, apply(t, torch.stack, tensors), asked)


_copy_with(ARRAY.copy, "C")
_copy_with(numpy.copy, "K")
_as_array(numpy.asarray, copies=False)
_as_array(numpy.asanyarray, copies=False)
_as_array(numpy.array, copies=True)


@computes(numpy.ascontiguousarray)
def ascontiguousarray(t: Tracer, a: Value, dtype: Value | None = None) -> Value:
    array, wanted = array_of(t, a, numpy.ascontiguousarray), dtype_of(t, dtype, numpy.ascontiguousarray)
    tensor = array.tensor(t)
    if not tensor.fake.ndim:
        refuse(numpy.ascontiguousarray, "of an array without dimensions")
    if wanted in (None, array.dtype()) and tensor.fake.is_contiguous():
        return array
    return copied(t, array, numpy.array, wanted, order="C")


# like another array


def _like(target: Any, fills: Any) -> None:
    @computes(target)
    def rule(t: Tracer, a: Value, dtype: Value | None = None) -> Value:
        array, wanted = array_of(t, a, target), dtype_of(t, dtype, target)
        asked = ask(target, [model(t, array)], {"dtype": wanted})
        given = {"dtype": ConstantValue(DTYPES[asked.dtype])}
        return result(t, apply(t, fills, array.tensor(t), **given), asked)


_like(numpy.zeros_like, torch.zeros_like)
_like(numpy.ones_like, torch.ones_like)
_like(numpy.empty_like, torch.empty_like)


@computes(numpy.full_like)
def full_like(t: Tracer, a: Value, fill_value: Value, dtype: Value | None = None) -> Value:
    array, wanted = array_of(t, a, numpy.full_like), dtype_of(t, dtype, numpy.full_like)
    filling = operand(t, fill_value, numpy.full_like)
    if filling.array is not None:
        refuse(numpy.full_like, "of an array")
    asked = ask(numpy.full_like, [model(t, array), filling.number], {"dtype": wanted})
    exact = asked.reshape(-1)[:1].tolist()
    if not exact:
        refuse(numpy.full_like, "of an array without elements")
    given = {"dtype": ConstantValue(DTYPES[asked.dtype])}
    return result(t, apply(t, torch.full_like, array.tensor(t), exact[0], **given), asked)


@computes(ARRAY.fill)
def fill(t: Tracer, a: Value, value: Value) -> Value:
    set_item(t, a, ConstantValue(...), value)
    return NONE


# choices


@computes(numpy.where)
def where(t: Tracer, condition: Value, x: Value, y: Value) -> Value:
    operands = [operand(t, value, numpy.where) for value in (condition, x, y)]
    asked = ask(numpy.where, [stand_in(t, each) for each in operands], {})
    if asked.dtype not in DTYPES:
        refuse(numpy.where, f"of {asked.dtype}")
    chosen = operands[0].in_loop(t, numpy.dtype(bool), as_tensor=True)
    parts = [each.in_loop(t, asked.dtype, as_tensor=True) for each in operands[1:]]
    return result(t, apply(t, torch.where, chosen, *parts), asked)


@computes(numpy.clip, ARRAY.clip)
def clip(
    t: Tracer, a: Value, min: Value = NONE, max: Value = NONE, out: Value = NONE, dtype: Value | None = None
) -> Value:
    if dtype is not None or not (out is NONE or (out.is_constant() and out.constant() is None)):
        refuse(numpy.clip, "with these arguments")
    array = array_of(t, a, numpy.clip)
    bounds = [None if _is_none(value) else operand(t, value, numpy.clip) for value in (min, max)]
    models = [None if bound is None else stand_in(t, bound) for bound in bounds]
    if bounds == [None, None]:
        return copied(t, array, numpy.clip, None, None)
    asked = ask(numpy.clip, [model(t, array), *models], {})
    if asked.dtype.kind not in "iuf":
        refuse(numpy.clip, f"of {asked.dtype}")
    tensor = converted(t, array.tensor(t), asked.dtype)
    for bound, limits in zip(bounds, (torch.maximum, torch.minimum), strict=True):
        if bound is not None:
            tensor = apply(t, limits, tensor, bound.in_loop(t, asked.dtype, as_tensor=True))
    return result(t, tensor, asked)


def _is_none(value: Value) -> bool:
    return value.is_constant() and value.constant() is None


@computes(numpy.round, numpy.around, ARRAY.round)
def round(t: Tracer, a: Value, decimals: Value = ZERO, out: Value = NONE) -> Value:
    array, places = array_of(t, a, numpy.round), constant(t, decimals, numpy.round)
    if not _is_none(out) or array.dtype().kind not in "iuf" or type(places) is not int or places < 0:
        refuse(numpy.round, "with these arguments")
    asked = ask(numpy.round, [model(t, array), places], {})
    if array.dtype().kind in _INTEGERS:
        return array
    tensor = array.tensor(t)
    if places:
        scale = array.dtype().type(10**places).item()
        scaled = apply(t, torch.round, apply(t, torch.mul, tensor, scale))
        return result(t, apply(t, torch.div, scaled, scale), asked)
    return result(t, apply(t, torch.round, tensor), asked)


# subscripts


def _key(t: Tracer, array: ArrayValue, key: Value) -> tuple[Value, list[Value]]:
    """A subscript for a tensor, and its parts; lists are arrays."""
    key = key.realise(t)
    is_several = isinstance(key, TupleValue) or (key.is_constant() and type(key.constant()) is tuple)
    items = t.operators.collect(key) if is_several else [key]
    given = [array_of(t, item, ARRAY.__getitem__) if isinstance(item, ListValue) else item for item in items]
    parts = without_masks(given, array.tensor(t).fake.shape)
    found = [_part(t, part) for part in parts]
    return (t.wrapper.sequence(found, tuple) if is_several else found[0]), parts


def _part(t: Tracer, part: Value) -> Value:
    if isinstance(part, ArrayValue):
        if part.dtype().kind not in "biu" or part.is_scalar or not part.tensor(t).fake.ndim:
            refuse(getitem, "by such an array")
        tensor = part.tensor(t)
        return tensor if part.dtype().kind == "b" else converted(t, tensor, numpy.dtype(numpy.int64))
    if isinstance(part, SliceValue) or (part.is_constant() and type(part.constant()) is slice):
        return part
    if isinstance(part, SymbolicValue):
        return ConstantValue(part.concrete(t))
    if part.is_constant():
        found = part.constant()
        if found is None or found is ... or type(found) is int:
            return part
        if type(found) in SCALARS and numpy.dtype(type(found)).kind in _INTEGERS:
            return ConstantValue(found.item())
    refuse(getitem, f"by {part.describe()}")


@computes(ARRAY.__getitem__)
def get_item(t: Tracer, a: Value, key: Value) -> Value:
    array = array_of(t, a, ARRAY.__getitem__)
    if array.is_scalar:
        refuse(getitem, "of a scalar")
    place, parts = _key(t, array, key)
    tensor = array.tensor(t)
    found = t.recorder.record("call_function", getitem, [tensor, place], {})
    if not isinstance(found, TensorValue):
        refuse(getitem, "of something else")
    if any(isinstance(part, ArrayValue) for part in parts):
        small = [_small(t, part) for part in parts]
        return result(t, found, ask(getitem, [model(t, array), tuple(small) if len(small) > 1 else small[0]], {}))
    if not found.fake.ndim and not any(part.is_constant() and part.constant() is ... for part in parts):
        return ArrayValue(apply(t, torch.Tensor.clone, found), is_scalar=True)
    return ArrayValue(found)


def _memory(tensor: Value) -> int:
    assert isinstance(tensor, TensorValue)
    return tensor.fake.untyped_storage()._cdata


def _small(t: Tracer, part: Value) -> Any:
    """Part of a subscript for a model: positions are those that it has."""
    if isinstance(part, ArrayValue):
        small = model(t, part)
        if small.dtype.kind == "b":
            refuse(getitem, "by a mask")
        return numpy.zeros_like(small)
    if isinstance(part, SliceValue) or (part.is_constant() and type(part.constant()) is slice):
        return slice(None)
    return part.constant() if part.is_constant() and (part.constant() is None or part.constant() is ...) else 0


@computes(ARRAY.__setitem__)
def set_item(t: Tracer, a: Value, key: Value, value: Value) -> Value:
    array, written = array_of(t, a, ARRAY.__setitem__), operand(t, value, ARRAY.__setitem__)
    if array.is_scalar:
        refuse(setitem, "of a scalar")
    place, _ = _key(t, array, key)
    if written.array is None:
        # Whether the number fits, and what it becomes, NumPy says.
        ask(numpy.asarray, [written.number], {"dtype": array.dtype()})
    watch_errors(t)
    tensor = written.in_loop(t, array.dtype(), as_tensor=True)
    if _memory(tensor) == _memory(array.tensor(t)):
        tensor = apply(t, torch.Tensor.clone, tensor)
    t.recorder.record("call_function", setitem, [array.tensor(t), place, tensor], {})
    return NONE
