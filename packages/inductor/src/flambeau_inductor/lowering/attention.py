"""Attention with score and mask functions as templates.

In: the operands of ``flex_attention`` and ``flex_attention_backward`` in torch's schema. Out: ``Template`` operations, and what they give. The functions are
lowered to scalars over (b, h, m, n), which the kernels evaluate in their midst. ``Decline`` says why there is no such kernel.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from attrs import frozen
from torch import fx

from ..expr import ZERO, Expr, Symbol
from ..ir import scalar as sc
from ..ir import templates
from ..ir.layout import Layout, Ref, contiguous_strides
from ..ir.loops import Axis, Template
from ..ir.scalar import Scalar
from ..ops.dtypes import HALVES
from .builder import Builder
from .inlined import inlined
from .key_parts import MOST_QUERIES, Parts, part_layout, parts_of
from .registry import Decline
from .values import TensorValue

#: Where the block mask has what, in the schema; the fields that start with ``full`` may be missing.
_TABLE = ("kv_num", "kv_at", "full_kv_num", "full_kv_at", "q_num", "q_at", "full_q_num", "full_q_at")
_FIRST = 2


@frozen
class _Problem:
    """One attention: its operands, and the points that functions are evaluated at."""

    g: Builder
    q: Ref
    k: Ref
    v: Ref
    axes: tuple[Axis, ...]
    table: dict[str, Ref]
    blocks: tuple[int, int]
    scale: float

    def sizes(self) -> tuple[int, ...]:
        """How many batches, heads, queries and keys there are."""
        b, h, m, n = (int(axis.size) for axis in self.axes)
        return b, h, m, n

    def write(
        self,
        kind: str,
        side: str,
        more: dict[str, TensorValue],
        outs: dict[str, Layout],
        bodies: dict[str, Scalar],
        **facts: Any,
    ) -> list[TensorValue]:
        """Append the template; what it gives."""
        g = self.g
        made = {name: g.new_buffer(layout) for name, layout in outs.items()}
        table = {name: ref for name, ref in self.table.items() if name.removeprefix("full_").startswith(side)}
        operands = {
            "q": self.q,
            "k": self.k,
            "v": self.v,
            **{n: window(g, value) for n, value in more.items()},
            **table,
        }
        facts = {
            **facts,
            "scale": self.scale,
            "query_block": self.blocks[0],
            "key_block": self.blocks[1],
            "aligned": tuple(name for name, ref in operands.items() if is_aligned(g, ref)),
        }
        g.operations.append(Template(kind, operands, made, self.axes, bodies, facts, g.origins))
        return [TensorValue.of_ref(Ref.whole(buffer)) for buffer in made.values()]

    def body(self, module: fx.GraphModule, known: Sequence[str], read: Sequence[Any], dtype: torch.dtype) -> Scalar:
        """``module`` as a scalar. It takes the first of ``known``, the position, the others of ``known``, and what it reads."""
        g, device = self.g, self.q.device

        def number(value: Scalar) -> TensorValue:
            return g.lazy((), value.dtype, device, lambda index: value)

        values = [number(sc.reduced(name, torch.float32)) for name in known]
        places = [number(sc.index_value(axis.symbol, torch.int32)) for axis in self.axes]
        result = inlined(g, module, [*values[:1], *places, *values[1:], *read])
        if not isinstance(result, TensorValue) or result.rank:
            raise Decline("a function that gives no number")
        found = g.convert(result.at(()), dtype)
        if any(node.kind == "parameter" for node in sc.walk(found)):
            raise Decline("a function that reads a number known at run time")
        return found


def forward(
    g: Builder,
    vals: Sequence[Any],
    q: TensorValue,
    k: TensorValue,
    v: TensorValue,
    score: fx.GraphModule,
    block_mask: Sequence[Any],
    scale: float,
    _options: Any,
    score_with: Sequence[Any] = (),
    mask_with: Sequence[Any] = (),
) -> tuple[TensorValue, ...]:
    """Results, logarithms of sums, and largest scores."""
    problem = problem_of(g, q, k, v, block_mask, scale, ("kv",))
    bodies = {
        "score": problem.body(score, ["score"], read(g, score_with), torch.float32),
        "mask": problem.body(block_mask[-1], [], read(g, mask_with), torch.bool),
    }
    outs = {name: layout_of(g, val) for name, val in zip(("out", "lse", "peak"), vals, strict=True)}
    batch, heads, queries, keys = problem.sizes()
    if queries > MOST_QUERIES:
        return tuple(problem.write(templates.ATTENTION, "kv", {}, outs, bodies))
    shared = heads // int(problem.k.sizes[1])
    packed = shared > 1 and queries <= problem.blocks[0] and all(int(t.sizes[1]) == 1 for t in problem.table.values())
    parts = parts_of(batch * heads // (shared if packed else 1), keys, q.device)
    if parts == 1:
        return tuple(problem.write(templates.ATTENTION, "kv", {}, outs, bodies, packed=packed))
    rows = (batch, heads, queries)
    apart = {n: part_layout(out, parts, (*rows, *map(int, out.sizes[3:]))) for n, out in outs.items()}
    out, lse, peaks = problem.write(templates.ATTENTION, "kv", {}, apart, bodies, packed=packed, parts=parts)
    joined = Parts(out, lse)
    dtype = outs["out"].dtype

    def lazily(name: str, at: Callable[[Any], Scalar]) -> TensorValue:
        return g.lazy(outs[name].sizes, outs[name].dtype, q.device, at)

    return (
        lazily("out", lambda index: g.convert(joined.result(index), dtype)),
        lazily("lse", joined.logarithm),
        lazily("peak", lambda row: joined.largest(peaks, row)),
    )


def backward(
    g: Builder, vals: Sequence[Any], q: TensorValue, k: TensorValue, v: TensorValue, out: TensorValue, lse: TensorValue,
    grad_out: TensorValue | None, grad_lse: TensorValue | None, score: fx.GraphModule, joint: fx.GraphModule,
    block_mask: Sequence[Any], scale: float, _options: Any, score_with: Sequence[Any] = (), mask_with: Sequence[Any] = (),
) -> tuple[Any, ...]:  # fmt: skip
    """Gradients of queries, keys and values, and none of what the score reads."""
    if grad_out is None or grad_out.dtype is not q.dtype or out.dtype is not q.dtype or lse.dtype is not torch.float32:
        raise Decline("gradients of another type")
    problem = problem_of(g, q, k, v, block_mask, scale, ("kv", "q"))
    found = read(g, score_with)
    bodies = {
        "score": problem.body(score, ["score"], found, torch.float32),
        "mask": problem.body(block_mask[-1], [], read(g, mask_with), torch.bool),
        "slope": problem.body(joint, ["score", "slope"], found, torch.float32),
    }
    less = less_of(g, out, grad_out, grad_lse)
    more = {"grad": grad_out, "lse": lse, "less": less}
    query, keys, values = (layout_of(g, val) for val in vals[:3])
    dq = problem.write(templates.ATTENTION_QUERY_GRADIENT, "kv", more, {"dq": query}, bodies)
    dk, dv = problem.write(templates.ATTENTION_KEY_GRADIENTS, "q", more, {"dk": keys, "dv": values}, bodies)
    return (*dq, dk, dv, (None,) * len(score_with))[: len(vals)]


#: By operator.
RULES: dict[Any, Callable[..., tuple[Any, ...]]] = {
    torch.ops.higher_order.flex_attention: forward,
    torch.ops.higher_order.flex_attention_backward: backward,
}


def problem_of(
    g: Builder,
    q: TensorValue,
    k: TensorValue,
    v: TensorValue,
    block_mask: Sequence[Any],
    scale: Any,
    sides: Sequence[str],
) -> _Problem:
    """One attention, with the arrays of the ``sides`` of its block mask that kernels read. Raises Decline."""
    if not isinstance(scale, float | int):
        raise Decline("a scale known at run time")
    if q.dtype not in HALVES or {q.dtype, k.dtype, v.dtype} != {q.dtype} or len({q.device, k.device, v.device}) > 1:
        raise Decline("operands that are not of one type of 16 bits")
    shapes = [static(operand.sizes) for operand in (q, k, v)]
    (batch, heads, queries, width), (kv_batch, kv_heads, keys, _), (*_, value_width) = shapes
    if kv_batch not in (1, batch) or not kv_heads or heads % kv_heads or shapes[2][:3] != shapes[1][:3]:
        raise Decline("shapes that do not fit")
    if not all(map(math.prod, shapes)) or max(width, value_width) > templates.WIDEST_HEAD:
        raise Decline("no elements, or heads that are too wide")
    sizes = {"b": batch, "h": heads, "m": queries, "n": keys}
    axes = tuple(Axis(Symbol(name, bound=g.expr(size)), g.expr(size)) for name, size in sizes.items())
    query, key, value = (window(g, operand) for operand in (q, k, v))
    blocks = (block_mask[-3], block_mask[-2])
    if not all(type(size) is int and size & -size >= templates.LEAST_SIDE for size in blocks):
        raise Decline("blocks of the mask that are no multiples of a product's block")
    tables = _tables(g, block_mask, sizes, blocks)
    if any(f"{side}_{part}" not in tables for side in sides for part in ("num", "at")):
        raise Decline("a block mask without arrays")
    return _Problem(g, query, key, value, axes, tables, blocks, float(scale))


def _tables(g: Builder, block_mask: Sequence[Any], sizes: dict[str, int], blocks: tuple[int, int]) -> dict[str, Ref]:
    """The block mask's arrays."""
    found: dict[str, Ref] = {}
    for name, value in zip(_TABLE, block_mask[_FIRST : _FIRST + len(_TABLE)], strict=True):
        if value is None:
            continue
        if not isinstance(value, TensorValue) or value.dtype is not torch.int32:
            raise Decline("a block mask of another type")
        shape = static(value.sizes)
        side = 1 if "_q" in f"_{name}" else 0
        rows = -(-sizes["mn"[side]] // blocks[side])
        if len(shape) != 3 + name.endswith("at") or shape[0] not in (1, sizes["b"]) or shape[1] not in (1, sizes["h"]):
            raise Decline("a block mask of another shape")
        if shape[2] < rows or 0 in shape:
            raise Decline("a block mask of another length")
        found[name] = window(g, value)
    for name in ("full_kv", "full_q"):
        if (f"{name}_num" in found) != (f"{name}_at" in found):
            raise Decline("a block mask of another shape")
    return found


def less_of(g: Builder, out: TensorValue, grad: TensorValue, grad_lse: TensorValue | None) -> TensorValue:
    """What is added to a row's products with the result's gradient: the gradient of the softmax. ``out`` and ``grad`` are (..., rows, width)."""
    product = g.pointwise(
        lambda a, b: sc.op("mul", a, b),
        out,
        grad,
        sizes=out.sizes,
        dtype=torch.float32,
        device=out.device,
        compute=torch.float32,
    )
    total = g.reduce(product, (out.rank - 1,), "sum", dtype=torch.float32)
    parts = [total] if grad_lse is None else [total, grad_lse]

    def less(total: Scalar, extra: Scalar | None = None) -> Scalar:
        negative = sc.op("neg", total)
        if extra is None:
            return negative
        return sc.op("add", negative, sc.op("mul", extra, sc.constant(1 / math.log(2), torch.float32)))

    return g.pointwise(less, *parts, sizes=total.sizes, dtype=torch.float32, device=out.device, compute=torch.float32)


def read(g: Builder, values: Sequence[Any]) -> list[Any]:
    """What a function reads besides: stored, as every point reads from it."""
    found: list[Any] = []
    for value in values:
        if isinstance(value, TensorValue):
            found.append(TensorValue.of_ref(g.ref(value)))
        elif isinstance(value, Expr) and value.is_int:
            found.append(int(value))
        elif isinstance(value, int | float | bool):
            found.append(value)
        else:
            raise Decline("a function that reads what is no tensor")
    return found


def window(g: Builder, value: TensorValue) -> Ref:
    """Where an operand lies, in its buffer's own type."""
    ref = g.ref(value)
    if ref.dtype is not g.buffers[ref.buffer].layout.dtype:
        ref = g.realise(value, contiguous_strides(value.sizes))
    return checked(ref)


def checked(ref: Ref) -> Ref:
    """A window that kernels can address: known sizes, each head within 32 bits."""
    static((*ref.sizes, *ref.strides, ref.offset))
    if sum((int(n) - 1) * int(s) for n, s in zip(ref.sizes[2:], ref.strides[2:], strict=True)) >= 2**31:
        raise Decline("a head beyond 32 bits")
    return ref


def static(values: Sequence[Expr]) -> list[int]:
    if not all(value.is_int for value in values):
        raise Decline("sizes known at run time")
    return [int(value) for value in values]


def layout_of(g: Builder, val: torch.Tensor) -> Layout:
    """How a result lies: as promised, if that is dense."""
    sizes = g.exprs(val.shape)
    return Layout(sizes, g.wanted_strides(val) or contiguous_strides(sizes), ZERO, val.dtype, val.device)


def is_aligned(g: Builder, ref: Ref) -> bool:
    layout = g.buffers[ref.buffer].layout
    return layout.offset.is_int and int(layout.offset) * layout.dtype.itemsize % 16 == 0
