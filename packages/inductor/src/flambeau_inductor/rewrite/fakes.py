"""What rewrites need to know about a graph's fake results, and how they make new nodes that carry some.

In: nodes with ``meta["val"]``. Out: fake results of calls that are not in the graph yet, and nodes for them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack
from typing import Any

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

aten = torch.ops.aten

#: What a node's ``meta`` says of where it comes from; nodes that take the place of others take it over.
PROVENANCE = ("stack", "stack_trace", "module", "calls")


def fake_mode_of(graph: fx.Graph) -> FakeTensorMode | None:
    """The mode that the graph's fake tensors belong to; None where it has none."""
    for node in graph.nodes:
        val = node.meta.get("val")
        if isinstance(val, FakeTensor):
            return val.fake_mode
    return None


def quietly(mode: FakeTensorMode) -> AbstractContextManager[Any]:
    """Inside, ops on fakes of ``mode`` add no guards: a layout is a preference, never an assumption."""
    stack = ExitStack()
    stack.enter_context(mode)
    stack.enter_context(torch.no_grad())
    if mode.shape_env is not None:
        stack.enter_context(mode.shape_env.suppress_guards())
    return stack


def values_of(argument: Any, values: Mapping[fx.Node, Any]) -> Any:
    """A call's (nested) argument with nodes replaced by their fake results."""
    return fx.node.map_arg(argument, lambda node: values[node] if node in values else node.meta["val"])


def insert_call(
    graph: fx.Graph, before: fx.Node, target: Any, args: tuple[Any, ...], val: Any, **kwargs: Any
) -> fx.Node:
    """A new call in front of ``before``, with its fake result and the source position of ``before``."""
    with graph.inserting_before(before):
        node = graph.call_function(target, args, kwargs)
    node.meta = {key: value for key, value in before.meta.items() if key in PROVENANCE}
    node.meta["val"] = val
    return node


def insert_run(graph: fx.Graph, before: fx.Node, target: Any, *args: Any, **kwargs: Any) -> fx.Node:
    """The same with the fake result of running it."""
    mode = fake_mode_of(graph)
    assert mode is not None
    with quietly(mode):
        given, named = fx.node.map_arg((args, kwargs), lambda node: node.meta["val"])
        val = target(*given, **named)
    return insert_call(graph, before, target, args, val, **kwargs)


def laid_out(call: Callable[..., fx.Node], node: fx.Node, val: torch.Tensor) -> fx.Node:
    """``node`` in the strides of ``val``, with which the rest of the graph was traced: itself, or a copy of nodes that ``call`` makes."""
    if same_layout(node.meta["val"], val):
        return node
    room = call(aten.new_empty_strided.default, node, list(val.shape), list(val.stride()))
    return call(aten.copy.default, room, node)


def same_size(x: Any, y: Any) -> bool:
    """Whether two sizes are known to be equal; no guard is added."""
    if isinstance(x, int) and isinstance(y, int):
        return x == y
    return isinstance(x, torch.SymInt) and isinstance(y, torch.SymInt) and bool(x.node.expr == y.node.expr)


def same_layout(a: Any, b: Any) -> bool:
    """True when two fake tensors are known to have equal sizes, strides, dtype and device (no guard is added)."""
    if not (isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor)) or a.dim() != b.dim():
        return False
    if a.dtype is not b.dtype or a.device != b.device or a.layout is not b.layout or a.layout is not torch.strided:
        return False
    return all(map(same_size, a.shape, b.shape)) and all(map(same_size, a.stride(), b.stride()))


def is_row_major(val: torch.Tensor) -> bool:
    """Whether ``val`` is known to be contiguous; no guard is added."""
    expected: Any = 1
    for size, stride in zip(reversed(val.shape), reversed(val.stride()), strict=True):
        if not same_size(size, 1) and not same_size(stride, expected):
            return False
        expected = expected * size
    return True


def hint_of(size: Any) -> int:
    """A size as a number: the hint of a symbolic one."""
    if isinstance(size, torch.SymInt):
        return int(size.node.hint) if size.node.has_hint() else 4096
    return int(size)


def bytes_of(val: Any) -> int:
    """How large a fake tensor is, by its hints; 0 for anything else."""
    if not isinstance(val, torch.Tensor):
        return 0
    total = val.dtype.itemsize
    for size in val.shape:
        total *= hint_of(size)
    return total
