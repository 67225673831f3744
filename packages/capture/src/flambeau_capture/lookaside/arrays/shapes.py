"""Views of arrays with other dimensions, and arrays put together.

In: calls of functions and of methods. Out: views where NumPy gives views, new arrays where it copies.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from ...numpy_classes import ARRAY, DTYPES, numpy
from ...signals import GraphBreak
from ...values.constants import NONE, ZERO, ConstantValue
from ...values.ndarrays import ArrayValue, call_numpy
from ...values.sequences import ListValue, TupleValue
from ...values.symbolic import SymbolicValue
from ...values.tensor import TensorValue
from .calls import computes, constant, refuse
from .operands import apply, array_of, ask, model, operand, result, stand_in

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...values.base import Tracer, Value

_C = ConstantValue("C")


def _view(t: Tracer, array: ArrayValue, function: Any, *args: Any) -> ArrayValue:
    return ArrayValue(apply(t, function, array.tensor(t), *args))


def _whole(t: Tracer, a: Value, function: Any) -> ArrayValue:
    """An array that is no scalar: what scalars give here are scalars, or new arrays."""
    array = array_of(t, a, function)
    if array.is_scalar:
        refuse(function, "of a scalar")
    return array


# the same elements in another shape


def _sizes(t: Tracer, shape: Sequence[Value]) -> list[Value]:
    """The sizes that `reshape` is given, apart or in a sequence; some may be symbolic."""
    if len(shape) == 1 and isinstance(shape[0], (TupleValue, ListValue)):
        shape = [item.realise(t) for item in shape[0].items]
    elif len(shape) == 1 and shape[0].is_constant() and isinstance(shape[0].constant(), tuple):
        shape = [ConstantValue(part) for part in shape[0].constant()]
    sizes: list[Value] = []
    for size in shape:
        if isinstance(size, SymbolicValue):
            sizes.append(size)
        elif size.is_constant() and isinstance(size.constant(), (int, numpy.integer)):
            sizes.append(ConstantValue(int(size.constant())))
        else:
            refuse(numpy.reshape, "to such a shape")
    return sizes


def _reshaped(t: Tracer, a: Value, shape: Sequence[Value], order: Value) -> Value:
    array = _whole(t, a, numpy.reshape)
    if constant(t, order, numpy.reshape) != "C":
        refuse(numpy.reshape, "in an order of memory")
    sizes = t.wrapper.sequence(_sizes(t, shape), tuple)
    return ArrayValue(apply(t, torch.Tensor.reshape, array.tensor(t), sizes))


@computes(ARRAY.reshape)
def reshape_method(t: Tracer, a: Value, *shape: Value, order: Value = _C) -> Value:
    return _reshaped(t, a, shape, order)


@computes(numpy.reshape)
def reshape(t: Tracer, a: Value, shape: Value, order: Value = _C) -> Value:
    return _reshaped(t, a, [shape], order)


@computes(ARRAY.ravel, numpy.ravel)
def ravel(t: Tracer, a: Value, order: Value = _C) -> Value:
    array = _whole(t, a, numpy.ravel)
    if constant(t, order, numpy.ravel) != "C":
        refuse(numpy.ravel, "in an order of memory")
    tensor = array.tensor(t)
    if not tensor.fake.is_contiguous():
        tensor = apply(t, torch.Tensor.contiguous, tensor)
    return ArrayValue(apply(t, torch.Tensor.view, tensor, (-1,)))


@computes(ARRAY.flatten)
def flatten(t: Tracer, a: Value, order: Value = _C) -> Value:
    array = _whole(t, a, ARRAY.flatten)
    if constant(t, order, ARRAY.flatten) != "C":
        refuse(ARRAY.flatten, "in an order of memory")
    copy = apply(t, torch.Tensor.clone, array.tensor(t), memory_format=torch.contiguous_format)
    return ArrayValue(apply(t, torch.Tensor.view, copy, (-1,)))


@computes(ARRAY.squeeze, numpy.squeeze)
def squeeze(t: Tracer, a: Value, axis: Value = NONE) -> Value:
    array, axes = _whole(t, a, numpy.squeeze), constant(t, axis, numpy.squeeze)
    tensor = array.tensor(t)
    sizes = tensor.fake.shape
    if axes is None:
        axes = tuple(d for d, size in enumerate(sizes) if t.graph.decide(size == 1))
        if not axes:
            return array
    axes = axes if isinstance(axes, tuple) else (axes,)
    if not all(type(d) is int and -len(sizes) <= d < len(sizes) and t.graph.decide(sizes[d] == 1) for d in axes):
        raise GraphBreak("operator-error", "numpy.squeeze of other sizes than 1")
    return ArrayValue(apply(t, torch.squeeze, tensor, axes))


@computes(numpy.expand_dims)
def expand_dims(t: Tracer, a: Value, axis: Value) -> Value:
    array, axes = _whole(t, a, numpy.expand_dims), constant(t, axis, numpy.expand_dims)
    if type(axes) is not int:
        refuse(numpy.expand_dims, "by several axes")
    return _view(t, array, torch.unsqueeze, axes)


# the dimensions in another order


def _permuted(t: Tracer, array: ArrayValue, function: Any, *args: Any) -> ArrayValue:
    """A view with the dimensions in the order that NumPy gives them: where each goes, the strides of a model tell."""
    rank = array.tensor(t).fake.ndim
    marked = numpy.ones(tuple(range(2, 2 + rank)), numpy.bool_)
    order = [size - 2 for size in ask(function, [marked, *args], {}).shape]
    return _view(t, array, torch.permute, order)


@computes(ARRAY.transpose)
def transpose_method(t: Tracer, a: Value, *axes: Value) -> Value:
    array = _whole(t, a, numpy.transpose)
    return _permuted(t, array, ARRAY.transpose, *(constant(t, axis, numpy.transpose) for axis in axes))


@computes(numpy.transpose)
def transpose(t: Tracer, a: Value, axes: Value = NONE) -> Value:
    return _permuted(t, _whole(t, a, numpy.transpose), numpy.transpose, constant(t, axes, numpy.transpose))


def _of_two(target: Any, function: Any) -> None:
    @computes(target)
    def rule(t: Tracer, a: Value, first: Value, second: Value) -> Value:
        places = constant(t, first, function), constant(t, second, function)
        return _permuted(t, _whole(t, a, function), function, *places)


_of_two(ARRAY.swapaxes, numpy.swapaxes)
_of_two(numpy.swapaxes, numpy.swapaxes)
_of_two(numpy.moveaxis, numpy.moveaxis)


@computes(ARRAY.T)
def reversed_dimensions(t: Tracer, a: Value) -> Value:
    return a if _is_scalar(a) else _permuted(t, _whole(t, a, numpy.transpose), numpy.transpose)


@computes(ARRAY.mT)
def matrix_transpose(t: Tracer, a: Value) -> Value:
    return _permuted(t, _whole(t, a, numpy.transpose), numpy.matrix_transpose)


def _is_scalar(a: Value) -> bool:
    return isinstance(a, ArrayValue) and a.is_scalar


@computes(ARRAY.real, numpy.real)
def real(t: Tracer, a: Value) -> Value:
    array = _whole(t, a, numpy.real)
    return _view(t, array, torch.real) if array.dtype().kind == "c" else array


@computes(ARRAY.imag, numpy.imag)
def imag(t: Tracer, a: Value) -> Value:
    array = _whole(t, a, numpy.imag)
    if array.dtype().kind != "c":
        refuse(numpy.imag, "of real numbers, which may not be written")
    return _view(t, array, torch.imag)


# arrays together


def _parts(t: Tracer, arrays: Value, function: Any) -> list[Value]:
    if not isinstance(arrays, (TupleValue, ListValue)):
        refuse(function, "of what is no sequence")
    return [item.realise(t) for item in arrays.items]


def _joined(t: Tracer, function: Any, arrays: Value, compute: Any, *args: Any) -> Value:
    """Arrays put together by one of torch's functions, in the dtype that all have in NumPy."""
    parts = [operand(t, part, function) for part in _parts(t, arrays, function)]
    asked = ask(function, [[stand_in(t, part) for part in parts], *args], {})
    if asked.dtype not in DTYPES:
        refuse(function, f"of {asked.dtype}")
    tensors = [part.in_loop(t, asked.dtype, as_tensor=True) for part in parts]
    return result(t, apply(t, compute, tensors, *args), asked)


@computes(numpy.concatenate)
def concatenate(t: Tracer, arrays: Value, axis: Value = ZERO) -> Value:
    place = constant(t, axis, numpy.concatenate)
    if type(place) is not int:
        refuse(numpy.concatenate, "of flattened arrays")
    return _joined(t, numpy.concatenate, arrays, torch.cat, place)


@computes(numpy.stack)
def stack(t: Tracer, arrays: Value, axis: Value = ZERO) -> Value:
    return _joined(t, numpy.stack, arrays, torch.stack, constant(t, axis, numpy.stack))


def _stacking(function: Any, compute: Any) -> None:
    @computes(function)
    def rule(t: Tracer, tup: Value) -> Value:
        return _joined(t, function, tup, compute)


_stacking(numpy.vstack, torch.vstack)
_stacking(numpy.hstack, torch.hstack)
_stacking(numpy.dstack, torch.dstack)
_stacking(numpy.column_stack, torch.column_stack)


def _splitting(function: Any, *, exact: bool) -> None:
    """`numpy.split` and `numpy.array_split`: views."""

    @computes(function)
    def rule(t: Tracer, ary: Value, indices_or_sections: Value, axis: Value = ZERO) -> Value:
        array, where = _whole(t, ary, function), constant(t, indices_or_sections, function)
        place = constant(t, axis, function)
        if exact and type(where) is int:
            tensor = array.tensor(t)
            if where <= 0 or not t.graph.decide(tensor.fake.shape[place] % where == 0):
                raise GraphBreak("operator-error", "numpy.split into unequal parts")
        if type(where) is not int and not all(type(index) is int for index in where):
            refuse(function, "at such places")
        found = t.recorder.record(
            "call_function",
            torch.tensor_split,
            [
                array.tensor(t),
                ConstantValue(where) if type(where) is int else t.wrapper.sequence([*map(ConstantValue, where)], tuple),
            ],
            {"dim": ConstantValue(place)},
        )
        parts = list(t.operators.iterate_all(found))
        return t.wrapper.sequence([ArrayValue(part) for part in parts if isinstance(part, TensorValue)], list)


_splitting(numpy.split, exact=True)
_splitting(numpy.array_split, exact=False)


# elements moved or repeated


@computes(numpy.roll)
def roll(t: Tracer, a: Value, shift: Value, axis: Value = NONE) -> Value:
    array, places, axes = _whole(t, a, numpy.roll), constant(t, shift, numpy.roll), constant(t, axis, numpy.roll)
    if type(places) is not int or (axes is not None and type(axes) is not int):
        refuse(numpy.roll, "along several axes")
    asked = ask(numpy.roll, [model(t, array), places, axes], {})
    return result(t, apply(t, torch.roll, array.tensor(t), places, *(() if axes is None else (axes,))), asked)


@computes(numpy.tile)
def tile(t: Tracer, A: Value, reps: Value) -> Value:
    array, times = _whole(t, A, numpy.tile), constant(t, reps, numpy.tile)
    times = times if isinstance(times, tuple) else (times,)
    if not all(type(each) is int for each in times):
        refuse(numpy.tile, "so many times")
    return ArrayValue(apply(t, torch.Tensor.contiguous, apply(t, torch.Tensor.repeat, *_with_rank(t, array, times))))


def _with_rank(t: Tracer, array: ArrayValue, times: tuple[int, ...]) -> tuple[TensorValue, tuple[int, ...]]:
    tensor = array.tensor(t)
    return tensor, (1,) * (tensor.fake.ndim - len(times)) + times


@computes(numpy.repeat, ARRAY.repeat)
def repeat(t: Tracer, a: Value, repeats: Value, axis: Value = NONE) -> Value:
    array, times, place = (
        _whole(t, a, numpy.repeat),
        constant(t, repeats, numpy.repeat),
        constant(t, axis, numpy.repeat),
    )
    if type(times) is not int:
        refuse(numpy.repeat, "each so many times")
    asked = ask(numpy.repeat, [model(t, array), 2, place], {})
    return result(t, apply(t, torch.repeat_interleave, array.tensor(t), times, dim=place), asked)


def _triangle(function: Any, compute: Any) -> None:
    @computes(function)
    def rule(t: Tracer, m: Value, k: Value = ZERO) -> Value:
        array, diagonal = _whole(t, m, function), constant(t, k, function)
        if type(diagonal) is not int or array.tensor(t).fake.ndim < 2:
            refuse(function, "with these arguments")
        asked = ask(function, [model(t, array), diagonal], {})
        return result(t, apply(t, compute, array.tensor(t), diagonal), asked)


_triangle(numpy.tril, torch.tril)
_triangle(numpy.triu, torch.triu)


def _at_least(function: Any, compute: Any, rank: int) -> None:
    @computes(function)
    def rule(t: Tracer, a: Value) -> Value:
        array = _whole(t, a, function)
        return array if array.tensor(t).fake.ndim >= rank else _view(t, array, compute)


_at_least(numpy.atleast_1d, torch.atleast_1d, 1)
_at_least(numpy.atleast_2d, torch.atleast_2d, 2)


def _fact(function: Any, name: str) -> None:
    @computes(function)
    def rule(t: Tracer, a: Value) -> Value:
        return array_of(t, a, function).get_attribute(t, name)


_fact(numpy.shape, "shape")
_fact(numpy.ndim, "ndim")
_fact(numpy.size, "size")


@computes(numpy.take, ARRAY.take)
def take(t: Tracer, a: Value, indices: Value, axis: Value) -> Value:
    array, place = _whole(t, a, numpy.take), constant(t, axis, numpy.take)
    rank = array.tensor(t).fake.ndim
    if type(place) is not int or not -rank <= place < rank:
        refuse(numpy.take, "with these arguments")
    before: list[Value] = [ConstantValue(slice(None))] * (place % rank)
    chosen = ArrayValue(array_of(t, indices, numpy.take).tensor(t))
    if not chosen.tensor(t).fake.ndim or chosen.dtype().kind not in "iu":
        refuse(numpy.take, "of one element")
    found = call_numpy(t, ARRAY.__getitem__, [array, t.wrapper.sequence([*before, chosen], tuple)], {})
    assert isinstance(found, ArrayValue)
    asked = ask(numpy.take, [model(t, array), numpy.zeros_like(model(t, chosen)), place], {})
    return result(t, found.tensor(t), asked)
