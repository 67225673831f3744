"""Losses over many classes, block by block of the classes: the language model's head and its cross entropy.

In: a graph, or the joint graph of forward and backward, with ``scores = x @ w.t() (+ bias)``, a softmax or logarithm of a sum of exponentials over
them, and what reads those: the score of a row's target, sums over classes (label smoothing), and in the backward products of the gradient of scores with
``w`` and ``x``. Out: the same values from one product for each block of classes. The forward finds each row's largest score and sum of exponentials; the
backward computes the gradient of one block of scores at a time, and with it a part of ``w``'s gradient, which is written once into its place, and a summand of
``x``'s, which is added up in float32. The gradient of all scores never is in memory, nor are all scores where no gradient is asked for.

Scores of a block are a product like others: the cut of autograd saves them, or with a memory budget below 1 has the backward compute as many again as it
takes. Why the blocks are of classes and not of rows is decision record 19.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from attrs import define, field, frozen
from torch import fx

from ..context import CompileContext
from ..devices import device_of
from ..lowering.values import compute_dtype
from ..ops.dtypes import HALVES
from .class_pieces import (
    Block,
    Maker,
    NotInPieces,
    Pick,
    Pieces,
    Statistics,
    is_followed,
    sum_over_classes,
    targets_gradient,
)
from .fakes import bytes_of, fake_mode_of, is_row_major, quietly

aten = torch.ops.aten

_TYPES = (*HALVES, torch.float32, torch.float64)
#: What makes a tensor of some size and of its first argument's type, with the value, or where that is among the arguments.
_FILLS = {aten.new_zeros.default: 0, aten.new_full.default: None}
_TURNS = (aten.t.default, aten.permute.default, aten.transpose.int)
#: Of a node of the backward that is not computed in the forward, though nothing in it depends on a tangent; autograd reads it.
RECOMPUTED = "recomputed"
#: Blocks of a loss: besides what is saved, one is in memory at a time.
BLOCKS = 8
#: Blocks are of a multiple of so many classes where there is a remainder anyway: whole tiles of a product.
_STEP = 128
#: Fewest classes that are worth it.
_FEWEST = 4096


def block_losses(graph: fx.Graph, results: Sequence[fx.Node], context: CompileContext) -> dict[fx.Node, fx.Node]:
    """Rewrite ``graph``. Returns what stands for each node that was replaced and that others than the graph may know."""
    mode, least = fake_mode_of(graph), context.config.blocked_losses
    replaced: dict[fx.Node, fx.Node] = {}
    if mode is None or not least:
        return replaced
    products = [
        n for op in (aten.mm.default, aten.addmm.default) for n in graph.find_nodes(op="call_function", target=op)
    ]
    for product in products:
        if not _is_large(product, least, context):
            continue
        region = _Region(product, frozenset(results))
        if region.collect():
            with quietly(mode):
                replaced |= _rewrite(graph, region)
    return replaced


def blocked_losses(gm: fx.GraphModule, context: CompileContext) -> bool:
    """The same of a graph that has no backward."""
    return bool(block_losses(gm.graph, [], context))


def _is_large(node: fx.Node, least: int, context: CompileContext) -> bool:
    val: Any = node.meta.get("val")
    if not isinstance(val, torch.Tensor) or val.dtype not in _TYPES or not node.users or node.kwargs:
        return False
    operands = [a.meta["val"] for a in node.all_input_nodes]
    if any(not isinstance(size, int) for tensor in (val, *operands) for size in tensor.shape):
        return False
    bias = operands[0] if node.target is aten.addmm.default else None
    if bias is not None and (bias.dim() != 1 or bias.shape[0] != val.shape[1]):
        return False
    large = val.shape[1] >= _FEWEST and bytes_of(val) >= least
    return large and device_of(val.device).enabled(context.config)


@define
class _Region:
    """What follows from the scores that ``product`` gives, as far as it has an element for each class, and what reads that.

    ``wide``: nodes with an element for each class, in order; ``pure``: those in which no softmax takes part. ``readers``: nodes of the forward with
    one number a row. ``ends``: nodes of the backward that sum over rows or classes. ``fills``: new tensors that are like one of ``wide`` in their type alone.
    """

    product: fx.Node
    results: frozenset[fx.Node]
    wide: dict[fx.Node, None] = field(factory=dict)
    pure: set[fx.Node] = field(factory=set)
    turned: dict[fx.Node, fx.Node] = field(factory=dict)
    readers: list[fx.Node] = field(factory=list)
    ends: list[fx.Node] = field(factory=list)
    fills: list[fx.Node] = field(factory=list)
    scores: dict[fx.Node, None] = field(factory=dict)

    @property
    def classes(self) -> int:
        return int(self.product.meta["val"].shape[1])

    def collect(self) -> bool:
        """Find everything; whether it is all known and worth it."""
        self.wide[self.product] = None
        self.pure.add(self.product)
        if self.product in self.results:
            return False
        node = self.product.next
        while node.op != "root":
            if any(a in self.wide or a in self.turned for a in node.all_input_nodes) and not self._take(node):
                return False
            node = node.next
        return bool(self.scores) and bool(self.readers)

    def _take(self, node: fx.Node) -> bool:
        if node.op != "call_function" or any(node.meta.get(note) for note in ("refused", "checks")):
            return False
        if node.meta.get("checkpoint") is not None:
            return False
        if self._is_reader(node):
            self.readers.append(node)
            return not node.meta.get("backward")
        if node.target in _FILLS and node.meta["val"].shape[-1:] != (self.classes,):
            self.fills.append(node)
            return True
        if self._is_end(node):
            self.ends.append(node)
            return bool(node.meta.get("backward"))
        if node in self.results:
            return False
        if node.target in _TURNS and _turns(node):
            self.turned[node] = node.args[0]
            return True
        if any(a in self.turned for a in node.all_input_nodes):
            return False
        rule = _WIDE.get(node.target)
        if not (is_followed(node, self.classes) if rule is None else rule(self, node)):
            return False
        if any(not isinstance(size, int) for size in node.meta["val"].shape):
            return False
        self.wide[node] = None
        if rule is None and all(a in self.pure for a in node.all_input_nodes if a in self.wide):
            self.pure.add(node)
        return True

    def _is_reader(self, node: fx.Node) -> bool:
        source: Any = node.args[0] if node.args else None
        if source not in self.wide or not source.meta["val"].dtype.is_floating_point:
            return False
        rank = source.meta["val"].dim()
        if node.target is aten.gather.default:
            index: Any = node.args[2]
            sizes = source.meta["val"].shape
            same = index not in self.wide and [*index.meta["val"].shape] == [*sizes[:-1], 1]
            return bool(same and node.args[1] % rank == rank - 1)
        if node.target not in (aten.logsumexp.default, aten.sum.dim_IntList):
            return False
        dims: Any = node.args[1]
        if not dims or [d % rank for d in dims] != [rank - 1]:
            return False
        if node.target is aten.logsumexp.default:
            self.scores[source] = None
            return source in self.pure
        return True

    def _is_end(self, node: fx.Node) -> bool:
        if node.target is aten.sum.dim_IntList:
            return node.args[0] in self.wide and node.args[1] == [0] and node.args[0].meta["val"].dim() == 2
        if node.target is not aten.mm.default or not is_row_major(node.meta["val"]):
            return False
        left, right = node.args
        inside = [a in self.wide or a in self.turned for a in (left, right)]
        # What a turned matrix multiplies from the right has no classes in the result's rows.
        return inside == [True, False] or (inside == [False, True] and right in self.wide)

    def _is_softmax(self, node: fx.Node) -> bool:
        source, dim = node.args[:2]
        if source not in self.pure or dim % source.meta["val"].dim() != source.meta["val"].dim() - 1:
            return False
        self.scores[source] = None
        return True

    def _is_targets_gradient(self, node: fx.Node) -> bool:
        used = [a for a in node.all_input_nodes if a in self.wide]
        return used == [node.args[1]] and node.meta["val"].dim() == 2

    def _is_through_softmax(self, node: fx.Node) -> bool:
        logarithms: Any = node.args[1]
        return logarithms in self.wide and logarithms.target is aten._log_softmax.default


_WIDE: dict[Any, Callable[[_Region, fx.Node], bool]] = {
    aten._log_softmax.default: _Region._is_softmax,
    aten.nll_loss_backward.default: _Region._is_targets_gradient,
    aten._log_softmax_backward_data.default: _Region._is_through_softmax,
}


def _turns(node: fx.Node) -> bool:
    val = node.meta["val"]
    if val.dim() != 2:
        return False
    order = (
        [1, 0]
        if node.target is aten.t.default
        else [d % 2 for d in (node.args[1] if node.target is aten.permute.default else node.args[1:])]
    )
    return order in ([1, 0], [0, 1]) and (node.target is not aten.permute.default or order == [1, 0])


def _rewrite(graph: fx.Graph, region: _Region) -> dict[fx.Node, fx.Node]:
    """The loss in blocks; nothing where a part of it is not known for a block."""
    before = set(graph.nodes)
    try:
        replaced = _Blocked(graph, region).run()
    except NotInPieces:
        for node in reversed(graph.nodes):
            if node not in before:
                graph.erase_node(node)
        return {}
    for node, now in replaced.items():
        node.replace_all_uses_with(now)
    gone = {*region.wide, *region.turned, *region.readers, *region.ends, *region.fills}
    for node in reversed(list(graph.nodes)):
        if node in gone:
            graph.erase_node(node)
    return replaced


@frozen
class _Sums:
    """What a loop over blocks finds for each row of each of the scores, by block."""

    peaks: list[fx.Node] = field(factory=list)
    totals: list[fx.Node] = field(factory=list)


@define
class _Blocked:
    """Makes the nodes of one loss."""

    graph: fx.Graph
    region: _Region
    blocks: list[Block] = field(init=False)
    products: dict[Block, fx.Node] = field(factory=dict)
    statistics: dict[fx.Node, Statistics] = field(factory=dict)
    #: (node, classes that are asked for) -> its values there; (node, weights of the classes or None) -> its sum over classes.
    picked: dict[tuple[fx.Node, fx.Node], fx.Node] = field(factory=dict)
    summed: dict[tuple[fx.Node, fx.Node | None], fx.Node] = field(factory=dict)

    @blocks.default
    def _blocks(self) -> list[Block]:
        classes = self.region.classes
        width = -(-classes // BLOCKS)
        if classes % BLOCKS or width % 8:
            width = -(-width // _STEP) * _STEP
        return [Block(start, min(start + width, classes)) for start in range(0, classes, width)]

    def run(self) -> dict[fx.Node, fx.Node]:
        """What stands for readers and ends."""
        region = self.region
        replaced: dict[fx.Node, fx.Node] = {}
        first = min(region.readers)
        self._bring(first, [n for n in region.wide if not n.meta.get("backward")] + region.readers)
        make = Maker(self.graph, first, {})
        self._forward(make)
        for reader in region.readers:
            replaced[reader] = self._reader(make, reader)
        for node in region.fills:
            value: Any = node.args[2] if _FILLS[node.target] is None else _FILLS[node.target]
            val, late = node.meta["val"], bool(node.meta.get("backward"))
            of_node = Maker(self.graph, node, {"backward": True} if late else {})
            replaced[node] = of_node.call(aten.full.default, node.args[1], value, dtype=val.dtype, device=val.device)
        if region.ends:
            last = min(region.ends)
            self._bring(last, [n for n in region.wide if n.meta.get("backward")] + region.ends)
            replaced |= self._backward(Maker(self.graph, last, {"backward": True, RECOMPUTED: True}))
        return replaced

    def _bring(self, place: fx.Node, nodes: Sequence[fx.Node]) -> None:
        """Move what ``nodes`` read from outside in front of ``place``."""
        region = self.region
        inside = {*region.wide, *region.turned, *region.readers, *region.ends}
        found: set[fx.Node] = set()
        pending = [a for node in nodes for a in node.all_input_nodes if a not in inside]
        while pending:
            node = pending.pop()
            if node in found or node < place:
                continue
            if node in inside or node.op != "call_function" or node.meta.get("checks"):
                raise NotInPieces(str(node))
            found.add(node)
            pending += node.all_input_nodes
        for node in sorted(found):
            place.prepend(node)

    def _product(self, make: Maker, block: Block) -> fx.Node:
        *bias, x, weight = self.region.product.args
        own = [block.of_vector(make, b) for b in bias]
        columns = make.call(aten.slice.Tensor, weight, 1, block.start, block.end)
        return make.call(self.region.product.target, *own, x, columns)

    # The forward.

    def _forward(self, make: Maker) -> None:
        picks, sums = self._asked()
        rows = {scores: _Sums() for scores in self.region.scores}
        picked: dict[tuple[fx.Node, fx.Node], fx.Node] = {}
        for block in self.blocks:
            product = self._product(make, block)
            self.products[block] = product
            pieces = self._pieces(make, block, product)
            for scores, found in rows.items():
                wide = compute_dtype(scores.meta["val"].dtype)
                own = make.as_type(pieces.of(scores), wide)
                peak = make.call(aten.amax.default, own, [-1], True)
                powers = make.call(aten.exp.default, make.call(aten.sub.Tensor, own, peak))
                found.peaks.append(peak)
                found.totals.append(make.call(aten.sum.dim_IntList, powers, [-1], True))
            for node, classes in picks:
                chosen = block.chosen(make, classes)
                value = make.call(aten.where.ScalarOther, chosen, pieces.of(node), -torch.inf)
                best = make.call(aten.amax.default, value, [-1], True)
                known = picked.get((node, classes))
                picked[node, classes] = best if known is None else make.call(aten.maximum.default, known, best)
            for asked in sums:
                node, weights = asked
                own = make.as_type(pieces.of(node), compute_dtype(node.meta["val"].dtype))
                if weights is not None:
                    own = make.call(aten.mul.Tensor, own, pieces.of(weights))
                part = make.call(aten.sum.dim_IntList, own, [-1], True)
                before = self.summed.get(asked)
                self.summed[asked] = part if before is None else make.call(aten.add.Tensor, before, part)
        for (node, classes), value in picked.items():
            self.picked[node, classes] = self._checked(make, classes, value)
        for scores, found in rows.items():
            self.statistics[scores] = _combined(make, found)

    def _asked(self) -> tuple[list[tuple[fx.Node, fx.Node]], list[tuple[fx.Node, fx.Node | None]]]:
        """What the loop has to find besides the sums of exponentials."""
        picks: dict[tuple[fx.Node, fx.Node], None] = {}
        sums: dict[tuple[fx.Node, fx.Node | None], None] = {}
        for reader in self.region.readers:
            source: Any = reader.args[0]
            if reader.target is aten.gather.default:
                picks.update(((node, reader.args[2]), None) for node in self._pure_behind(source))
            elif reader.target is aten.sum.dim_IntList:
                weighted = _weighted(source, self.region)
                if weighted is not None:
                    sums[weighted[0].args[0], weighted[1]] = None
                else:
                    sums.update(((node, None), None) for node in self._pure_behind(source))
        return list(picks), list(sums)

    def _pure_behind(self, source: fx.Node) -> list[fx.Node]:
        """The nodes that no softmax takes part in and that ``source`` is computed from, through others at most."""
        found: dict[fx.Node, None] = {}
        pending = [source]
        while pending:
            node = pending.pop()
            if node in self.region.pure:
                found[node] = None
            elif node in self.region.wide:
                pending += node.all_input_nodes
        return list(found)

    def _checked(self, make: Maker, classes: fx.Node, value: fx.Node) -> fx.Node:
        """``value``, after a look at a row of zeros there: a class that does not exist is an error as in eager."""
        val = value.meta["val"]
        zero = make.call(aten.full.default, [1], 0, dtype=val.dtype, device=val.device)
        whole = make.call(aten.expand.default, zero, [*val.shape[:-1], self.region.classes])
        return make.call(aten.add.Tensor, value, make.call(aten.gather.default, whole, -1, classes))

    def _reader(self, make: Maker, node: fx.Node) -> fx.Node:
        """What a node of one number a row is computed from."""
        source: Any = node.args[0]
        val = node.meta["val"]
        if node.target is aten.gather.default:
            classes: Any = node.args[2]
            known = {n: value for (n, asked), value in self.picked.items() if asked is classes}
            pieces = Pieces(make, Pick(classes), self.region.classes, self.region.wide, self.statistics, known)
            return pieces.of(source)
        if node.target is aten.logsumexp.default:
            found = self.statistics[source]
            endless = make.call(aten.eq.Scalar, make.call(aten.abs.default, found.peak), torch.inf)
            total = make.call(aten.add.Tensor, found.peak, found.log_total)
            result = make.call(aten.where.self, endless, found.peak, total)
        else:
            result = self._sum(make, source)
        result = make.as_type(result, val.dtype)
        return result if result.meta["val"].dim() == val.dim() else make.call(aten.squeeze.dim, result, -1)

    def _sum(self, make: Maker, source: fx.Node) -> fx.Node:
        """A sum over classes, of scores or of logarithms of shares, which may be weighted."""
        classes, wide = self.region.classes, compute_dtype(source.meta["val"].dtype)
        weighted = _weighted(source, self.region)
        if weighted is not None:
            logarithms, weights = weighted
            scores: Any = logarithms.args[0]
            less = sum_over_classes(make, weights, classes, {}, wide)
            return make.call(aten.sub.Tensor, self.summed[scores, weights], self._level(make, scores, less))
        known = {node: value for (node, weights), value in self.summed.items() if weights is None}
        for node in self.region.wide:
            if node.target is aten._log_softmax.default and node.args[0] in known:
                scores = node.args[0]
                known[node] = make.call(aten.sub.Tensor, known[scores], self._level(make, scores, classes))
        return sum_over_classes(make, source, classes, known, wide)

    def _level(self, make: Maker, scores: fx.Node, times: Any) -> fx.Node:
        """The logarithm of a row's sum of exponentials, so many times."""
        found = self.statistics[scores]
        level = make.call(aten.add.Tensor, found.peak, found.log_total)
        return make.call(aten.mul.Tensor if isinstance(times, fx.Node) else aten.mul.Scalar, level, times)

    # The backward.

    def _backward(self, make: Maker) -> dict[fx.Node, fx.Node]:
        region = self.region
        sums: dict[fx.Node, fx.Node] = {}
        for node in region.wide:
            wide = compute_dtype(node.meta["val"].dtype)
            if node.target is aten.nll_loss_backward.default:
                sums[node] = targets_gradient(make, node, wide)
            elif node.target is aten._log_softmax_backward_data.default:
                sums[node] = sum_over_classes(make, node.args[0], region.classes, sums, wide)
        parts: dict[fx.Node, list[fx.Node]] = {end: [] for end in region.ends}
        for block in reversed(self.blocks):
            pieces = self._pieces(make, block, self.products[block])
            pieces.sums = sums
            for end in region.ends:
                self._part(make, block, pieces, end, parts[end])
        return {end: _joined(make, end, found, region) for end, found in parts.items()}

    def _part(self, make: Maker, block: Block, pieces: Pieces, end: fx.Node, parts: list[fx.Node]) -> None:
        """What a block gives of one result: a part of it, or the sum of it and of what came before."""
        region, val = self.region, end.meta["val"]
        if end.target is aten.sum.dim_IntList:
            parts.insert(0, make.call(end.target, pieces.of(end.args[0]), *end.args[1:], **end.kwargs))
            return
        left, right = end.args
        if left in region.turned:
            turned = make.call(aten.t.default, pieces.of(region.turned[left]))
            parts.insert(0, make.call(aten.mm.default, turned, right))
        elif right in region.wide:
            parts.insert(0, make.call(aten.mm.default, left, pieces.of(right)))
        else:
            rows = make.call(aten.slice.Tensor, right, 0, block.start, block.end)
            parts[:] = [_added(make, parts, pieces.of(left), rows, compute_dtype(val.dtype))]

    def _pieces(self, make: Maker, block: Block, product: fx.Node) -> Pieces:
        known = {self.region.product: product}
        return Pieces(make, block, self.region.classes, self.region.wide, self.statistics, known)


def _weighted(source: fx.Node, region: _Region) -> tuple[fx.Node, fx.Node] | None:
    """Logarithms of shares and what they are multiplied by, where that is one number for each class."""
    if source.target is not aten.mul.Tensor:
        return None
    for node, weights in (source.args, source.args[::-1]):
        inside = isinstance(node, fx.Node) and node in region.wide and node.target is aten._log_softmax.default
        if inside and isinstance(weights, fx.Node) and weights.meta["val"].numel() == region.classes:
            return node, weights
    return None


def _combined(make: Maker, found: _Sums) -> Statistics:
    """Of a whole row, from those of its blocks."""
    peak = found.peaks[0]
    for other in found.peaks[1:]:
        peak = make.call(aten.maximum.default, peak, other)
    total: fx.Node | None = None
    for own, part in zip(found.peaks, found.totals, strict=True):
        # A row of a block may have nothing but -inf, which counts for nothing in the row.
        part = make.call(aten.where.ScalarSelf, make.call(aten.eq.Scalar, own, -torch.inf), 0, part)
        faded = make.call(aten.mul.Tensor, part, make.call(aten.exp.default, make.call(aten.sub.Tensor, own, peak)))
        total = faded if total is None else make.call(aten.add.Tensor, total, faded)
    assert total is not None
    return Statistics(peak, total, make.call(aten.log.default, total))


def _added(make: Maker, before: Sequence[fx.Node], left: fx.Node, right: fx.Node, wide: torch.dtype) -> fx.Node:
    """``left @ right`` in the type that sums are kept in, added to what came before."""
    val = left.meta["val"]
    if left.meta["val"].dtype is not wide and not device_of(val.device).is_host and "dtype" in aten.mm.overloads():
        # Not `addmm.dtype`: in some versions of torch what is added has to have the operands' type.
        product = make.call(aten.mm.dtype, left, right, wide)
        return make.call(aten.add.Tensor, *before, product) if before else product
    left, right = make.as_type(left, wide), make.as_type(right, wide)
    target: Any = aten.addmm.default if before else aten.mm.default
    return make.call(target, *before, left, right)


def _joined(make: Maker, end: fx.Node, parts: Sequence[fx.Node], region: _Region) -> fx.Node:
    """A result from what blocks gave of it."""
    val = end.meta["val"]
    if len(parts) == 1:
        return make.as_type(parts[0], val.dtype)
    along = 0 if end.target is aten.mm.default and end.args[0] in region.turned else val.dim() - 1
    return make.call(aten.cat.default, list(parts), along)
