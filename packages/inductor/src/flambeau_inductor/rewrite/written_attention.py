"""Attention that a program writes out becomes one kernel: no block of scores is stored.

In: a functional graph in which products go through pointwise operations and a softmax over keys into other products. Out: an ``attend`` node in the place
of the last, for which lowering knows a template; what the template declines stays.

What is between the first products and the softmax (scales, masks, biases) is evaluated in the kernel as the program wrote it, with its
roundings: what covers all pairs is computed there, what is smaller is read. So masks that follow from positions are in no memory.
"""

from __future__ import annotations

import math
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
from .patterns import Call, Constant, Operand, Through, argument, call
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
#: How many queries are worth packing keys and values for, in a kernel that is cut into ranges.
_FEWEST_ROWS = 12


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
    return is_of_points(target)


def is_of_points(target: Any) -> bool:
    """Whether an op computes each element of few, which are at places that are known."""
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
    language = device_of(device).language(context.config)
    if writer_of(language).templates is None:
        return False
    if not all(isinstance(size, int) for size in (lanes, queries, keys)):
        return False
    if not language.in_grid:
        return queries >= _FEWEST_ROWS
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
    return _attended(match, edit, match["softmax"], (match["softmax"],), empty_is_zero=False)


def _attend_safely(match: Match, edit: Editor) -> fx.Node | None:
    softmax, empty, zeros = match["softmax"], match["empty"], match["zeros"]
    (lowest,) = empty.all_input_nodes
    is_lowest = lowest.target is aten.eq.Scalar and lowest.args == (match["scores"], -math.inf)
    along = argument(empty, "dim") == match["dim"] and argument(empty, "keepdim")
    private = {*softmax.users} <= {match["shares"], zeros} and {*lowest.users} == {empty}
    if not (is_lowest and along and private and _is_zero(zeros)):
        return None
    return _attended(match, edit, match["shares"], (softmax, lowest), empty_is_zero=True)


def _is_zero(node: fx.Node) -> bool:
    filled = node.target in (aten.full_like.default, aten.full.default) and node.args[1] == 0
    return filled or node.target is aten.zeros_like.default


def _attended(
    match: Match, edit: Editor, shares: fx.Node, readers: Sequence[fx.Node], *, empty_is_zero: bool
) -> fx.Node | None:
    """The node in the place of the last products: of ``shares``, which come of scores that nothing but ``readers`` reads."""
    root, scores, value = match.root, match["scores"], match["value"]
    last: Any = root.args[0]
    shape = tuple(last.meta["val"].shape)
    heads = heads_of(shares.meta["val"], shape[0])
    after = graph_of((shares,), list(reversed(match["path"])), last)
    vals = (root.meta["val"],)
    for deep in (True, False):
        found = Scores(shape)
        found.collect(scores, deep=deep)
        if len(found.products) != 1 or not _are_read_by(found, readers):
            return None
        (product,) = found.products
        operands, bodies = (*product.args, value, heads), (found.body(scores), after)
        more: tuple[Any, ...] = (match["dim"], tuple(found.reads), *((True,) if empty_is_zero else ()))
        if not refusal(edit.module, root, ATTEND, (*operands, *bodies, *more), vals, edit.context):
            case = case_of_written(edit.module, root, edit.context, (*operands, *bodies, *more))
            if case is not None and not empty_is_zero:
                return library_result(edit.call, case, product, value)
            node = edit.call(ATTEND, *operands, *map(edit.body, bodies), *more, known=vals)
            return edit.call(getitem, node, 0, known=vals[0])
    return None


def _are_read_by(found: Scores, readers: Sequence[fx.Node]) -> bool:
    """Whether nothing but ``readers`` reads what follows from the products."""
    return all(user in found.inside or user in readers for node in found.varying() for user in node.users)


def _softmax(*, only_user: bool) -> Call:
    operands = Operand("scores"), Constant("dim")
    return call(aten._softmax.default, *operands, name="softmax", only_user=only_user, others=True)


def _shared(shares: Call) -> Call:
    """Products of ``shares``, as views or in another type, and values."""
    return call(aten.bmm.default, Through(MOVES | CASTS, shares, name="path", most=8), Operand("value"))


RULES = (
    Rule(
        name="attention_written_out",
        identity="softmax(f(q @ k)) @ v, the softmax divided out of the second sum: every rounding of eager's, but a share's comes before its division by the row's sum",
        pattern=_shared(_softmax(only_user=True)),
        check=_is_attention,
        replace=_attend,
    ),
    Rule(
        name="attention_with_empty_rows",
        identity="the same where rows of which all scores are minus infinity are zero: what the library's attention is taken apart to where it has no kernel",
        pattern=_shared(
            call(
                aten.where.self,
                call(aten.all.dim, Operand(), Constant(), name="empty", only_user=True, others=True),
                Operand("zeros"),
                _softmax(only_user=False),
                name="shares",
                only_user=True,
            )
        ),
        check=_is_attention,
        replace=_attend_safely,
    ),
)
