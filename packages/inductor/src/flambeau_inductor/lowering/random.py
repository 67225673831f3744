"""Random numbers drawn inside GPU kernels, the same ones that eager's kernels draw.

In: calls of dropout and of uniform draws on a CUDA tensor of known size. Out: lazy tensors whose elements come from the device's own
generator, at the place in its stream where eager would have taken them; the generator moves on as in eager. Whatever is not known
to agree (the CPU, other distributions, unknown sizes, memory whose alignment eager would look at) stays a library call, which
draws from the same generator.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from flambeau_runtime.philox import state_op

from ..devices import device_of
from ..expr import ZERO, Expr
from ..ir import scalar as sc
from ..ir.loops import Extern
from ..ir.scalar import Scalar
from . import philox
from .builder import Builder
from .registry import Decline, lowers
from .values import Index, TensorValue, compute_dtype

_FLOATS = (torch.float32, torch.float16, torch.bfloat16)


def _numel(sizes: tuple[Expr, ...], itemsize: int) -> int:
    """How many elements; Decline where the size is not known or eager would split the tensor."""
    count = 1
    for size in sizes:
        if not size.is_int:
            raise Decline("random numbers of unknown size")
        count *= int(size)
    if count == 0 or count * max(itemsize, 4) > philox.MOST_BYTES:
        raise Decline("random numbers of no or huge size")
    return count


def _deal(device: torch.device, kind: str, dtype: torch.dtype, numel: int, vector: int) -> philox.Deal:
    """How eager deals on this device; Decline where that is not known for sure."""
    if not device_of(device).kernels.draws:
        raise Decline("a generator that no kernel draws from")
    threads = philox.device_threads(device)
    if threads is None:
        raise Decline("no GPU to ask about its random kernels")
    if not philox.agrees(device, kind, dtype, vector):
        raise Decline("eager deals its random numbers in another way")
    return philox.Deal.of(numel, threads, vector)


def _draws(
    g: Builder, device: torch.device, deal: philox.Deal, number: Callable[[Index], Expr]
) -> Callable[[Index], Scalar]:
    """Take the next piece of the device's stream; the result gives the float32 of each element, numbered by ``number``."""
    name = g.new_name()
    words = tuple(f"{name}_{part}" for part in ("seed", "offset", "base"))
    threads = philox.device_threads(device)
    binds = tuple((word, position, None) for position, word in enumerate(words))
    g.operations.append(
        Extern(
            state_op(),
            (device, deal.increment, threads),
            {},
            (None,) * 3,
            (),
            binds,
            "a piece of the stream",
            g.origins,
        )
    )
    parameters = [sc.parameter(word, torch.int64) for word in words]

    def at(index: Index) -> Scalar:
        place = (sc.index_value(part, torch.int64) for part in deal.place(number(index)))
        return sc.op("philox_uniform", *parameters, *place)

    return at


def _number_by(strides: tuple[int, ...]) -> Callable[[Index], Expr]:
    def number(index: Index) -> Expr:
        total: Expr = ZERO
        for part, stride in zip(index, strides, strict=True):
            total = total + part * stride
        return total

    return number


def _row_major(sizes: tuple[int, ...]) -> tuple[int, ...]:
    strides, step = [], 1
    for size in reversed(sizes):
        strides.append(step)
        step *= size
    return tuple(reversed(strides))


def _is_dense(sizes: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    step = 1
    for stride, size in sorted((stride, size) for size, stride in zip(sizes, strides, strict=True) if size != 1):
        if stride != step:
            return False
        step *= size
    return True


def _source(node: fx.Node) -> fx.Node:
    """The node that owns the memory which ``node`` shows in eager."""
    while node.op == "call_function":
        schema = getattr(node.target, "_schema", None)
        if schema is not None and not any(r.alias_info is not None for r in schema.returns):
            return node
        if not isinstance(node.args[0], fx.Node):
            return node
        node = node.args[0]
    return node


@lowers("native_dropout")
def native_dropout(g: Builder, a: TensorValue, p: Any, train: Any = None) -> tuple[TensorValue, TensorValue]:
    if train is False or not isinstance(p, float) or not 0.0 < p < 1.0:
        raise Decline("dropout that draws nothing, or with a probability known at run time")
    if not device_of(a.device).kernels.draws:
        raise Decline("a generator that no kernel draws from")
    if a.dtype not in (*_FLOATS, torch.float64):
        raise Decline(f"dropout of {a.dtype}")
    assert g.node is not None
    node = g.node.args[0]
    if not isinstance(node, fx.Node) or _source(node).op != "call_function":
        raise Decline("dropout of the caller's memory, whose alignment decides how eager deals")
    numel = _numel(a.sizes, a.dtype.itemsize)
    val = node.meta["val"]
    if not all(isinstance(s, int) for s in (*val.stride(), val.storage_offset())):
        raise Decline("random numbers for an unknown layout")
    sizes, strides = tuple(int(s) for s in val.shape), tuple(val.stride())
    vector = 1
    if _is_dense(sizes, strides):
        start = val.storage_offset() * val.element_size()
        vector = philox.vector_width(numel, val.element_size(), start, philox.cuda_version())
    deal = _deal(a.device, "dropout", a.dtype, numel, vector)
    number = _number_by(strides if vector > 1 else _row_major(sizes))
    draw = _draws(g, a.device, deal, number)
    compute = compute_dtype(a.dtype)
    limit = philox.threshold(1.0 - p, a.dtype)
    bound = sc.constant(limit, compute)

    def keeps(index: Index) -> Scalar:
        return sc.op("lt", g.convert(draw(index), compute), bound)

    mask = g.lazy(a.sizes, torch.bool, a.device, keeps)
    mask.strides = g.wanted_strides(g.node.meta["val"][1])
    # Stored where it is drawn: readers take one byte instead of drawing again, and whoever fuses with it reads nothing.
    g.realise(mask)
    return _scaled(g, a, mask, 1.0 / limit, a.dtype), mask


@lowers("native_dropout_backward")
def native_dropout_backward(g: Builder, grad: TensorValue, mask: TensorValue, scale: Any) -> TensorValue:
    return _scaled(g, grad, mask, scale, grad.dtype)


def _scaled(g: Builder, a: TensorValue, mask: TensorValue, scale: Any, dtype: torch.dtype) -> TensorValue:
    """``a * mask * scale`` in eager's order and type: not a choice, so that a masked infinity becomes NaN as there."""
    compute = compute_dtype(dtype)
    if not dtype.is_floating_point:
        raise Decline(f"dropout of {dtype}")
    factor = g.constant(scale, compute)

    def scaled(value: Scalar, kept: Scalar) -> Scalar:
        return sc.op("mul", sc.op("mul", value, kept), factor)

    return g.pointwise(scaled, a, mask, sizes=a.sizes, dtype=dtype, device=a.device, compute=compute)


def _uniform(g: Builder, low: float, high: float, finish: Callable[[Scalar], Scalar] | None = None) -> TensorValue:
    """The current node's result filled as eager's ``uniform_(low, high)`` does, or with ``finish`` of the raw draws."""
    assert g.node is not None
    out = g.out
    if out.dtype not in _FLOATS and finish is None:
        raise Decline(f"uniform numbers of {out.dtype}")
    numel = _numel(g.out_sizes, out.dtype.itemsize)
    sizes, strides = tuple(int(s) for s in out.shape), tuple(int(s) for s in out.stride())
    if not _is_dense(sizes, strides):
        raise Decline("random numbers for memory with gaps")
    deal = _deal(out.device, "uniform", torch.float32, numel, 1)
    draw = _draws(g, out.device, deal, _number_by(strides))
    compute = compute_dtype(out.dtype)

    def ranged(value: Scalar) -> Scalar:
        first = torch.tensor(low, dtype=out.dtype)
        last = torch.tensor(high, dtype=out.dtype)
        start, stop = (sc.constant(float(bound), compute) for bound in (first, last))
        reach = sc.constant(float(last - first), compute)
        value = g.convert(g.convert(sc.op("fma", value, reach, start), out.dtype), compute)
        # Draws lie in (0, 1]: the upper bound becomes the lower one.
        return sc.op("where", sc.op("eq", value, stop), start, value)

    result = g.lazy(g.out_sizes, out.dtype, out.device, lambda i: g.convert((finish or ranged)(draw(i)), out.dtype))
    result.strides = g.wanted_strides(out)
    # A second reader must see the same numbers without drawing them again.
    g.realise(result)
    return result


@lowers("rand", "rand_like")
def rand(g: Builder, *args: Any, **options: Any) -> TensorValue:
    return _uniform(g, 0.0, 1.0)


@lowers("uniform")
def uniform(g: Builder, a: TensorValue, low: Any = 0.0, high: Any = 1.0, generator: Any = None) -> TensorValue:
    if generator is not None or not all(isinstance(bound, int | float) for bound in (low, high)):
        raise Decline("uniform numbers with bounds known at run time")
    return _uniform(g, float(low), float(high))


@lowers("bernoulli.p")
def bernoulli(g: Builder, a: TensorValue, p: Any = 0.5, generator: Any = None) -> TensorValue:
    if generator is not None or not isinstance(p, int | float) or a.dtype is torch.float64:
        raise Decline("coins with a probability known at run time, or in double precision")
    limit = sc.constant(philox.threshold(float(p), torch.float32), torch.float32)
    return _uniform(g, 0.0, 1.0, lambda value: sc.op("lt", value, limit))
