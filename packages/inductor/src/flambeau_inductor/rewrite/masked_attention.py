"""The library's attention under a mask that follows from positions, or from less than a number for each pair, without the mask in memory.

In: a functional graph (or the joint graph of forward and backward) in which attention of the library takes a mask that the graph computes. Out: an ``attend`` node, and an
``attend_backward`` node for its gradient, which evaluate the mask at each pair and leave out what it leaves out by position alone; lowering knows templates for both
(``written_attention.py``). What these decline stays, and so does attention with dropout, or with a mask that has a gradient; and, where templates
are no faster than the library at it (``Language.exact_products``), attention without a mask, or with one that is read from memory anyway.

As in the library, scores stay float32 from the product to the softmax, and a row of which nothing takes part is 0. What a mask leaves out by position is not read, so that a NaN
or an infinity there stays there: of the library's kernels, some multiply it by 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from operator import getitem
from typing import Any

import torch
from attrs import define, field, frozen
from torch import fx
from torch._subclasses.fake_tensor import FakeTensorMode

from ..context import CompileContext
from ..devices import device_of
from ..lowering.trial import refusal
from ..lowering.written_attention import ATTEND
from ..lowering.written_gradients import ATTEND_BACKWARD
from .engine import Editor, Match, Rule
from .fakes import fake_mode_of, quietly
from .joint_calls import JointEditor, empty, region_of, sweep
from .patterns import argument, call
from .written_attention import Scores, fits, graph_of

aten = torch.ops.aten


@frozen
class _Library:
    """An attention of the library, the one for its gradients, and the name of the mask's argument."""

    forward: Any
    backward: Any
    mask: str


_LIBRARIES = (
    _Library(
        aten._scaled_dot_product_efficient_attention.default,
        aten._scaled_dot_product_efficient_attention_backward.default,
        "attn_bias",
    ),
    _Library(
        aten._scaled_dot_product_cudnn_attention.default,
        aten._scaled_dot_product_cudnn_attention_backward.default,
        "attn_bias",
    ),
    _Library(
        aten._scaled_dot_product_flash_attention_for_cpu.default,
        aten._scaled_dot_product_flash_attention_for_cpu_backward.default,
        "attn_mask",
    ),
)
#: Those of queries, keys and values come first.
_GRADIENTS = 3
_BY_FORWARD = {library.forward: library for library in _LIBRARIES}


@frozen
class _Masked:
    """A call of the library's attention, and its mask in parts, if it has one. ``causal``: no query sees a key behind it."""

    node: fx.Node
    scale: float
    mask: fx.Node | None
    within: Scores
    causal: bool

    @property
    def device(self) -> torch.device:
        """Where it runs."""
        device: torch.device = self.node.meta["val"][0].device
        return device

    @property
    def qkv(self) -> tuple[Any, Any, Any]:
        """Queries, keys and values."""
        query, key, value = (argument(self.node, name) for name in ("query", "key", "value"))
        return query, key, value

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        """How many batches, heads, queries and keys there are."""
        query, key, _ = (operand.meta["val"].shape for operand in self.qkv)
        return query[0], query[1], query[2], key[2]


def fuse_masked(graph: fx.Graph, results: Sequence[fx.Node], context: CompileContext) -> dict[fx.Node, fx.Node]:
    """Rewrite attention and its gradient in the joint ``graph``. Returns what stands for each result that is gone."""
    replaced: dict[fx.Node, fx.Node] = {}
    mode = fake_mode_of(graph)
    for library in _LIBRARIES:
        for backward in graph.find_nodes(op="call_function", target=library.backward):
            kept = frozenset(results)
            forward = _forward_of(backward, library, kept)
            found = None if forward is None else _masked(forward, context)
            if mode is not None and found is not None:
                replaced |= _Training(graph, found, backward, kept, mode, context).run()
    return replaced


def _forward_of(backward: fx.Node, library: _Library, results: frozenset[fx.Node]) -> fx.Node | None:
    """The call whose gradient ``backward`` is, where that alone reads what the forward gives besides the result."""
    out, lse = argument(backward, "out"), argument(backward, "logsumexp")
    if not all(isinstance(node, fx.Node) and node.target is getitem for node in (out, lse)):
        return None
    forward = out.args[0]
    if forward is not lse.args[0] or forward.target is not library.forward:
        return None
    names = ("query", "key", "value", library.mask, "scale", "dropout_p", "is_causal")
    if any(argument(forward, name) is not argument(backward, name) for name in names[:4]):
        return None
    if any(argument(forward, name) != argument(backward, name) for name in names[4:]):
        return None
    gradients = all(user.target is getitem and (user.args[1] < _GRADIENTS or not user.users) for user in backward.users)
    others = [part for part in forward.users if part.args[1] != 0]
    private = all(user is backward for part in others for user in part.users) and not results & {*others}
    known = region_of([forward]) and region_of([backward]) == (None,)
    return forward if gradients and private and known else None


def _masked(node: fx.Node, context: CompileContext) -> _Masked | None:
    """``node`` in parts, where kernels are the faster, and sizes are worth them."""
    library = _BY_FORWARD[node.target]
    mask, scale, causal = (argument(node, name) for name in (library.mask, "scale", "is_causal"))
    query, key, value = (argument(node, name).meta["val"] for name in ("query", "key", "value"))
    faster = device_of(query.device).language(context.config).exact_products
    if not isinstance(mask, fx.Node) and not (faster and mask is None):
        return None
    if argument(node, "dropout_p") != 0 or (causal and (mask is not None or not faster)):
        return None
    shapes = [*query.shape, *key.shape, *value.shape, *(mask.meta["val"].shape if mask else ())]
    if not all(isinstance(size, int) for size in shapes) or not isinstance(scale, float | int | None):
        return None
    same = query.shape[0] == key.shape[0] and key.shape[:3] == value.shape[:3] and _share(query, key, faster)
    if not same or (mask and not mask.meta["val"].is_floating_point()):
        return None
    lanes, queries, keys = query.shape[0] * query.shape[1], query.shape[2], key.shape[2]
    if not fits(query.device, lanes, queries, keys, context):
        return None
    if faster and is_small(query, keys, value):
        return None
    within = Scores((lanes, queries, keys))
    if mask:
        within.collect(mask, deep=True)
    # What is in memory for each pair is read from there by the library as well.
    read = any(node.meta["val"].numel() >= queries * keys for node in within.reads)
    if within.products or (read and not faster):
        return None
    return _Masked(node, 1 / math.sqrt(query.shape[-1]) if scale is None else float(scale), mask, within, bool(causal))


def is_small(query: torch.Tensor, keys: int, value: torch.Tensor) -> bool:
    """Whether the library's attention takes too little time for a kernel to save what compiling it costs."""
    products = query.shape[:3].numel() * keys * (query.shape[3] + value.shape[3])
    return products <= device_of(query.device).libraries.small_attention


def _share(query: torch.Tensor, key: torch.Tensor, faster: bool) -> bool:
    """Whether each of the queries' heads has one of the keys'; several may have the same where templates need no more than that."""
    heads, shared = query.shape[1], key.shape[1]
    return heads == shared or (faster and shared > 0 and heads % shared == 0)


def _as_matrices(call: Callable[..., fx.Node], node: Any, *, heads: int = 0, turned: bool = False) -> fx.Node:
    """(batch, heads, rows, width) as (batch times heads, rows, width), or with the last two dimensions ``turned``. There are as many ``heads`` if that is given,
    several in a row the same. Nothing is copied: lowering sees through it."""
    batch, own, rows, width = node.meta["val"].shape
    heads = heads or own
    if heads != own:
        node = call(aten.unsqueeze.default, node, 2)
        node = call(aten.expand.default, node, [batch, own, heads // own, rows, width])
    whole = call(aten.clone.default, node, memory_format=torch.contiguous_format)
    matrices = call(aten._unsafe_view.default, whole, [batch * heads, rows, width])
    return call(aten.transpose.int, matrices, 1, 2) if turned else matrices


def _bodies(found: _Masked, mode: FakeTensorMode) -> tuple[fx.GraphModule, fx.GraphModule, fx.GraphModule]:
    """Scores of products, shares as they are, and the gradient of products of that of scores."""
    batch, heads, queries, keys = found.sizes
    pairs, device = (batch * heads, queries, keys), found.device
    product, slope = (_number_of_each(mode, pairs, device) for _ in range(2))
    scores = found.within.body(found.mask, product) if found.mask else graph_of((product,), (), product)
    with _Extended(scores, mode) as end:
        scaled = end.step(aten.view.default, end.first, [batch, heads, queries, keys])
        scaled = end.step(aten.mul.Tensor, scaled, found.scale)
        if found.mask:
            scaled = end.step(aten.add.Tensor, scaled, end.step(aten._to_copy.default, end.result, dtype=torch.float32))
        if found.causal:
            row, column = (end.step(aten.arange.default, size, device=device) for size in (queries, keys))
            behind = end.step(aten.gt.Tensor, column, end.step(aten.unsqueeze.default, row, 1))
            nothing = end.step(aten.full.default, [], -math.inf, dtype=torch.float32, device=device)
            scaled = end.step(aten.where.self, behind, nothing, scaled)
        end.result = end.step(aten.view.default, scaled, list(pairs))
    down = graph_of((slope, product), (), slope)
    with _Extended(down, mode) as end:
        end.result = end.step(aten.mul.Tensor, end.first, found.scale)
    return scores, graph_of((product,), (), product), down


def _number_of_each(mode: FakeTensorMode, pairs: Sequence[int], device: torch.device) -> fx.Node:
    """A node of no graph, a number of float32 for each pair."""
    node = fx.Graph().placeholder("number")
    node.meta["val"] = empty(mode, *pairs, device=device)
    return node


@define
class _Extended:
    """A nested graph to which steps are added behind its ``result``."""

    body: fx.GraphModule
    mode: FakeTensorMode
    first: fx.Node = field(init=False)
    result: fx.Node = field(init=False)

    def __enter__(self) -> _Extended:
        (output,) = self.body.graph.find_nodes(op="output")
        results: Any = output.args[0]
        self.first, self.result = next(iter(self.body.graph.nodes)), results[0]
        return self

    def __exit__(self, *_: object) -> None:
        (output,) = self.body.graph.find_nodes(op="output")
        output.args = ((self.result,),)
        self.body.recompile()

    def step(self, target: Any, *args: Any, **kwargs: Any) -> fx.Node:
        """A call, in front of the end."""
        (output,) = self.body.graph.find_nodes(op="output")
        with self.body.graph.inserting_before(output), quietly(self.mode):
            node = self.body.graph.call_function(target, args, kwargs)
            node.meta["val"] = target(*fx.node.map_arg(args, lambda part: part.meta["val"]), **kwargs)
        return node


@frozen
class _Training:
    """Makes the nodes that take the place of attention and of its gradient."""

    graph: fx.Graph
    found: _Masked
    backward: fx.Node
    results: frozenset[fx.Node]
    mode: FakeTensorMode
    context: CompileContext

    def run(self) -> dict[fx.Node, fx.Node]:
        """What stands for their results; nothing, and no node is left, where a template declines."""
        found, forward = self.found, self.found.node
        if not all(read < forward for read in found.within.reads):
            return {}
        batch, heads, queries, _ = found.sizes
        scores, shares, down = _bodies(found, self.mode)
        rows = [empty(self.mode, batch, heads, queries, device=found.device) for _ in range(2)]
        vals = (forward.meta["val"][0], *rows)
        reads = tuple(found.within.reads)
        early = JointEditor(self.graph, forward, self.mode)
        operands = (*_operands(early.call, found), heads)
        reason = refusal(None, forward, ATTEND, (*operands, scores, shares, 2, reads, True), vals, self.context)
        if reason:
            early.undo()
            return {}
        bodies = map(early.body, (scores, shares))
        parts = early.parts(early.call(ATTEND, *operands, *bodies, 2, reads, True, known=vals))
        edit = JointEditor(self.graph, self.backward, self.mode)
        q, k, v = _operands(edit.call, found)
        name = "grad_out_" if "efficient" in str(self.backward.target) else "grad_out"
        out, grad = (_as_matrices(edit.call, node) for node in (parts[0], argument(self.backward, name)))
        given = (q, k, v, out, *parts[1:], grad, heads)
        vals = tuple(self.backward.meta["val"][:3])
        tail = ((), True)
        every = (*given, scores, shares, 2, reads, shares, down, *tail)
        if refusal(None, self.backward, ATTEND_BACKWARD, every, vals, self.context):
            edit.undo()
            early.undo()
            return {}
        again = [edit.body(body) for body in (scores, shares, shares, down)]
        call = edit.call(ATTEND_BACKWARD, *given, *again[:2], 2, reads, *again[2:], *tail, known=vals)
        every = ((self.backward, edit.parts(call)), (forward, parts[:1]))
        users = [user for node, _ in every for user in node.users]
        replaced = {user: made[user.args[1]] for node, made in every for user in node.users if user.args[1] < len(made)}
        for user, now in replaced.items():
            user.replace_all_uses_with(now)
        sweep(self.graph, users, self.results)
        return replaced


def _operands(call: Callable[..., fx.Node], found: _Masked) -> tuple[fx.Node, fx.Node, fx.Node]:
    (query, key, value), heads = found.qkv, found.sizes[1]
    keys, values = _as_matrices(call, key, heads=heads, turned=True), _as_matrices(call, value, heads=heads)
    return _as_matrices(call, query), keys, values


def _is_masked(match: Match, context: CompileContext) -> bool:
    """Whether nothing but the result is read."""
    return all(user.target is getitem and user.args[1] == 0 for user in match.root.users)


def _attend(match: Match, edit: Editor) -> tuple[fx.Node] | None:
    found = _masked(match.root, edit.context)
    if found is None:
        return None
    scores, shares, _ = _bodies(found, edit.mode)
    vals = (match.root.meta["val"][0],)
    operands = (*_operands(edit.call, found), found.sizes[1])
    tail = (2, tuple(found.within.reads), True)
    if refusal(edit.module, match.root, ATTEND, (*operands, scores, shares, *tail), vals, edit.context):
        return None
    node = edit.call(ATTEND, *operands, edit.body(scores), edit.body(shares), *tail, known=vals)
    return (edit.call(getitem, node, 0, known=vals[0]),)


RULES = (
    Rule(
        name="masked_attention",
        identity="attention of the library, its mask evaluated at each pair and not read: the same products and sums in float32, in another order",
        pattern=call(_BY_FORWARD, others=True),
        check=_is_masked,
        replace=_attend,
    ),
)
