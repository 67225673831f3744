"""Attention that a program writes out and takes gradients of becomes kernels that store no block of scores, forward and backward.

In: the joint graph of forward and backward, before it is cut in two. Out: the same graph with an ``attend`` node in the place of the last product of the forward, and an
``attend_backward`` node in the place of the three products that gradients of queries, keys and values are; lowering knows templates for both, and what
these decline stays. Between them go the result and two numbers for each row.

The forward is what ``written_attention.py`` looks for. Of the backward, what lies between the softmax's gradient and the products is evaluated in the
kernels as the program's autograd wrote it. Whatever else reads scores, shares or their gradients keeps the graph as it is: a bias with a gradient,
shares that are returned, dropout. A checkpointed region has the forward's node in the place of its own: it is computed again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from attrs import frozen
from torch import fx

from ..context import CompileContext
from ..lowering.trial import refusal
from ..lowering.written_attention import ATTEND
from ..lowering.written_gradients import ATTEND_BACKWARD
from .fakes import fake_mode_of
from .joint_calls import JointEditor, empty, region_of, sweep
from .written_attention import CASTS, MOVES, Scores, graph_of, heads_of, is_attention, is_evaluated
from .written_by_library import LibraryTraining, case_of_written

aten = torch.ops.aten

#: Calls between a softmax and a product, and between its gradient and products.
_LONGEST, _MOST_BETWEEN = 8, 64


def fuse_attention(graph: fx.Graph, results: Sequence[fx.Node], context: CompileContext) -> dict[fx.Node, fx.Node]:
    """Rewrite ``graph``. Returns what stands for each product that is gone. Bodies are ``get_attr`` nodes that carry them as ``meta["body"]``."""
    replaced: dict[fx.Node, fx.Node] = {}
    for gradient in graph.find_nodes(op="call_function", target=aten._softmax_backward_data.default):
        found = _found(gradient)
        if found is not None and _is_large_enough(found, context):
            replaced |= _fused(graph, found, frozenset(results), context)
    return replaced


@frozen
class _Attention:
    """The nodes of one attention. ``path`` leads from the softmax to ``shares``, which ``root`` takes, ``inward`` from ``slopes``, the product that is the gradient
    of these, to what the softmax's ``gradient`` takes; ``last`` is the gradient of the products."""

    softmax: fx.Node
    path: tuple[fx.Node, ...]
    root: fx.Node
    slopes: fx.Node
    inward: tuple[fx.Node, ...]
    gradient: fx.Node
    last: fx.Node
    #: The gradients of queries, keys and values.
    ends: tuple[fx.Node, fx.Node, fx.Node]

    @property
    def shares(self) -> fx.Node:
        """What the last product of the forward takes of the softmax."""
        shares: Any = self.root.args[0]
        return shares


def _is_large_enough(found: _Attention, context: CompileContext) -> bool:
    value: Any = found.root.args[1]
    return is_attention(found.root.meta["val"], value.meta["val"], found.softmax.meta["val"], context)


def _found(gradient: fx.Node) -> _Attention | None:
    """The attention whose softmax has this gradient."""
    softmax: Any = gradient.args[1]
    if softmax.target is not aten._softmax.default or softmax.args[1] != gradient.args[2]:
        return None
    path: list[fx.Node] = []
    node = softmax
    root: fx.Node | None = None
    while root is None and len(path) <= _LONGEST:
        users = [user for user in node.users if not user.meta.get("backward")]
        if len(users) != 1:
            return None
        if users[0].target is aten.bmm.default:
            root = users[0]
        elif users[0].target in MOVES | CASTS:
            node = users[0]
            path.append(node)
        else:
            return None
    if root is None or root.args[0] is not node or root.args[1] is node:
        return None
    value: Any = root.args[1]
    late = [user for user in node.users if user is not root and _is_turned(user, node)]
    of_values = [user for turned in late for user in turned.users if _is_product(user) and user.args[0] is turned]
    slopes: Any = gradient.args[0]
    inward: list[fx.Node] = []
    while slopes.target in MOVES | CASTS and len(inward) < _LONGEST:
        inward.append(slopes)
        slopes = slopes.args[0]
    if len(of_values) != 1 or not _is_product(slopes) or slopes.args[0] is not of_values[0].args[1]:
        return None
    if not _is_turned(slopes.args[1], value):
        return None
    products = _products_behind(gradient)
    if products is None or len(products) != 2:
        return None
    (of_queries, last), (of_keys, same) = products
    if last is not same:
        return None
    ends = (of_queries, of_keys, of_values[0])
    return _Attention(softmax, tuple(path), root, slopes, tuple(inward), gradient, last, ends)


def _products_behind(gradient: fx.Node) -> list[tuple[fx.Node, fx.Node]] | None:
    """The products that take what follows from ``gradient``, from the left and then from the right, each with what it takes; None where something else does."""
    seen = {gradient}
    pending = [gradient]
    left: list[tuple[fx.Node, fx.Node]] = []
    right: list[tuple[fx.Node, fx.Node]] = []
    while pending:
        node = pending.pop()
        for user in node.users:
            if _is_product(user):
                (left if user.args[0] is node else right).append((user, node))
            elif not is_evaluated(user) or len(seen) > _MOST_BETWEEN:
                return None
            elif user not in seen:
                seen.add(user)
                pending.append(user)
    return [*left, *right] if len(left) == len(right) == 1 else None


def _is_product(node: Any) -> bool:
    return isinstance(node, fx.Node) and node.target is aten.bmm.default


def _is_turned(node: Any, other: fx.Node) -> bool:
    """Whether one is the other with its matrices transposed."""
    return (_turns(node) and node.args[0] is other) or (_turns(other) and other.args[0] is node)


def _turns(node: fx.Node) -> bool:
    dims: Any = node.args[1:]
    if node.target is aten.transpose.int:
        return {dim % 3 for dim in dims} == {1, 2}
    return node.target is aten.permute.default and list(dims[0]) == [0, 2, 1]


def _fused(
    graph: fx.Graph, found: _Attention, results: frozenset[fx.Node], context: CompileContext
) -> dict[fx.Node, fx.Node]:
    """Put the two nodes in; what stands for the four products, nothing where something speaks against it."""
    for deep in (True, False):
        shape = tuple(found.shares.meta["val"].shape)
        forward = Scores(shape)
        forward.collect(found.softmax.args[0], deep=deep)
        if len(forward.products) != 1:
            return {}
        (product,) = forward.products
        of_queries, of_keys, _ = found.ends
        if not _is_turned(of_queries.args[1], product.args[1]) or not _is_turned(of_keys.args[0], product.args[0]):
            return {}
        outward = Scores(shape, (found.gradient, product))
        outward.collect(found.last, deep=deep)
        early = [*forward.varying(), found.softmax, *found.path]
        late = [*outward.varying(), found.slopes, *found.inward]
        if not region_of([*early, found.root]) or region_of([*set(late).difference(early), *found.ends]) != (None,):
            return {}
        if not _is_closed([*early, *late], found, results):
            return {}
        made = _Replacement(graph, found, product, results, context).run(forward, outward)
        if made:
            return made
    return {}


def _is_closed(region: Sequence[fx.Node], found: _Attention, results: frozenset[fx.Node]) -> bool:
    """Whether nothing outside reads what is to go."""
    turned: Any = found.ends[2].args[0]
    inside = {*region, turned}
    ends = {found.root, *found.ends}
    if inside & results or any(node.meta.get("backward") for node in (found.softmax, found.root)):
        return False
    return all(user in inside or user in ends for node in inside for user in node.users)


@frozen
class _Replacement:
    """Makes the nodes that take the place of one attention."""

    graph: fx.Graph
    found: _Attention
    product: fx.Node
    results: frozenset[fx.Node]
    context: CompileContext

    def run(self, forward: Scores, outward: Scores) -> dict[fx.Node, fx.Node]:
        """What stands for the four products; nothing, and no node is left, where a template declines."""
        found = self.found
        q, k = self.product.args
        value = found.root.args[1]
        grad: Any = found.ends[2].args[1]
        place = min(found.ends)
        softmax: Any = found.softmax.meta["val"]
        dim: Any = found.softmax.args[1]
        lanes, queries, _ = found.shares.meta["val"].shape
        heads = heads_of(softmax, lanes)
        mode = fake_mode_of(self.graph)
        late = [*outward.reads, grad]
        if mode is None or not all(node < found.root for node in forward.reads) or not all(n < place for n in late):
            return {}
        rows = [empty(mode, lanes // heads, heads, queries, device=softmax.device) for _ in range(2)]
        scores: Any = found.softmax.args[0]
        bodies = (forward.body(scores), graph_of((found.softmax,), found.path, found.shares))
        more = (dim, tuple(forward.reads))
        operands = (q, k, value, heads)
        vals = (found.root.meta["val"], *rows)
        if refusal(None, found.root, ATTEND, (*operands, *bodies, *more), vals, self.context):
            return {}
        early = JointEditor(self.graph, found.root, mode)
        taken: Any = found.gradient.args[0]
        inward = graph_of((found.slopes,), list(reversed(found.inward)), taken)
        tail = (inward, outward.body(found.last), tuple(outward.reads))
        case = case_of_written(None, found.root, self.context, (*operands, *bodies, *more), *tail)
        if case is not None:
            training = LibraryTraining.begin(early, case, self.product, value)
            edit = JointEditor(self.graph, place, mode)
            return self._put(training.result(), training.gradients(edit, grad))
        out = early.call(ATTEND, *operands, *map(early.body, bodies), *more, known=vals)
        parts = early.parts(out)
        given = (q, k, value, *parts, grad, heads)
        vals = tuple(end.meta["val"] for end in found.ends)
        if refusal(None, place, ATTEND_BACKWARD, (*given, *bodies, *more, *tail), vals, self.context):
            early.undo()
            return {}
        edit = JointEditor(self.graph, place, mode)
        again = (*map(edit.body, bodies), *more, *map(edit.body, tail[:2]), tail[2])
        gradients = edit.parts(edit.call(ATTEND_BACKWARD, *given, *again, known=vals))
        return self._put(parts[0], gradients)

    def _put(self, result: fx.Node, gradients: Sequence[fx.Node]) -> dict[fx.Node, fx.Node]:
        """Let everybody read ``result`` and ``gradients`` in the place of the four products."""
        found = self.found
        replaced = {found.root: result, **dict(zip(found.ends, gradients, strict=True))}
        for node, now in replaced.items():
            node.replace_all_uses_with(now)
        sweep(self.graph, [*found.ends, found.root], self.results)
        return replaced
