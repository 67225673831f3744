"""Attention that a program writes out becomes one kernel: no block of scores is stored.

In: a functional graph in which products go through pointwise operations and a softmax over keys into other products. Out: an ``attend`` node in the place
of the last, for which lowering knows a template; what the template declines stays.

What is between the first products and the softmax (scales, masks, biases) is evaluated in the kernel as the program wrote it, with its
roundings: what covers all pairs is computed there, what is smaller is read. So masks that follow from positions are in no memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import getitem
from typing import Any

import torch
from attrs import define, field
from torch import fx

from ..codegen.languages import writer_of
from ..context import CompileContext
from ..devices import device_of
from ..lowering.registry import rule_for
from ..lowering.trial import refusal
from ..lowering.written_attention import ATTEND
from .engine import Editor, Match, Rule
from .patterns import Constant, Operand, Through, call
from .written_by_library import case_of_written, library_result

aten = torch.ops.aten

#: What moves elements.
MOVES = frozenset((
    aten.view.default, aten._unsafe_view.default, aten.unsqueeze.default, aten.squeeze.dim, aten.permute.default, aten.transpose.int,
    aten.expand.default, aten.clone.default,
))  # fmt: skip
CASTS = frozenset((aten._to_copy.default,))
#: What makes elements of positions, or of nothing.
_MADE = frozenset((
    aten.arange.default, aten.arange.start, aten.arange.start_step, aten.full.default, aten.ones.default, aten.zeros.default,
    aten.scalar_tensor.default,
))  # fmt: skip
_PARTS = frozenset((
    aten.tril.default, aten.triu.default, aten.slice.Tensor, aten.select.int, aten.constant_pad_nd.default, aten.new_ones.default,
    aten.new_zeros.default, aten.new_full.default, aten.full_like.default, aten.ones_like.default, aten.zeros_like.default,
))  # fmt: skip
#: Positions of a block, how many queries fill a product's, and how many programs may walk over more blocks of keys than that. An estimate, not measured: a
#: step is taken to last a microsecond, and the kernels of products and softmax ten together.
_BLOCK, _FEWEST_QUERIES, _FEWEST_PROGRAMS, _MOST_STEPS = 128, 16, 64, 16


@define
class Scores:
    """What leads from products of ``shape`` (batch times heads, m, n), or from ``given`` nodes, to a node, and what that reads besides."""

    shape: tuple[int, ...]
    given: tuple[fx.Node, ...] = ()
    products: list[fx.Node] = field(factory=list)
    inside: dict[fx.Node, None] = field(factory=dict)
    reads: dict[fx.Node, None] = field(factory=dict)
    _depends: dict[fx.Node, bool] = field(factory=dict)
    _made: dict[fx.Node, bool] = field(factory=dict)

    def collect(self, scores: fx.Node, *, deep: bool) -> None:
        """Fill in the parts. Not ``deep``: masks are read."""
        pending = [scores]
        while pending:
            node = pending.pop()
            if node in self.inside or node in self.reads or node in self.products:
                continue
            if self._is_start(node):
                self.products.append(node)
            elif self._belongs(node, deep):
                self.inside[node] = None
                pending.extend(node.all_input_nodes)
            else:
                self.reads[node] = None

    def varying(self) -> list[fx.Node]:
        """Nodes that follow from the products, and these."""
        return [node for node in (*self.inside, *self.products) if self._varies(node)]

    def _is_start(self, node: fx.Node) -> bool:
        if self.given:
            return node in self.given
        return node.target is aten.bmm.default and tuple(node.meta["val"].shape) == self.shape

    def _varies(self, node: fx.Node) -> bool:
        """Whether a node follows from products."""
        if node not in self._depends:
            self._depends[node] = self._is_start(node) or (
                is_evaluated(node) and any(map(self._varies, node.all_input_nodes))
            )
        return self._depends[node]

    def _belongs(self, node: fx.Node, deep: bool) -> bool:
        """Whether a kernel evaluates it: what follows from products, from nothing but positions, or covers all pairs."""
        if self._varies(node):
            return True
        if not is_evaluated(node):
            return False
        pairs = self.shape[1] * self.shape[2]
        return self._is_made(node) or (deep and node.meta["val"].numel() >= pairs)

    def _is_made(self, node: fx.Node) -> bool:
        if node not in self._made:
            sources = node.all_input_nodes
            known = node.target in _MADE if not sources else is_evaluated(node) and all(map(self._is_made, sources))
            self._made[node] = known
        return self._made[node]

    def body(self, scores: fx.Node, *more: fx.Node) -> fx.GraphModule:
        """The scores as a graph of the products (or all that was given), ``more``, and what is read."""
        return graph_of((*(self.given or self.products), *more, *self.reads), sorted(self.inside), scores)


def is_evaluated(node: fx.Node) -> bool:
    """Whether a kernel may evaluate a call at one point."""
    target: Any = node.target
    if node.op != "call_function" or not isinstance(node.meta.get("val"), torch.Tensor) or rule_for(target) is None:
        return False
    known = target in MOVES or target in CASTS or target in _MADE or target in _PARTS
    return known or torch.Tag.pointwise in target.tags


def graph_of(places: Sequence[fx.Node], calls: Sequence[fx.Node], result: fx.Node) -> fx.GraphModule:
    """``calls`` as a graph of ``places``."""
    graph = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    for number, place in enumerate(places):
        copies[place] = graph.placeholder(f"part_{number}")
        copies[place].meta["val"] = place.meta["val"]
    for node in calls:
        copies[node] = graph.node_copy(node, copies.__getitem__)
    graph.output((copies[result],))
    return fx.GraphModule({}, graph)


def fits(device: torch.device, lanes: Any, queries: Any, keys: Any, context: CompileContext) -> bool:
    """Whether the device has templates, and sizes are known that occupy it: a program of the kernel takes a block of one head's queries alone."""
    if writer_of(device_of(device).language(context.config)).templates is None:
        return False
    if not all(isinstance(size, int) for size in (lanes, queries, keys)):
        return False
    programs, steps = lanes * -(-queries // _BLOCK), -(-keys // _BLOCK)
    return queries >= _FEWEST_QUERIES and (programs >= _FEWEST_PROGRAMS or steps <= _MOST_STEPS)


def heads_of(softmax: torch.Tensor, lanes: int) -> int:
    """How many heads there are, as far as the shape of the softmax tells: one where it does not."""
    return softmax.shape[1] if softmax.dim() == 4 and softmax.shape[0] * softmax.shape[1] == lanes else 1


def _is_attention(match: Match, context: CompileContext) -> bool:
    return is_attention(match.val(), match.val("value"), match.val("softmax"), context)


def is_attention(root: torch.Tensor, value: torch.Tensor, shares: torch.Tensor, context: CompileContext) -> bool:
    """Whether products like ``root``, of a softmax like ``shares`` and ``value``, are worth a kernel."""
    known = all(isinstance(size, int) for size in (*root.shape, *value.shape, *shares.shape))
    return known and fits(root.device, root.shape[0], root.shape[1], value.shape[1], context)


def _attend(match: Match, edit: Editor) -> fx.Node | None:
    root, softmax, scores, value = match.root, match["softmax"], match["scores"], match["value"]
    last: Any = root.args[0]
    shape = tuple(last.meta["val"].shape)
    heads = heads_of(softmax.meta["val"], shape[0])
    after = graph_of((softmax,), list(reversed(match["path"])), last)
    vals = (root.meta["val"],)
    for deep in (True, False):
        found = Scores(shape)
        found.collect(scores, deep=deep)
        if len(found.products) != 1 or not _are_read_by(found, softmax):
            return None
        (product,) = found.products
        operands, bodies = (*product.args, value, heads), (found.body(scores), after)
        more = (match["dim"], tuple(found.reads))
        if not refusal(edit.module, root, ATTEND, (*operands, *bodies, *more), vals, edit.context):
            case = case_of_written(edit.module, root, edit.context, (*operands, *bodies, *more))
            if case is not None:
                return library_result(edit.call, case, product, value)
            node = edit.call(ATTEND, *operands, *map(edit.body, bodies), *more, known=vals)
            return edit.call(getitem, node, 0, known=vals[0])
    return None


def _are_read_by(found: Scores, softmax: fx.Node) -> bool:
    """Whether nothing but the softmax reads what follows from the products."""
    return all(user in found.inside or user is softmax for node in found.varying() for user in node.users)


RULES = (
    Rule(
        name="attention_written_out",
        identity="softmax(f(q @ k)) @ v, the softmax divided out of the second sum: every rounding of eager's, but a share's comes before its division by the row's sum",
        pattern=call(
            aten.bmm.default,
            Through(
                MOVES | CASTS,
                call(
                    aten._softmax.default,
                    Operand("scores"),
                    Constant("dim"),
                    name="softmax",
                    only_user=True,
                    others=True,
                ),
                name="path",
                most=8,
            ),
            Operand("value"),
        ),
        check=_is_attention,
        replace=_attend,
    ),
)
