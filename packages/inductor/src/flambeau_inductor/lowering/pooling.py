"""Pools and their gradients, as loops over the elements of each window.

In: a tensor, whose last two or three dimensions are pooled. Out: a stored result, in whose kernel the few elements of each window are read and combined one after
the other, what they are computed from included (a bias, a ReLU) where that is cheaper than storing it. The index of a maximum is another result of the same kernel,
if anybody reads it. A gradient is gathered: each element asks the few windows that hold it. Pools of large windows stay with the library, whose
kernels have threads share a window.

As in eager: outside there is minus infinity (or the smallest integer), and a NaN is larger than everything. Of equal elements the index is that of the first, of
several NaNs that of the last. Without an index, which zero is the maximum of zeros of both signs is left open.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from operator import getitem
from typing import Any

import torch
from attrs import frozen

from ..devices import device_of
from ..expr import ONE, ZERO, Expr, as_expr
from ..ir import scalar as sc
from ..ir.layout import product
from ..ir.scalar import Scalar
from .builder import Builder
from .planes import Place, Plane, flat
from .reductions import divided
from .registry import Decline, lowers
from .values import Index, TensorValue, compute_dtype
from .windows import Span, Steps, all_of, shares

#: The most elements of a window that are read one after the other, and the most windows that an element asks for its gradient.
_MOST_TAPS = 32
#: With an index, all of them are compared with the maximum, and kept in registers until then.
_MOST_WITH_INDEX = 16
_WIDE = (torch.float32, torch.float64)
#: What one more array to read at each of a window's elements costs, in simple instructions: an address and a load from a cache.
_READ = 4


def _several(given: Any, n: int, default: Sequence[int] = ()) -> tuple[int, ...]:
    """An argument for each of ``n`` dimensions: one for all, or none at all."""
    values = tuple(given) if isinstance(given, tuple | list) else (given,)
    values = values or tuple(default)
    if not all(type(value) is int for value in values):
        raise Decline("a window of symbolic size")
    return values * n if len(values) == 1 else values


def _spatial(a: TensorValue, n: int) -> tuple[Expr, ...]:
    """The sizes of the plane. Raises ``Decline`` for types that eager's kernels may refuse."""
    if a.rank not in (n + 1, n + 2):
        raise Decline("form")
    floating, host = a.dtype.is_floating_point, device_of(a.device).is_host
    if a.dtype is torch.bool or (n == 3 and host and a.dtype not in _WIDE) or not (floating or host):
        raise Decline("a type that eager may refuse")
    return a.sizes[-n:]


def _check_taps(spans: Sequence[Span], most: int) -> None:
    if math.prod(span.taps for span in spans) > most:
        raise Decline("large windows")


def _are_whole(spans: Sequence[Span]) -> bool:
    """Whether the only window is large and holds the whole plane: then it is a reduction."""
    return all(span.is_whole for span in spans) and math.prod(span.taps for span in spans) > _MOST_TAPS


def ready(g: Builder, a: TensorValue, spans: Sequence[Span], *, largest: bool = False, share: float = 1.0) -> Plane:
    """The planes of ``a``, which is stored where computing its elements in each window costs more than that, or than a ``share`` of it."""
    n, times = len(spans), math.prod(span.rereads for span in spans)
    plane = Plane(a, n, largest=largest)
    if a.is_stored():
        return plane
    device, arrays = device_of(a.device), plane.arrays()
    work = plane.work(device.costs) + _READ * max(arrays - 1, 0)
    if arrays <= g.context.config.realize_reads_threshold and times * work <= share * device.storing:
        return plane
    g.ref(a)
    return Plane(a, n)


def _may_be_empty(spans: Sequence[Span]) -> bool:
    """Whether a window may hold nothing: all of its elements may be paddings where some between them are left out."""
    return any(isinstance(span, Steps) and span.padding > 0 and span.dilation > 1 for span in spans)


def _results(g: Builder) -> tuple[Any, ...]:
    assert g.node is not None
    val = g.node.meta["val"]
    return tuple(val) if isinstance(val, tuple | list) else (val,)


def _reads(g: Builder, result: int) -> bool:
    """Whether anybody reads a result of the current node."""
    assert g.node is not None
    readers = [user for user in g.node.users if user.target is not getitem or user.users]
    return any(user.target is not getitem or user.args[1] == result for user in readers)


def stored(g: Builder, val: Any, device: torch.device, at: Callable[[Index], Scalar]) -> TensorValue:
    result = g.lazy(g.exprs(val.shape), val.dtype, device, at)
    result.strides = g.wanted_strides(val)
    g.realise(result)
    return result


@frozen
class _Element:
    """One element of a window: its position in the plane, whether there is one, and what it is (``other`` where there is none)."""

    position: Expr
    exists: Scalar
    value: Scalar


def _places(spans: Sequence[Span], o: Index) -> list[Place]:
    """The places of window ``o``, in order."""
    found = []
    for taps in itertools.product(*(range(span.taps) for span in spans)):
        parts = list(zip(spans, o, taps, strict=True))
        exists = all_of(span.is_inside(i, k) for span, i, k in parts)
        found.append((tuple(span.place(i, k) for span, i, k in parts), exists))
    return found


def _lowest(dtype: torch.dtype) -> Scalar:
    return sc.constant(-math.inf if dtype.is_floating_point else torch.iinfo(dtype).min, dtype)


def _maximum(g: Builder, a: TensorValue, spans: Sequence[Span]) -> tuple[TensorValue | None, TensorValue | None]:
    compute = compute_dtype(a.dtype)
    n = len(spans)
    vals, wants_index = _results(g), _reads(g, 1)
    if not wants_index and _are_whole(spans):
        return g.reduce(a, range(a.rank - n, a.rank), "max", dtype=a.dtype, keepdim=True), None
    _check_taps(spans, _MOST_WITH_INDEX if wants_index else _MOST_TAPS)
    plane = ready(g, a, spans, largest=not wants_index and not _may_be_empty(spans))

    other = _lowest(compute)

    def largest(index: Index) -> Scalar:
        places = _places(spans, index[-n:])
        return g.convert(plane.combined(index[:-n], places, compute, other, _largest), a.dtype)

    def position(index: Index) -> Scalar:
        sizes = [span.size for span in spans]
        places = _places(spans, index[-n:])
        return _position(
            [_Element(flat(sizes, place[0]), place[1], plane.at(index[:-n], place, compute, other)) for place in places]
        )

    values = stored(g, vals[0], a.device, largest) if _reads(g, 0) else None
    indices = stored(g, vals[1], a.device, position) if wants_index else None
    return values, indices


def _largest(values: Sequence[Scalar]) -> Scalar:
    return functools.reduce(lambda a, b: sc.op("maximum", a, b), values)


def _sum(values: Sequence[Scalar]) -> Scalar:
    return functools.reduce(lambda a, b: sc.op("add", a, b), values)


def _position(elements: Sequence[_Element]) -> Scalar:
    """The position of the largest: of the last NaN, else of the first that equals the maximum (what does not exist may, too: minus infinity)."""
    best = _largest([element.value for element in elements])
    start = elements[0].position
    distances = [element.position - start for element in elements]
    # Distances in a window are numbers as narrow as the elements: selections take half the instructions.
    narrow = torch.int32 if distances[-1].hi < 2**31 else torch.int64
    found = sc.index_value(distances[0], narrow)
    if best.dtype.is_floating_point:
        for element, distance in zip(elements[1:], distances[1:], strict=True):
            found = sc.op("where", sc.op("isnan", element.value), sc.index_value(distance, narrow), found)
    for element, distance in zip(reversed(elements), reversed(distances), strict=True):
        here = sc.op("logical_and", sc.op("eq", element.value, best), element.exists)
        found = sc.op("where", here, sc.index_value(distance, narrow), found)
    return sc.op("add", sc.index_value(start), sc.op("to_dtype", found, dtype=torch.int64))


def _steps(
    a: TensorValue, n: int, counts: Sequence[Expr], kernel: Any, stride: Any, padding: Any, dilation: Any = 1
) -> list[Steps]:
    kernels = _several(kernel, n)
    rows = (kernels, _several(stride, n, kernels), _several(padding, n), _several(dilation, n))
    return [Steps(*facts) for facts in zip(_spatial(a, n), counts[-n:], *rows, strict=True)]


@lowers("max_pool2d_with_indices", "max_pool3d_with_indices")
def max_pool(
    g: Builder,
    a: TensorValue,
    kernel: Any,
    stride: Any = (),
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
) -> tuple[TensorValue | None, TensorValue | None]:
    spans = _steps(a, _dimensions(g), g.exprs(_results(g)[0].shape), kernel, stride, padding, dilation)
    if _reads(g, 1) and _may_be_empty(spans):
        # Then eager's index lies outside the plane.
        raise Decline("windows that may hold nothing")
    return _maximum(g, a, spans)


@lowers("adaptive_max_pool2d", "adaptive_max_pool3d")
def adaptive_max_pool(g: Builder, a: TensorValue, output_size: Any) -> tuple[TensorValue | None, TensorValue | None]:
    return _maximum(g, a, _parts(g, a, g.exprs(_results(g)[0].shape)))


def _parts(g: Builder, a: TensorValue, counts: Sequence[Expr]) -> list[Span]:
    """The windows of an adaptive pool, which gives so many results."""
    n = _dimensions(g)
    return [shares(*pair) for pair in zip(_spatial(a, n), counts[-n:], strict=True)]


def _dimensions(g: Builder) -> int:
    """How many dimensions the current op pools: its name says so."""
    assert g.node is not None
    return 3 if "pool3d" in str(g.node.target) else 2


def _average(
    g: Builder, a: TensorValue, spans: Sequence[Span], divisors: Callable[[Index], Sequence[Expr]]
) -> TensorValue:
    """The sum of each window, divided by each of the ``divisors`` in turn."""
    if not a.dtype.is_floating_point:
        raise Decline("not floating point")
    compute = compute_dtype(a.dtype)
    n = len(spans)

    def quotient(total: Scalar, o: Index) -> Scalar:
        for divisor in divisors(o):
            total = total if divisor is ONE else divided(g, total, divisor)
        return total

    if _are_whole(spans):
        whole = (ZERO,) * n
        dims = range(a.rank - n, a.rank)
        return g.reduce(a, dims, "sum", dtype=a.dtype, keepdim=True, finish=lambda total: quotient(total, whole))
    _check_taps(spans, _MOST_TAPS)
    plane = ready(g, a, spans)

    def at(index: Index) -> Scalar:
        total = plane.combined(index[:-n], _places(spans, index[-n:]), compute, sc.constant(0, compute), _sum)
        return g.convert(quotient(total, index[-n:]), a.dtype)

    return stored(g, g.out, a.device, at)


def _divisors(spans: Sequence[Steps], padded: bool, override: int | None) -> Callable[[Index], Sequence[Expr]]:
    """What the sum of a window is divided by: ``override``, or how many elements it has, paddings included or not."""
    if override is not None:
        return lambda o: (as_expr(override),)

    def count(o: Index) -> Sequence[Expr]:
        return (product([s.padded_length(i) if padded else s.length(i) for s, i in zip(spans, o, strict=True)]),)

    return count


def _lengths(spans: Sequence[Span]) -> Callable[[Index], Sequence[Expr]]:
    """What the sum of a window of an adaptive pool is divided by: its length in each dimension, one after the other."""
    return lambda o: [span.length(i) for span, i in zip(spans, o, strict=True)]


@lowers("avg_pool2d", "avg_pool3d")
def avg_pool(
    g: Builder,
    a: TensorValue,
    kernel: Any,
    stride: Any = (),
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> TensorValue:
    spans = _steps(a, _dimensions(g), g.out_sizes, kernel, stride, padding)
    return _average(g, a, spans, _divisors(spans, count_include_pad, divisor_override))


@lowers("_adaptive_avg_pool2d", "_adaptive_avg_pool3d")
def adaptive_avg_pool(g: Builder, a: TensorValue, output_size: Any) -> TensorValue:
    spans = _parts(g, a, g.out_sizes)
    if all(span.taps == 1 and span.size is span.count for span in spans):
        return a
    return _average(g, a, spans, _lengths(spans))


def _gathered(
    g: Builder,
    grad: TensorValue,
    spans: Sequence[Span],
    dtype: torch.dtype,
    part: Callable[[Index, Index, Scalar], Scalar],
) -> TensorValue:
    """The gradient of each element: the sum of what the windows that hold it give.

    ``part(index, window, value)`` is what ``window`` (an index of ``grad``, whose element there is ``value``) gives to the element at ``index``.
    """
    if not dtype.is_floating_point:
        raise Decline("not floating point")
    if math.prod(span.holders for span in spans) > _MOST_TAPS:
        raise Decline("large windows")
    n, compute = len(spans), compute_dtype(dtype)
    ready(g, grad, spans)
    zero = sc.constant(0, compute)

    def at(index: Index) -> Scalar:
        lead, place = index[:-n], index[-n:]
        total: Scalar | None = None
        for numbers in itertools.product(*(range(span.holders) for span in spans)):
            o = tuple(span.holder(h, j) for span, h, j in zip(spans, place, numbers, strict=True))
            holds = all_of(span.holds(h, i) for span, h, i in zip(spans, place, o, strict=True))
            window = (*lead, *o)
            given = sc.masked(holds, part(index, window, g.convert(grad.at(window), compute)), zero)
            total = given if total is None else sc.op("add", total, given)
        assert total is not None
        return g.convert(total, dtype)

    return stored(g, g.out, grad.device, at)


def _to_largest(
    g: Builder, grad: TensorValue, a: TensorValue, spans: Sequence[Span], indices: TensorValue
) -> TensorValue:
    n = len(spans)
    ready(g, indices, spans)
    zero = sc.constant(0, compute_dtype(a.dtype))

    def part(index: Index, window: Index, value: Scalar) -> Scalar:
        here = sc.index_value(flat([span.size for span in spans], index[-n:]))
        chosen = sc.op("eq", g.convert(indices.at(window), torch.int64), here)
        return sc.op("where", chosen, value, zero)

    return _gathered(g, grad, spans, a.dtype, part)


@lowers("max_pool2d_with_indices_backward", "max_pool3d_with_indices_backward", sizes_of=1)
def max_pool_backward(
    g: Builder,
    grad: TensorValue,
    a: TensorValue,
    kernel: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    ceil_mode: bool,
    indices: TensorValue,
) -> TensorValue:
    spans = _steps(a, _dimensions(g), grad.sizes, kernel, stride, padding, dilation)
    return _to_largest(g, grad, a, spans, indices)


@lowers("adaptive_max_pool2d_backward", "adaptive_max_pool3d_backward", sizes_of=1)
def adaptive_max_pool_backward(g: Builder, grad: TensorValue, a: TensorValue, indices: TensorValue) -> TensorValue:
    spans = _parts(g, a, grad.sizes)
    return _to_largest(g, grad, a, spans, indices)


def _to_all(
    g: Builder, grad: TensorValue, a: TensorValue, spans: Sequence[Span], divisors: Callable[[Index], Sequence[Expr]]
) -> TensorValue:
    n = len(spans)

    def part(index: Index, window: Index, value: Scalar) -> Scalar:
        for divisor in divisors(window[-n:]):
            value = value if divisor is ONE else divided(g, value, divisor)
        return value

    return _gathered(g, grad, spans, a.dtype, part)


@lowers("avg_pool2d_backward", "avg_pool3d_backward", sizes_of=1)
def avg_pool_backward(
    g: Builder,
    grad: TensorValue,
    a: TensorValue,
    kernel: Any,
    stride: Any,
    padding: Any,
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
) -> TensorValue:
    spans = _steps(a, _dimensions(g), grad.sizes, kernel, stride, padding)
    return _to_all(g, grad, a, spans, _divisors(spans, count_include_pad, divisor_override))


@lowers("_adaptive_avg_pool2d_backward", "_adaptive_avg_pool3d_backward", sizes_of=1)
def adaptive_avg_pool_backward(g: Builder, grad: TensorValue, a: TensorValue) -> TensorValue:
    spans = _parts(g, a, grad.sizes)
    return _to_all(g, grad, a, spans, _lengths(spans))
