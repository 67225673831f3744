"""`flex_attention` as the library's attention, where the graph shows that it is that and the library is faster than templates.

In: a functional graph, or the joint graph of forward and backward, with ``flex_attention`` and ``flex_attention_backward``. Out: the same graph in which those that
attend to all keys, or to those up to the query, are calls of cuDNN's attention. A forward is rewritten together with all of its gradients in the same graph; one whose largest scores
somebody reads stays, as do gradients of the sums. ``lowering/library_attention.py`` tells what an attention is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from operator import getitem
from typing import Any

import torch
from attrs import frozen
from torch import fx
from torch._subclasses.fake_tensor import FakeTensorMode

from ..context import CompileContext
from ..devices import device_of
from ..lowering.library_attention import LibraryCase, case_of
from ..lowering.trial import asked
from .fakes import fake_mode_of
from .joint_calls import JointEditor, region_of, sweep

aten, hop = torch.ops.aten, torch.ops.higher_order

_FORWARD = aten._scaled_dot_product_cudnn_attention.default
_BACKWARD = aten._scaled_dot_product_cudnn_attention_backward.default
#: Places of what the library's forward gives, and of the operands of ``flex_attention_backward`` that the forward does not have.
_LSE, _SEED, _OFFSET = 1, 6, 7
_OUT, _OWN_LSE, _GRAD, _GRAD_LSE, _JOINT = 3, 4, 5, 6, 8
#: Rows begin at multiples of this many elements: 16 bytes of the types that templates take.
_ALIGNMENT = 8


def library_attention(gm: fx.GraphModule, context: CompileContext) -> bool:
    """Rewrite the attention of ``gm`` that has no gradient in it."""
    (output,) = gm.graph.find_nodes(op="output")
    return bool(use_library(gm.graph, output.all_input_nodes, context, gm))


def use_library(
    graph: fx.Graph, results: Collection[fx.Node], context: CompileContext, gm: fx.GraphModule | None = None
) -> dict[fx.Node, fx.Node]:
    """Rewrite ``graph``, which is that of ``gm`` or the joint graph. Returns what stands for each result that is gone."""
    replaced: dict[fx.Node, fx.Node] = {}
    kept = frozenset(results)
    for node in graph.find_nodes(op="call_function", target=hop.flex_attention):
        backwards = _gradients(node, kept)
        mode = fake_mode_of(graph)
        if backwards is None or mode is None or not _is_taken(node, context):
            continue
        case = _case(node, backwards, context, gm)
        if case is not None and is_faster(case, node.meta["val"][0].device):
            replaced |= _Replacement(graph, node, backwards, case, mode, kept).run()
    return replaced


def _gradients(node: fx.Node, results: frozenset[fx.Node]) -> list[fx.Node] | None:
    """The nodes of an attention's gradient; None where others read what the library does not give, or where it is not known where nodes belong."""
    out, *rows = (
        [user for user in node.users if user.target is getitem and user.args[1] == number] for number in range(3)
    )
    readers = dict.fromkeys(user for part in rows[0] for user in part.users)
    backwards = [user for user in readers if user.target is hop.flex_attention_backward]
    others = [user for part in rows[1] for user in part.users]
    if others or results & {*rows[1]} or len(out) + len(rows[0]) + len(rows[1]) < len(node.users):
        return None
    if not region_of([node]) or (backwards and region_of(backwards) != (None,)):
        return None
    for backward in backwards:
        args = backward.args
        if list(args[:3]) != list(node.args[:3]):
            return None
        if args[_OUT] not in out or args[_OWN_LSE] not in rows[0] or not _is_zero(args[_GRAD_LSE]):
            return None
        if args[_GRAD] is None or any(user.target is not getitem for user in backward.users):
            return None
    return backwards


def _is_zero(value: Any) -> bool:
    """Whether an operand is the gradient of sums that nobody differentiated."""
    return value is None or (value.target is aten.full.default and value.args[1] == 0)


def _is_taken(node: fx.Node, context: CompileContext) -> bool:
    vals = [part.meta["val"] for part in node.args[:3] if isinstance(part, fx.Node)]
    return takes_heads(vals[0], context) and all(map(is_aligned, vals))


def takes_heads(val: torch.Tensor, context: CompileContext) -> bool:
    """Whether the library takes heads like those of ``val``, on their device and under torch's settings."""
    device = device_of(val.device)
    width = val.shape[-1]
    return (
        device.enabled(context.config) and type(width) is int and device.libraries.attends(val.device, val.dtype, width)
    )


def is_aligned(val: torch.Tensor) -> bool:
    """Whether the library takes an operand as it lies."""
    numbers = (*val.stride()[:-1], val.storage_offset())
    if not all(isinstance(n, int) for n in (*val.shape, *numbers)) or val.stride(-1) != 1 or 0 in numbers[:-1]:
        return False
    return all(n % _ALIGNMENT == 0 for n in numbers)


def _case(
    node: fx.Node, backwards: list[fx.Node], context: CompileContext, gm: fx.GraphModule | None
) -> LibraryCase | None:
    """What an attention is, and its gradients too."""
    case = asked(gm, node, case_of, context, *node.args)
    for backward in backwards:
        if case is None:
            break
        args = (*backward.args[:3], backward.args[_GRAD_LSE + 1], *backward.args[_JOINT + 1 :])
        same = asked(gm, backward, case_of, context, *args, joint=backward.args[_JOINT])
        case = case if same == case else None
    return case


def is_faster(case: LibraryCase, device: torch.device, *, is_written: bool = False) -> bool:
    """Whether the library's kernels are faster than templates: those of attention that ``is_written`` out round more."""
    tuning = device_of(device).facts(device).tuning
    return case.products >= (tuning.library_written_attention if is_written else tuning.library_attention)


def attention(
    call: Callable[..., fx.Node], case: LibraryCase, qkv: Sequence[Any], *, with_rows: bool
) -> tuple[fx.Node, ...]:
    """The library's result, and what its gradients take besides."""
    node = call(_FORWARD, *qkv, None, with_rows, 0.0, case.causal, False, scale=case.scale)
    used = (0, _LSE, _SEED, _OFFSET) if with_rows else (0,)
    return tuple(call(getitem, node, place, known=node.meta["val"][place]) for place in used)


def gradients(
    edit: JointEditor, case: LibraryCase, qkv: Sequence[Any], results: Sequence[fx.Node], grad: Any
) -> list[fx.Node]:
    """The library's gradients of queries, keys and values, from the ``results`` of ``attention``."""
    given = (grad, *qkv, *results, None, None, None, *case.sizes[2:])
    return edit.parts(edit.call(_BACKWARD, *given, 0.0, case.causal, scale=case.scale))


@frozen
class _Replacement:
    """Makes the calls that take the place of one attention and its gradients."""

    graph: fx.Graph
    node: fx.Node
    backwards: list[fx.Node]
    case: LibraryCase
    mode: FakeTensorMode
    results: frozenset[fx.Node]

    def run(self) -> dict[fx.Node, fx.Node]:
        """What stands for their results; nothing, and no node is left, where these would lie in another way."""
        node, case = self.node, self.case
        edits = [JointEditor(self.graph, node, self.mode)]
        qkv = node.args[:3]
        sums = [user for user in node.users if user.args[1] == _LSE]
        shown = any(part in self.results or not {*part.users} <= {*self.backwards} for part in sums)
        out, *rows = attention(edits[0].call, case, qkv, with_rows=shown or bool(self.backwards))
        made = [(node, [out, _to_base_2(edits[0].call, rows[0])] if shown else [out])]
        for backward in self.backwards:
            edits.append(JointEditor(self.graph, backward, self.mode))
            made.append((backward, gradients(edits[-1], case, qkv, (out, *rows), backward.args[_GRAD])))
        if not all(_lie_alike(old, parts) for old, parts in made):
            for edit in reversed(edits):
                edit.undo()
            return {}
        users = [user for old, _ in made for user in old.users]
        replaced = {
            user: parts[user.args[1]]
            for old, parts in made
            for user in old.users
            if isinstance(user.args[1], int) and user.args[1] < len(parts)
        }
        for user, now in replaced.items():
            user.replace_all_uses_with(now)
        sweep(self.graph, users, self.results)
        return replaced


def _to_base_2(call: Callable[..., fx.Node], sums: fx.Node) -> fx.Node:
    """The logarithms of sums of exponentials, (batch, head, query), as ``flex_attention`` gives them."""
    return call(aten.mul.Tensor, call(aten.view.default, sums, list(sums.meta["val"].shape[:3])), 1 / math.log(2))


def _lie_alike(old: fx.Node, parts: list[fx.Node]) -> bool:
    """Whether parts of a node lie as what takes their place."""
    return all(
        (val.dtype, val.shape, val.stride()) == (now.dtype, now.shape, now.stride())
        for val, now in zip(old.meta["val"], (part.meta["val"] for part in parts), strict=False)
    )
