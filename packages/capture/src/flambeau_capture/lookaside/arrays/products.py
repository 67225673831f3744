"""Products of matrices and vectors, sums of products, norms.

In: calls. Out: arrays; the dtype is NumPy's, the sums are torch's, in an order of their own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from ...numpy_classes import ARRAY, DTYPES, numpy
from ...values.constants import FALSE, NONE
from .calls import computes, constant, refuse
from .operands import Operand, apply, array_of, ask, converted, model, operand, result, stand_in, watch_errors

if TYPE_CHECKING:
    from ...values.base import Tracer, Value
    from ...values.tensor import TensorValue

_KINDS = "iufc"


def _product(t: Tracer, function: Any, operands: list[Operand], compute: Any, *args: Any) -> Value:
    """A function of arrays of one dtype."""
    models = [stand_in(t, each) for each in operands]
    asked = ask(function, [*args, *models], {})
    if asked.dtype not in DTYPES or asked.dtype.kind not in _KINDS:
        refuse(function, f"of {asked.dtype}")
    watch_errors(t)
    tensors = [each.in_loop(t, asked.dtype, as_tensor=True) for each in operands]
    return result(t, apply(t, compute, *args, *tensors), asked)


def _ranks(t: Tracer, operands: list[Operand], function: Any) -> list[int]:
    if any(each.array is None or each.array.is_scalar for each in operands):
        refuse(function, "of a scalar")
    return [each.array.tensor(t).fake.ndim for each in operands if each.array is not None]


def _product_of_ranked(t: Tracer, function: Any, a: Value, b: Value, compute: Any) -> Value:
    """A product of two arrays that both have dimensions."""
    operands = [operand(t, value, function) for value in (a, b)]
    if 0 in _ranks(t, operands, function):
        refuse(function, "of an array without dimensions")
    return _product(t, function, operands, compute)


@computes(numpy.matmul)
def matmul(t: Tracer, a: Value, b: Value) -> Value:
    return _product_of_ranked(t, numpy.matmul, a, b, torch.matmul)


@computes(numpy.dot, ARRAY.dot)
def dot(t: Tracer, a: Value, b: Value) -> Value:
    operands = [operand(t, value, numpy.dot) for value in (a, b)]
    first, second = _ranks(t, operands, numpy.dot)
    if not first or not second or second > 2:
        refuse(numpy.dot, "of arrays of these dimensions")
    return _product(t, numpy.dot, operands, torch.matmul)


@computes(numpy.inner)
def inner(t: Tracer, a: Value, b: Value) -> Value:
    return _product_of_ranked(t, numpy.inner, a, b, torch.inner)


@computes(numpy.outer)
def outer(t: Tracer, a: Value, b: Value) -> Value:
    operands = [operand(t, value, numpy.outer) for value in (a, b)]
    if _ranks(t, operands, numpy.outer) != [1, 1]:
        refuse(numpy.outer, "of arrays of these dimensions")
    return _product(t, numpy.outer, operands, torch.outer)


@computes(numpy.tensordot)
def tensordot(t: Tracer, a: Value, b: Value, axes: Value) -> Value:
    places = constant(t, axes, numpy.tensordot)
    operands = [operand(t, value, numpy.tensordot) for value in (a, b)]
    models = [stand_in(t, each) for each in operands]
    asked = ask(numpy.tensordot, [*models, places], {})
    if asked.dtype.kind not in "f" or type(places) is not int:
        refuse(numpy.tensordot, "with these arguments")
    watch_errors(t)
    tensors = [each.in_loop(t, asked.dtype, as_tensor=True) for each in operands]
    return result(t, apply(t, torch.tensordot, *tensors, dims=places), asked)


@computes(numpy.einsum)
def einsum(t: Tracer, subscripts: Value, *operands: Value) -> Value:
    text = constant(t, subscripts, numpy.einsum)
    if not isinstance(text, str) or len(operands) < 2:
        refuse(numpy.einsum, "of one array, which may give a view")
    return _product(t, numpy.einsum, [operand(t, value, numpy.einsum) for value in operands], torch.einsum, text)


@computes(ARRAY.trace, numpy.trace)
def trace(t: Tracer, a: Value) -> Value:
    array = array_of(t, a, numpy.trace)
    if array.tensor(t).fake.ndim != 2 or array.dtype().kind not in "iuf":
        refuse(numpy.trace, "of such an array")
    asked = ask(numpy.trace, [model(t, array)], {})
    diagonal = apply(t, torch.diagonal, array.tensor(t))
    return result(t, apply(t, torch.sum, diagonal, dtype=DTYPES[asked.dtype]), asked)


@computes(numpy.linalg.norm)
def norm(t: Tracer, x: Value, ord: Value = NONE, axis: Value = NONE, keepdims: Value = FALSE) -> Value:
    array, kind, place = array_of(t, x, numpy.linalg.norm), *(constant(t, v, numpy.linalg.norm) for v in (ord, axis))
    keeps = bool(constant(t, keepdims, numpy.linalg.norm))
    asked = ask(numpy.linalg.norm, [model(t, array)], {"ord": kind, "axis": place, "keepdims": keeps})
    rank = array.tensor(t).fake.ndim
    is_vector = type(place) is int or rank == 1 or (kind is None and place is None)
    if array.dtype().kind not in "biuf" or not rank or not is_vector or kind not in (None, 1, 2, numpy.inf, -numpy.inf):
        refuse(numpy.linalg.norm, "with these arguments")
    if asked.dtype not in DTYPES or array.dtype() == numpy.dtype(numpy.float16):
        refuse(numpy.linalg.norm, f"of {array.dtype()}")
    watch_errors(t)
    tensor = converted(t, array.tensor(t), asked.dtype)
    which = 2 if kind is None else float(kind)
    return result(t, _norm(t, tensor, which, place, keeps), asked)


def _norm(t: Tracer, tensor: TensorValue, kind: float, place: Any, keeps: bool) -> TensorValue:
    return apply(t, torch.linalg.vector_norm, tensor, kind, dim=place, keepdim=keeps)
