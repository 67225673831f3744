"""How eager lays out the gradients, for tangents that lie otherwise than those that the backward was compiled for.

In: the captured graph, fakes of its inputs without symbolic sizes, sizes and strides of the tangents that there are. Out: for each input that has a gradient, how it lies.
Eager hands many a tangent on as it came, or a view of it, and lays most of what it computes out as its operands are: all of that is asked of
torch itself, on fakes, by one more trace.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import getitem
from typing import Any

import torch
from torch._ops import OpOverload
from torch.fx import GraphModule, Node
from torch.utils._python_dispatch import _disable_current_modes

from ..config import Config
from ..errors import UnsupportedGraph
from ..functional.layout import hint
from ..functional.ops import is_view
from ..functional.recorder import Recorder
from ..functional.wrapped import recorder_of
from ..passes.facts import short_name_of
from ..records import Layout, Lying
from .build import Forward, trace_forward
from .dispatch import dispatch_kept
from .inputs import find_fake_mode
from .packed import without_saved_hooks
from .reach import Reach
from .record import Joint
from .sums import Sums

#: What they compute lies in order, however their operands do.
_IN_ORDER = frozenset({"mm", "bmm", "mv", "embedding_dense_backward", "select_backward", "slice_backward"})
#: What they compute lies as the first operand does.
_AS_FIRST = frozenset({"select_scatter", "slice_scatter", "diagonal_scatter", "index_put", "scatter", "scatter_add"})


def may_follow(joint: Joint) -> bool:
    """Whether a gradient may lie otherwise in eager for tangents that do. `joint`: before any pass."""
    following = set(joint.tangents)
    for node in joint.graph.nodes:
        operands = node.all_input_nodes
        if short_name_of(node.target) in _AS_FIRST:
            operands = operands[:1]
        if any(operand in following for operand in operands) and not _is_fixed(node):
            following.add(node)
    return any(grad in following for grad in joint.grads)


def may_hand_on(joint: Joint) -> bool:
    """Whether a gradient is a sum of which one side is a tangent, or a view of one, and another may be absent. `joint`: before any pass."""
    tangents = set(joint.tangents)
    waiting = [(grad, False) for grad in joint.grads if isinstance(grad, Node)]
    seen = set(waiting)
    while waiting:
        node, is_side = waiting.pop()
        if node in tangents and is_side:
            return True
        name, sources = short_name_of(node.target), node.all_input_nodes
        if name == "where" and sources[0] in tangents:
            sources, is_side = sources[1:2], True
        elif name == "copy":
            sources = sources[1:]
        elif name != "add" and not (isinstance(node.target, OpOverload) and is_view(node.target)):
            continue
        fresh = [(source, is_side) for source in sources if (source, is_side) not in seen]
        seen.update(fresh)
        waiting += fresh
    return False


def _is_fixed(node: Node) -> bool:
    """Whether what the node computes lies in order, however the operands do."""
    value = node.meta.get("val")
    maker = node.args[0] if node.target is getitem else node
    if not isinstance(maker, Node) or not isinstance(maker.target, OpOverload) or is_view(maker.target):
        return False
    is_line = isinstance(value, torch.Tensor) and sum(hint(size) != 1 for size in value.shape) < 2
    return is_line or short_name_of(node.target) in _IN_ORDER


def gradient_layouts(
    gm: GraphModule, inputs: list[Any], table: dict[OpOverload, Callable[..., Any]], lying: Sequence[Lying]
) -> dict[int, Layout]:
    """By the place of the input. `lying`: one for each of the signature's `differentiable`. Raises `UnsupportedGraph` as `build_joint` does."""
    recorder, functions = recorder_of(gm, find_fake_mode(inputs), table)
    with _disable_current_modes(), functions, without_saved_hooks(), dispatch_kept():
        # How bodies are cut shows in no layout.
        forward = trace_forward(recorder, gm, inputs, Config())
        if len(forward.differentiable) != len(lying):
            raise UnsupportedGraph("another trace has other results")
        return _differentiated(recorder, forward, lying)


def _differentiated(recorder: Recorder, forward: Forward, lying: Sequence[Lying]) -> dict[int, Layout]:
    recorder.backward = True
    outputs, tangents, places = [], [], {}
    for place, (result, known) in enumerate(zip(forward.differentiable, lying)):
        if known is None:
            continue
        out = forward.analysis.results[result]
        with recorder.fake_mode, torch.no_grad():
            tangent = torch.empty_strided(*known, dtype=out.dtype, device=out.device)
        node = recorder.graph.placeholder(f"tangent_{place}")
        node.meta.update(val=tangent, stack=(), backward=True)
        places[recorder.bind_input(tangent, node, -1)] = place
        outputs.append(out)
        tangents.append(tangent)
    nodes = [node for node in recorder.graph.nodes if node.name.startswith("tangent_")]
    leaves = [item.leaf for item in forward.wanted]
    no_autocast = torch._C._DisableAutocast()
    with torch.autograd.set_multithreading_enabled(False), no_autocast, recorder.fake_mode, recorder:
        reach = Reach(outputs, forward.saved_by_lists)
        with Sums(recorder, reach, nodes):
            grads = torch.autograd.grad(outputs, leaves, tangents, allow_unused=True)
    found = {}
    for item, grad in zip(forward.wanted, grads):
        if grad is not None:
            found[item.index] = _layout(recorder, grad, places)
    return found


def _layout(recorder: Recorder, grad: torch.Tensor, places: dict[Any, int]) -> Layout:
    cell = recorder.value_of(grad).cell
    place, strides = places.get(cell, -1), tuple(grad.stride())
    if place < 0 or _is_seen_otherwise(grad, cell.meta):
        return Layout(strides)
    return Layout(strides, place, int(grad.storage_offset()))


def _is_seen_otherwise(grad: torch.Tensor, tangent: torch.Tensor) -> bool:
    """Whether it shows other elements than those in the tangent's memory."""
    same_kind = (
        grad.dtype == tangent.dtype and grad.is_conj() == tangent.is_conj() and grad.is_neg() == tangent.is_neg()
    )
    return not same_kind or grad.untyped_storage()._cdata != tangent.untyped_storage()._cdata
