"""Tensors made from nothing: constants, ranges, diagonals.

In: sizes and numbers. Out: lazy tensors. Random numbers are library calls, so that torch's own generator advances as in eager.
"""

from __future__ import annotations

import functools
from typing import Any

import torch

from ..devices import device_of
from ..expr import Expr
from ..ir import scalar as sc
from ..ir.scalar import Scalar
from ..ops.aten import Formula, Treatment, declare
from .builder import Builder
from .registry import Decline, lowers
from .values import TensorValue, compute_dtype


def _filled(g: Builder, value: Any) -> TensorValue:
    out = g.out
    if out.layout is not torch.strided:
        raise Decline("layout")
    if isinstance(value, int | float) and not _fits(value, out.dtype):
        raise Decline("eager refuses a number that overflows")
    element = g.constant(value, out.dtype)
    result = g.lazy(g.out_sizes, out.dtype, out.device, lambda index: element)
    result.strides = g.wanted_strides(out)
    return result


def _fits(value: float, dtype: torch.dtype) -> bool:
    """Whether an integer type takes the number; a negative one may wrap around in an unsigned type."""
    if dtype.is_floating_point or dtype.is_complex or dtype is torch.bool:
        return True
    limits = torch.iinfo(dtype)
    return (limits.min or -limits.max) <= value <= limits.max


@lowers("full", "full_like", "new_full")
def full(g: Builder, like: Any, size_or_value: Any, *rest: Any, **options: Any) -> TensorValue:
    # full(size, value), full_like(tensor, value), new_full(tensor, size, value): the value comes last among positionals.
    return _filled(g, rest[0] if rest else size_or_value)


@lowers("zeros", "zeros_like", "new_zeros")
def zeros(g: Builder, *args: Any, **options: Any) -> TensorValue:
    return _filled(g, 0)


@lowers("ones", "ones_like", "new_ones")
def ones(g: Builder, *args: Any, **options: Any) -> TensorValue:
    return _filled(g, 1)


@lowers("empty.memory_format", "empty_like", "new_empty", "empty_strided", "new_empty_strided", "empty_permuted")
def empty(g: Builder, *args: Any, **options: Any) -> TensorValue:
    # Contents are undefined in eager; zero is one of the allowed contents and needs no memory. With deterministic algorithms eager fills them
    # with what is told from results, as `torch.utils.deterministic` says when it runs.
    if torch.are_deterministic_algorithms_enabled():
        raise Decline("deterministic algorithms are asked for: new memory is filled")
    return _filled(g, 0)


@lowers("scalar_tensor")
def scalar_tensor(g: Builder, value: Any, **options: Any) -> TensorValue:
    return _filled(g, value)


@lowers("fill.Scalar")
def fill(g: Builder, a: TensorValue, value: Any) -> TensorValue:
    return _filled(g, value)


@lowers("fill.Tensor")
def fill_tensor(g: Builder, a: TensorValue, value: TensorValue) -> TensorValue:
    return g.lazy(a.sizes, a.dtype, a.device, lambda index: g.convert(value.at(()), a.dtype))


@lowers("arange.start_step")
def arange_step(g: Builder, start: Any, end: Any, step: Any = 1, **options: Any) -> TensorValue:
    out = g.out
    if all(isinstance(v, int | Expr) for v in (start, step)):
        first, stride = g.expr(start), g.expr(step)
        return g.lazy(
            g.out_sizes, out.dtype, out.device, lambda i: g.convert(sc.index_value(first + i[0] * stride), out.dtype)
        )
    if not out.dtype.is_floating_point:
        raise Decline("integer range with float bounds")
    # Eager computes in double for float64 and in float32's accumulate type (double on the CPU) otherwise.
    wide = torch.float64 if device_of(out.device).eager.accumulates_in_double else compute_dtype(out.dtype)
    base, by = g.constant(start, wide), g.constant(step, wide)

    def at(index: tuple[Expr, ...]) -> Scalar:
        position = g.convert(sc.index_value(index[0]), wide)
        return g.convert(sc.op("add", base, sc.op("mul", position, by)), out.dtype)

    return g.lazy(g.out_sizes, out.dtype, out.device, at)


@lowers("arange")
def arange(g: Builder, end: Any, **options: Any) -> TensorValue:
    return arange_step(g, 0, end, 1)


@lowers("arange.start")
def arange_start(g: Builder, start: Any, end: Any, **options: Any) -> TensorValue:
    return arange_step(g, start, end, 1)


@lowers("eye", "eye.m")
def eye(g: Builder, *args: Any, **options: Any) -> TensorValue:
    out = g.out

    def at(index: tuple[Expr, ...]) -> Scalar:
        same = sc.op("eq", sc.index_value(index[0]), sc.index_value(index[1]))
        return g.convert(same, out.dtype)

    return g.lazy(g.out_sizes, out.dtype, out.device, at)


def _triangle(g: Builder, a: TensorValue, diagonal: Any, keep: str) -> TensorValue:
    offset = g.expr(diagonal)

    def at(index: tuple[Expr, ...]) -> Scalar:
        column, row = sc.index_value(index[-1]), sc.index_value(index[-2] + offset)
        return sc.op("where", sc.op(keep, column, row), a.at(index), g.constant(0, a.dtype))

    return g.lazy(a.sizes, a.dtype, a.device, at)


@lowers("tril")
def tril(g: Builder, a: TensorValue, diagonal: Any = 0) -> TensorValue:
    return _triangle(g, a, diagonal, "le")


@lowers("triu")
def triu(g: Builder, a: TensorValue, diagonal: Any = 0) -> TensorValue:
    return _triangle(g, a, diagonal, "ge")


def _but_rounded_steps(formula: Formula) -> Formula:
    """A formula that leaves integers and short floats on the CPU to the kernel, which steps from one vector of elements to the next: what it
    rounds each first element to, all of its vector have, and which those are depends on its registers."""

    @functools.wraps(formula)
    def decompose(*args: Any, dtype: torch.dtype | None = None, device: Any = None, **kwargs: Any) -> Any:
        result, place = dtype or torch.get_default_dtype(), torch.device(device or "cpu")
        if (
            device_of(place).eager.steps_in_vectors
            and not result.is_complex
            and result not in (torch.float32, torch.float64)
        ):
            return NotImplemented
        return formula(*args, dtype=dtype, device=device, **kwargs)

    return decompose


declare("linspace", "logspace", treatment=Treatment.DECOMPOSED, adapt=_but_rounded_steps)
