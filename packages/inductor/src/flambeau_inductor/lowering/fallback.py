"""Everything without a rule: a call of the op's own kernel.

In: an FX node and its lowered arguments. Out: an ``Extern`` operation and realised values. An operand is handed over with the strides its
fake tensor has, dimensions of one element included: a library's result may copy those of its arguments, so that it sees what eager gives it.
"""

from __future__ import annotations

from operator import getitem
from typing import Any

import torch
from torch import fx
from torch.fx.experimental.symbolic_shapes import guard_or_false

from ..errors import UnsupportedGraphError
from ..expr import hint
from ..ir.layout import strides_in_order
from ..ops.aten import Trait, aten_op
from .builder import Builder
from .cudnn_attention import PREPARED
from .products import without_last_terms
from .values import TensorValue

aten = torch.ops.aten


def is_workspace(node: fx.Node) -> bool:
    """True for an input that is nothing but a workspace of the calls that read it."""
    return bool(node.users) and all(_workspace_of(user) is node for user in node.users)


def _workspace_of(call: fx.Node) -> Any:
    """What a call is given for its argument `workspace`."""
    schema = getattr(call.target, "_schema", None)
    names = [argument.name for argument in schema.arguments] if schema is not None else []
    return dict(zip(names, call.args, strict=False)).get("workspace")


def call_library(g: Builder, node: fx.Node, op: Any, args: list[Any], kwargs: dict[str, Any], reason: str) -> Any:
    """Append the call and return its results; UnsupportedGraphError for an op that writes to its arguments."""
    record = aten_op(op)
    if op._schema.is_mutable:
        raise UnsupportedGraphError(f"{op} writes to its arguments; graphs are functional here")
    val = node.meta.get("val")
    shortened = without_last_terms(g, node, args, reason)
    if shortened is not None:
        return shortened
    given = [_operand(g, *pair) for pair in zip(args, node.args, strict=True)]
    named = {key: _operand(g, value, node.kwargs[key]) for key, value in kwargs.items()}
    if Trait.BY_STRIDES in record.traits and not record.aliases and isinstance(node.args[0], fx.Node):
        # Places in memory are meant, where it lies as in eager.
        given[0] = TensorValue.of_ref(g.lying_as(given[0], node.args[0].meta["val"]))
    if op in PREPARED:
        PREPARED[op](g, node, given)
    if record.aliases:
        # The result shares memory with an argument: take a copy at once, so that nobody has to know.
        return _copy_of_alias(g, op, given, named, val, reason)
    kept = record.workspace
    read = any(user.args[1] == kept for user in node.users if user.target is getitem)
    return g.library(op, given, named, val, reason, keeps=kept if read else None)


def _copy_of_alias(g: Builder, op: Any, args: list[Any], kwargs: dict[str, Any], val: Any, reason: str) -> Any:
    aliases = g.library(op, args, kwargs, val, f"{reason} (view)")
    several = isinstance(aliases, tuple)
    copies: list[Any] = []
    for alias, item in zip(aliases if several else (aliases,), val if several else (val,), strict=True):
        if alias is None:
            copies.append(None)
            continue
        dense = _dense(item)
        fresh = item if dense else item.clone()
        copies.append(g.library(aten.clone.default, [alias], {}, fresh, "copy of a view"))
    return tuple(copies) if several else copies[0]


def _dense(val: torch.Tensor) -> bool:
    """True when the strides are a permutation of row-major ones (symbolic sizes count as they stand)."""
    expected: Any = 1
    for size, stride in sorted(zip(val.shape, val.stride(), strict=True), key=lambda pair: int(pair[1])):
        if guard_or_false(size == 1):
            continue
        if not guard_or_false(stride == expected):
            return False
        expected = expected * size
    return True


def _operand(g: Builder, value: Any, source: Any) -> Any:
    """``value`` in memory, as the argument ``source`` of the node lies in eager."""
    if isinstance(value, TensorValue):
        val = source.meta.get("val") if isinstance(source, fx.Node) else None
        ref = g.ref(value)
        if not isinstance(val, torch.Tensor) or val.layout is not torch.strided or val.dim() != len(ref.sizes):
            return value
        strides = g.exprs(val.stride())
        if not ref.lies_as(strides):
            # Its memory has none of eager's gaps: nor have the dimensions of one element, which would go on into results that are like it.
            order = sorted(range(val.dim()), key=lambda d: (-hint(strides[d]), -hint(ref.sizes[d]), d))
            strides = strides_in_order(ref.sizes, order)
        return TensorValue.of_ref(ref.seen_with(strides) if ref.lies_as(strides) else ref)
    if isinstance(value, tuple | list):
        return [_operand(g, *pair) for pair in zip(value, source, strict=True)]
    return value
