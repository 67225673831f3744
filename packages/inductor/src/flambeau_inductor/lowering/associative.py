"""Associative scans: which combinations the loop IR's scans know, and how others start.

In: the combination, a graph of (before, element), and the tensors that it runs along the first dimension of. Out: a tensor by the loop IR's
``Scan``; or the first element in its place and the windows on the rest.
"""

from __future__ import annotations

import torch
from torch import fx
from torch._ops import OpOverload

from ..expr import MINUS_ONE, ONE, ZERO
from ..ir.layout import Layout, Ref
from ..ir.loops import Extern, Pointwise, make_axes
from ..ops.aten import aten_op
from .builder import Builder
from .steps import inputs_of, outputs_of
from .values import TensorValue, compute_dtype

aten = torch.ops.aten


def running(g: Builder, combine: fx.GraphModule, x: TensorValue) -> TensorValue | None:
    """The scan, where the whole combination is one op that scans know."""
    calls = _calls(combine)
    outputs = outputs_of(combine)
    if len(calls) != 1 or outputs != calls or calls[0].kwargs:
        return None
    kind = aten_op(calls[0].target).scan if isinstance(calls[0].target, OpOverload) else ""
    if not kind:
        return None
    if set(calls[0].args) != set(inputs_of(combine)[:2]) or len(calls[0].args) != 2:
        return None
    if x.dtype is torch.bool or x.dtype.is_complex or not g.may_compute(_layout(x)):
        return None
    return g.scan(x, 0, kind, x.dtype, compute_dtype(x.dtype))


def _calls(module: fx.GraphModule) -> list[fx.Node]:
    return [node for node in module.graph.nodes if node.op not in ("placeholder", "output")]


def _layout(x: TensorValue) -> Layout:
    return Layout.contiguous(x.sizes, x.dtype, x.device)


def first(g: Builder, x: TensorValue) -> TensorValue:
    """The first element."""
    return g.lazy(x.sizes[1:], x.dtype, x.device, lambda index: x.at((ZERO, *index)))


def after_first(x: TensorValue) -> TensorValue:
    """A view of all elements but the first."""

    def window(ref: Ref) -> Ref:
        return _behind(ref.buffer, ref)

    sizes = (x.sizes[0] + MINUS_ONE, *x.sizes[1:])
    return TensorValue(
        sizes, x.dtype, x.device, lambda index: x.at((index[0] + ONE, *index[1:])), base=x, window=window
    )


def begun(g: Builder, room: str, value: TensorValue) -> Ref:
    """Write ``value`` to the first element of ``room``; the window on the others."""
    whole = Ref.whole(g.buffers[room])
    layout = Layout(whole.sizes[1:], whole.strides[1:], ZERO, whole.dtype, whole.device)
    out = g.new_buffer(layout, storage=room)
    if g.may_compute(layout):
        body = g.convert(value.body(), layout.dtype)
        g.operations.append(Pointwise(out, make_axes(layout.sizes), body, g.origins))
    else:
        place = Ref(room, layout.sizes, layout.strides, ZERO, layout.dtype, layout.device)
        given = (place, g.ref(value))
        g.operations.append(Extern(aten.copy_.default, given, {}, (None,), (out,), (), "first element", g.origins))
    return _behind(out.name, whole)


def _behind(buffer: str, ref: Ref) -> Ref:
    sizes = (ref.sizes[0] + MINUS_ONE, *ref.sizes[1:])
    return Ref(buffer, sizes, ref.strides, ref.offset + ref.strides[0], ref.dtype, ref.device)
