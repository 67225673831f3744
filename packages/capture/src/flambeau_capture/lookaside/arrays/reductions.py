"""Sums, means, extremes, running sums and sorts along axes.

In: calls of functions and of methods. Out: arrays, and scalars where nothing is left of the dimensions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from ...numpy_classes import ARRAY, DTYPES, numpy
from ...signals import GraphBreak
from ...values.constants import FALSE, LAST, NONE, ONE, ZERO, ConstantValue
from ...values.ndarrays import ArrayValue
from ...values.tensor import TensorValue
from .calls import NO_VALUE, computes, constant, refuse
from .contents import dtype_of
from .operands import apply, array_of, ask, converted, hint, model, result, watch_errors, write

if TYPE_CHECKING:
    from ...values.base import Tracer, Value

_ABSENT = (None, NO_VALUE)
_FLOAT = numpy.dtype(numpy.float64)
_HALF = numpy.dtype(numpy.float16)
_BOOL = numpy.dtype(bool)


def _axes(t: Tracer, axis: Value, array: ArrayValue, function: Any) -> tuple[int, ...]:
    """The dimensions that a reduction goes over."""
    found, rank = constant(t, axis, function), array.tensor(t).fake.ndim
    if found is None:
        return tuple(range(rank))
    given = found if type(found) is tuple else (found,)
    if not all(isinstance(each, (int, numpy.integer)) and -rank <= each < rank for each in given):
        raise GraphBreak("operator-error", f"{function.__name__} over axes that are not there")
    axes = tuple(int(each) % rank for each in given)
    if len(set(axes)) < len(axes):
        raise GraphBreak("operator-error", f"{function.__name__} over an axis twice")
    return axes


def _is_absent(value: Value) -> bool:
    return value.is_constant() and any(value.constant() is absent for absent in _ABSENT)


def _count(array: ArrayValue, t: Tracer, axes: tuple[int, ...]) -> int:
    """How many elements go into one of the result."""
    sizes = [hint(array.tensor(t).fake.shape[axis]) for axis in axes]
    count = 1
    for size in sizes:
        count *= size
    return count


def _reduction(function: Any, *targets: Any, kinds: str, compute: Any, empty: bool = True, typed: bool = True) -> None:
    """Register a reduction: `compute(tracer, tensor, axes, keeps, dtype of the result)`; `empty`: of no elements there is one too."""

    def reduce(
        t: Tracer, a: Value, axis: Value, dtype: Value | None, out: Value, keepdims: Value, extra: dict[str, Any]
    ) -> Value:
        array = array_of(t, a, function)
        axes = _axes(t, axis, array, function)
        wanted = dtype_of(t, dtype, function)
        keeps = not _is_absent(keepdims) and bool(constant(t, keepdims, function))
        given = dict(extra, axis=constant(t, axis, function), keepdims=keeps)
        asked = ask(function, [model(t, array)], {**given, "dtype": wanted} if typed else given)
        if array.dtype().kind not in kinds or asked.dtype not in DTYPES or not _is_absent(out):
            refuse(function, f"of {array.dtype()}")
        if not empty and not _count(array, t, axes):
            refuse(function, "of no elements")
        watch_errors(t)
        tensor = compute(t, array.tensor(t), axes, keeps, wanted or asked.dtype, **extra)
        return result(t, tensor, asked)

    if typed:

        @computes(*targets)
        def with_dtype(
            t: Tracer, a: Value, axis: Value = NONE, dtype: Value = NONE, out: Value = NONE, keepdims: Value = FALSE
        ) -> Value:
            return reduce(t, a, axis, dtype, out, keepdims, {})
    else:

        @computes(*targets)
        def without(t: Tracer, a: Value, axis: Value = NONE, out: Value = NONE, keepdims: Value = FALSE) -> Value:
            return reduce(t, a, axis, None, out, keepdims, {})


def _sum(t: Tracer, tensor: TensorValue, axes: tuple[int, ...], keeps: bool, dtype: Any) -> TensorValue:
    if not axes:
        return apply(t, torch.Tensor.clone, converted(t, tensor, dtype))
    return apply(t, torch.sum, tensor, axes, keepdim=keeps, dtype=DTYPES[dtype])


def _prod(t: Tracer, tensor: TensorValue, axes: tuple[int, ...], keeps: bool, dtype: Any) -> TensorValue:
    found = converted(t, tensor, dtype)
    for axis in sorted(axes, reverse=True):
        found = apply(t, torch.prod, found, axis, keepdim=keeps)
    return found if axes else apply(t, torch.Tensor.clone, found)


def _mean(t: Tracer, tensor: TensorValue, axes: tuple[int, ...], keeps: bool, dtype: Any) -> TensorValue:
    if not axes:
        return apply(t, torch.Tensor.clone, converted(t, tensor, dtype))
    return apply(t, torch.mean, converted(t, tensor, dtype), axes, keepdim=keeps)


def _extreme(function: Any, of_truths: Any) -> Any:
    def compute(t: Tracer, tensor: TensorValue, axes: tuple[int, ...], keeps: bool, dtype: Any) -> TensorValue:
        if not axes:
            return apply(t, torch.Tensor.clone, tensor)
        if dtype == _BOOL:
            return apply(t, of_truths, tensor, axes, keepdim=keeps)
        return apply(t, function, tensor, axes, keepdim=keeps)

    return compute


def _truth(function: Any) -> Any:
    def compute(t: Tracer, tensor: TensorValue, axes: tuple[int, ...], keeps: bool, dtype: Any) -> TensorValue:
        truths = converted(t, tensor, _BOOL)
        return apply(t, function, truths, axes, keepdim=keeps) if axes else apply(t, torch.Tensor.clone, truths)

    return compute


def _count_nonzero(t: Tracer, tensor: TensorValue, axes: tuple[int, ...], keeps: bool, dtype: Any) -> TensorValue:
    truths = converted(t, tensor, _BOOL)
    return apply(t, torch.sum, truths, axes, keepdim=keeps, dtype=torch.int64) if axes else converted(t, truths, dtype)


_reduction(numpy.sum, numpy.sum, ARRAY.sum, kinds="biufc", compute=_sum)
_reduction(numpy.prod, numpy.prod, ARRAY.prod, kinds="biuf", compute=_prod)
_reduction(numpy.mean, numpy.mean, ARRAY.mean, kinds="biuf", compute=_mean, empty=False)
for _names, _compute in (
    ((numpy.max, numpy.amax, ARRAY.max), _extreme(torch.amax, torch.any)),
    ((numpy.min, numpy.amin, ARRAY.min), _extreme(torch.amin, torch.all)),
):
    _reduction(_names[0], *_names, kinds="biuf", compute=_compute, empty=False, typed=False)
_reduction(numpy.any, numpy.any, ARRAY.any, kinds="biufc", compute=_truth(torch.any), typed=False)
_reduction(numpy.all, numpy.all, ARRAY.all, kinds="biufc", compute=_truth(torch.all), typed=False)


@computes(numpy.count_nonzero)
def count_nonzero(t: Tracer, a: Value, axis: Value = NONE, *, keepdims: Value = FALSE) -> Value:
    array = array_of(t, a, numpy.count_nonzero)
    axes = _axes(t, axis, array, numpy.count_nonzero)
    given = {
        "axis": constant(t, axis, numpy.count_nonzero),
        "keepdims": bool(constant(t, keepdims, numpy.count_nonzero)),
    }
    asked = ask(numpy.count_nonzero, [model(t, array)], given)
    if type(asked) is int:
        refuse(numpy.count_nonzero, "gives a number of Python's")
    return result(t, _count_nonzero(t, array.tensor(t), axes, given["keepdims"], asked.dtype), asked)


def _spread(function: Any, method: Any, compute: Any) -> None:
    """`numpy.var` and `numpy.std`."""

    @computes(function, method)
    def rule(
        t: Tracer, a: Value, axis: Value = NONE, dtype: Value = NONE, out: Value = NONE, ddof: Value = ZERO, keepdims: Value = FALSE
    ) -> Value:  # fmt: skip
        array, wanted = array_of(t, a, function), dtype_of(t, dtype, function)
        axes, free = _axes(t, axis, array, function), constant(t, ddof, function)
        keeps = not _is_absent(keepdims) and bool(constant(t, keepdims, function))
        given = {"axis": constant(t, axis, function), "keepdims": keeps, "dtype": wanted}
        asked = ask(function, [model(t, array)], given)
        if array.dtype().kind not in "biuf" or wanted is not None or not _is_absent(out) or type(free) is not int:
            refuse(function, "with these arguments")
        if _count(array, t, axes) - free <= 0 or not axes:
            refuse(function, "of too few elements")
        watch_errors(t)
        exact = numpy.dtype(numpy.float32) if asked.dtype == _HALF else asked.dtype
        tensor = converted(t, array.tensor(t), exact)
        return result(t, apply(t, compute, tensor, axes, correction=free, keepdim=keeps), asked)


_spread(numpy.var, ARRAY.var, torch.var)
_spread(numpy.std, ARRAY.std, torch.std)


def _position(function: Any, method: Any, compute: Any) -> None:
    """`numpy.argmax` and `numpy.argmin`: the first of equal ones, or of nans."""

    @computes(function, method)
    def rule(t: Tracer, a: Value, axis: Value = NONE, out: Value = NONE, *, keepdims: Value = FALSE) -> Value:
        array, place = array_of(t, a, function), constant(t, axis, function)
        keeps = not _is_absent(keepdims) and bool(constant(t, keepdims, function))
        asked = ask(function, [model(t, array)], {"axis": place, "keepdims": keeps})
        if array.dtype().kind not in "biuf" or not _is_absent(out) or (keeps and place is None):
            refuse(function, "with these arguments")
        axes = _axes(t, axis, array, function)
        if not _count(array, t, axes) or not axes:
            refuse(function, "of no elements")
        tensor = array.tensor(t)
        if array.dtype() == _BOOL:
            tensor = converted(t, tensor, numpy.dtype(numpy.uint8))
        return result(t, apply(t, compute, tensor, axes[0] if place is not None else None, keepdim=keeps), asked)


_position(numpy.argmax, ARRAY.argmax, torch.argmax)
_position(numpy.argmin, ARRAY.argmin, torch.argmin)


def _running(function: Any, method: Any, compute: Any) -> None:
    """`numpy.cumsum` and `numpy.cumprod`."""

    @computes(function, method)
    def rule(t: Tracer, a: Value, axis: Value = NONE, dtype: Value = NONE, out: Value = NONE) -> Value:
        array, wanted, place = array_of(t, a, function), dtype_of(t, dtype, function), constant(t, axis, function)
        asked = ask(function, [model(t, array)], {"axis": place, "dtype": wanted})
        if array.dtype().kind not in "biuf" or asked.dtype not in DTYPES or not _is_absent(out):
            refuse(function, "with these arguments")
        tensor = array.tensor(t)
        watch_errors(t)
        if place is None:
            tensor, place = apply(t, torch.Tensor.reshape, tensor, (-1,)), 0
        return result(t, apply(t, compute, tensor, place, dtype=DTYPES[asked.dtype]), asked)


_running(numpy.cumsum, ARRAY.cumsum, torch.cumsum)
_running(numpy.cumprod, ARRAY.cumprod, torch.cumprod)


@computes(numpy.sort)
def sort(t: Tracer, a: Value, axis: Value = LAST) -> Value:
    array, place = array_of(t, a, numpy.sort), constant(t, axis, numpy.sort)
    if array.dtype().kind not in "iuf" or not array.tensor(t).fake.ndim:
        refuse(numpy.sort, "of such an array")
    asked = ask(numpy.sort, [model(t, array)], {"axis": place})
    tensor = array.tensor(t)
    if place is None:
        tensor, place = apply(t, torch.Tensor.reshape, tensor, (-1,)), 0
    pair = t.recorder.record("call_function", torch.sort, [tensor, ConstantValue(place)], {})
    values, _ = t.operators.iterate_all(pair)
    assert isinstance(values, TensorValue)
    return result(t, values, asked)


@computes(ARRAY.sort)
def sort_in_place(t: Tracer, a: Value, axis: Value = LAST) -> Value:
    found = sort(t, a, axis)
    target = array_of(t, a, numpy.sort)
    assert isinstance(found, ArrayValue)
    write(t, target, found.tensor(t))
    return NONE


@computes(numpy.argsort, ARRAY.argsort)
def argsort(t: Tracer, a: Value, axis: Value = LAST, kind: Value = NONE) -> Value:
    array, place, how = (array_of(t, a, numpy.argsort), *(constant(t, v, numpy.argsort) for v in (axis, kind)))
    if array.dtype().kind not in "iuf" or not array.tensor(t).fake.ndim or how not in ("stable", "mergesort"):
        refuse(numpy.argsort, "in an order of equal elements that is its own")
    asked = ask(numpy.argsort, [model(t, array)], {"axis": place})
    tensor = array.tensor(t)
    if place is None:
        tensor, place = apply(t, torch.Tensor.reshape, tensor, (-1,)), 0
    return result(t, apply(t, torch.argsort, tensor, dim=place, stable=True), asked)


@computes(numpy.diff)
def diff(t: Tracer, a: Value, n: Value = ONE, axis: Value = LAST) -> Value:
    array, times, place = array_of(t, a, numpy.diff), constant(t, n, numpy.diff), constant(t, axis, numpy.diff)
    if array.dtype().kind not in "iufc" or type(times) is not int or times < 1 or type(place) is not int:
        refuse(numpy.diff, "with these arguments")
    tensor = array.tensor(t)
    if not tensor.fake.ndim or hint(tensor.fake.shape[place]) <= times:
        refuse(numpy.diff, "of few elements")
    asked = ask(numpy.diff, [model(t, array)], {"axis": place})
    watch_errors(t)
    return result(t, apply(t, torch.diff, tensor, times, place), asked)
