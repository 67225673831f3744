"""Losses over many classes, block by block of the classes: the language model's head and its cross entropy.

In: a graph, or the joint graph of forward and backward, with ``scores = x @ w.t() (+ bias)``, a softmax or logarithm of a sum of exponentials over
them, and what reads those: the score of a row's target, sums over classes (label smoothing), and in the backward products of the gradient of scores with
``w`` and ``x``. Out: the same values from one product for each block of classes. The forward finds each row's largest score and sum of exponentials; the
backward computes the gradient of one block of scores at a time, and with it a part of ``w``'s gradient, which is written once into its place, and a summand of
``x``'s, which is added up in float32. The gradient of all scores never is in memory, nor are all scores where no gradient is asked for.

Scores of a block are a product like others: the cut of autograd saves them, or with a memory budget below 1 has the backward compute as many again as it
takes. Where there are so many rows that blocks of rows (``row_blocks.py``) take less memory and no longer, those come first: decision record 19.
"""

from __future__ import annotations

from collections.abc import Sequence
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
    added,
    checked,
    chosen_value,
    sum_over_classes,
    targets_gradient,
)
from .fakes import bytes_of, fake_mode_of, quietly
from .loss_region import FILLS, Region
from .row_blocks import RowBlocks, rows_of_blocks

aten = torch.ops.aten

_TYPES = (*HALVES, torch.float32, torch.float64)
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
        region = Region(product, frozenset(results))
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


def _rewrite(graph: fx.Graph, region: Region) -> dict[fx.Node, fx.Node]:
    """The loss in blocks; nothing where a part of it is not known for a block."""
    rows = rows_of_blocks(region) if region.ends else 0
    replaced = _tried(graph, RowBlocks(graph, region, rows)) if rows else {}
    replaced = replaced or _tried(graph, _Blocked(graph, region))
    if not replaced:
        return {}
    for node, now in replaced.items():
        node.replace_all_uses_with(now)
    gone = {*region.wide, *region.turned, *region.readers, *region.ends, *region.fills}
    for node in reversed(list(graph.nodes)):
        if node in gone:
            graph.erase_node(node)
    return replaced


def _tried(graph: fx.Graph, way: RowBlocks | _Blocked) -> dict[fx.Node, fx.Node]:
    """What it makes; nothing, and nothing of it in the graph, where that cannot be done."""
    before = set(graph.nodes)
    try:
        return way.run()
    except NotInPieces:
        for node in reversed(graph.nodes):
            if node not in before:
                graph.erase_node(node)
        return {}


@frozen
class _Sums:
    """What a loop over blocks finds for each row of each of the scores, by block."""

    peaks: list[fx.Node] = field(factory=list)
    totals: list[fx.Node] = field(factory=list)


@define
class _Blocked:
    """Makes the nodes of one loss."""

    graph: fx.Graph
    region: Region
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
        region.bring(first, [n for n in region.wide if not n.meta.get("backward")] + region.readers)
        make = Maker(self.graph, first, {})
        self._forward(make)
        for reader in region.readers:
            replaced[reader] = self._reader(make, reader)
        for node in region.fills:
            value: Any = node.args[2] if FILLS[node.target] is None else FILLS[node.target]
            val, late = node.meta["val"], bool(node.meta.get("backward"))
            of_node = Maker(self.graph, node, {"backward": True} if late else {})
            replaced[node] = of_node.call(aten.full.default, node.args[1], value, dtype=val.dtype, device=val.device)
        if region.ends:
            last = min(region.ends)
            region.bring(last, [n for n in region.wide if n.meta.get("backward")] + region.ends)
            replaced |= self._backward(Maker(self.graph, last, {"backward": True, RECOMPUTED: True}))
        return replaced

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
                best = chosen_value(make, block, classes, pieces.of(node))
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
            self.picked[node, classes] = checked(make, self.region.classes, classes, value)
        for scores, found in rows.items():
            self.statistics[scores] = _combined(make, found)

    def _asked(self) -> tuple[list[tuple[fx.Node, fx.Node]], list[tuple[fx.Node, fx.Node | None]]]:
        """What the loop has to find besides the sums of exponentials."""
        picks: dict[tuple[fx.Node, fx.Node], None] = {}
        sums: dict[tuple[fx.Node, fx.Node | None], None] = {}
        for reader in self.region.readers:
            source: Any = reader.args[0]
            if reader.target is aten.gather.default:
                picks.update(((node, reader.args[2]), None) for node in self.region.pure_behind(source))
            elif reader.target is aten.sum.dim_IntList:
                weighted = _weighted(source, self.region)
                if weighted is not None:
                    sums[weighted[0].args[0], weighted[1]] = None
                else:
                    sums.update(((node, None), None) for node in self.region.pure_behind(source))
        return list(picks), list(sums)

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
            parts[:] = [added(make, parts, pieces.of(left), rows, compute_dtype(val.dtype))]

    def _pieces(self, make: Maker, block: Block, product: fx.Node) -> Pieces:
        known = {self.region.product: product}
        return Pieces(make, block, self.region.classes, self.region.wide, self.statistics, known)


def _weighted(source: fx.Node, region: Region) -> tuple[fx.Node, fx.Node] | None:
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


def _joined(make: Maker, end: fx.Node, parts: Sequence[fx.Node], region: Region) -> fx.Node:
    """A result from what blocks gave of it."""
    val = end.meta["val"]
    if len(parts) == 1:
        return make.as_type(parts[0], val.dtype)
    along = 0 if end.target is aten.mm.default and end.args[0] in region.turned else val.dim() - 1
    return make.call(aten.cat.default, list(parts), along)
