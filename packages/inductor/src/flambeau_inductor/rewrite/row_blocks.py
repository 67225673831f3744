"""Losses over many classes, block by block of the rows, gradients and all: for gradients that are multiples of one number, that of the loss.

In: a region of a joint graph (``loss_region.py``). Out: for each block of rows a product for its scores; the loss of these rows; the gradient of their scores
as it is for a loss with the gradient 1, which may be written over them; with it these rows of ``x``'s gradient and what they add to ``w``'s. All that is part of
the forward. To the backward it is left to multiply by the number that comes in. Scores of one block are in memory at a time.

Raises ``NotInPieces`` where gradients are not such multiples, or rows are not known one by one. When that is better than blocks of classes: decision record 19.
"""

from __future__ import annotations

from math import prod
from typing import Any

import torch
from attrs import define, field, frozen
from torch import fx

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
from .fakes import bytes_of
from .loss_region import FILLS, Region
from .multiples import multiples

aten = torch.ops.aten

#: Rows of a block in float32, the most that are faster first, and the fewest in half precision, which takes as few blocks as fit: what is added up over blocks is read and
#: written once for each, and products of fewer rows are slower themselves. Measured on an H200 (torch 2.11, 128,256 classes, 2,048 features; ms of forward and backward, all rows at once in
#: brackets): TF32 4,096 rows by 2,048 20.4, by 1,024 23.0, by 832 25.9, by 512 24.7 (20.6); bfloat16 16,384 rows by 8,192 40.9, by 5,504 42.5, by 4,096 43.9 (42.9), 8,192 rows by
#: 4,096 20.9, by 2,048 21.5 (20.7), 4,096 rows by 1,024 11.4, by 512 14.0 (10.5).
ROWS = (4096, 2048)
#: Tensors of all scores that eager has in memory at a time, and the part of that which blocks are to take.
EAGER, PART = 3, 4
#: What blocks may take of what blocks of classes take, where that is more.
_LESS = 0.9
#: A multiple of so many rows is a whole number of tiles of a product.
_TILE = 128
_VIEWS = (
    aten.view.default, aten._unsafe_view.default, aten.reshape.default, aten.expand.default, aten.slice.Tensor, aten.select.int,
    aten.unsqueeze.default, aten.squeeze.dim,
)  # fmt: skip
_SIZED = (
    aten.slice_scatter.default,
    aten.new_zeros.default,
    aten.new_full.default,
    aten.full.default,
    aten.zeros.default,
)


def rows_of_blocks(region: Region) -> int:
    """How many rows a block has; 0 where blocks of classes are better."""
    scores = region.product.meta["val"]
    rows, classes = scores.shape
    item = max(node.meta["val"].dtype.itemsize for node in region.wide if node.meta["val"].dtype.is_floating_point)
    kept, given = sum(_kept(end, region) for end in region.ends), sum(bytes_of(end.meta["val"]) for end in region.ends)
    # The most that is in memory, in the forward or in the backward, which makes its results of what was kept.
    peaks = {
        block: kept + max(block * classes * scores.dtype.itemsize, given)
        for block in _sizes(rows, scores.dtype.itemsize)
    }
    for most in (EAGER * rows * classes * item / PART, _LESS * (bytes_of(scores) + given)):
        for block, peak in peaks.items():
            if peak <= most:
                return block
    return 0


def _sizes(rows: int, itemsize: int) -> list[int]:
    """What blocks may have, the fastest first."""
    halves = [-(-rows // (parts * _TILE)) * _TILE for parts in range(2, rows // ROWS[-1] + 1)]
    return [block for block in (ROWS if itemsize > 2 else halves) if block < rows]


def _kept(end: fx.Node, region: Region) -> int:
    """Bytes of a result between forward and backward: what rows are added up in is as wide as what is computed with."""
    val = end.meta["val"]
    return bytes_of(val) if _is_in_rows(end, region) else val.numel() * compute_dtype(val.dtype).itemsize


def _is_in_rows(end: fx.Node, region: Region) -> bool:
    """Whether each row of a result follows from the same row of scores."""
    return end.target is aten.mm.default and end.args[0] in region.wide


@frozen
class _Rows:
    start: int
    end: int

    @property
    def count(self) -> int:
        return self.end - self.start


@define
class _RowPieces(Pieces):
    """The same for some rows: each value has these rows, and the classes of the piece or one number."""

    rows: _Rows = field(kw_only=True)
    total: int = field(kw_only=True)
    shared: dict[fx.Node, fx.Node] = field(kw_only=True)

    def _column(self, node: fx.Node) -> fx.Node:
        return self.of_rows(node)

    def of_rows(self, node: fx.Node) -> fx.Node:
        """These rows of what has one number a row."""
        column = self.shared.get(node)
        if column is None:
            column = self.shared[node] = self.make.call(aten.reshape.default, node, [self.total, 1])
        return self.make.call(aten.slice.Tensor, column, 0, self.rows.start, self.rows.end)

    def whole(self, node: Any) -> fx.Node:
        """The piece of ``node`` in its full size."""
        found: fx.Node = self.of(node)
        sizes = [self.rows.count, self.piece.width]
        return found if [*found.meta["val"].shape] == sizes else self.make.call(aten.expand.default, found, sizes)

    def _operand(self, node: fx.Node) -> fx.Node:
        val: Any = node.meta.get("val")
        if not isinstance(val, torch.Tensor):
            raise NotInPieces(str(node))
        if val.dim() == 0:
            return node
        if val.shape[-1] == self.classes and val.numel() == self.classes:
            return self.piece.of_vector(self.make, self.make.call(aten.reshape.default, node, [1, self.classes]))
        if val.shape[-1] == 1 and val.numel() == 1:
            return self.make.call(aten.reshape.default, node, [1, 1])
        if val.shape[-1] == 1 and val.numel() == self.total:
            return self.of_rows(node)
        if val.shape[-1] != self.classes or val.numel() != self.total * self.classes:
            raise NotInPieces(str(node))
        return self._made(node)

    def _cloned(self, node: fx.Node) -> fx.Node:
        source: Any = node.args[0] if node.args else None
        if node.target in _VIEWS and (node.target is aten.expand.default or _count(source) == _count(node)):
            # Rows stay in their order, and what is the same for several is so without being repeated.
            return self.of(source)
        if node.target in _VIEWS or node.target in _SIZED or _count(node) != self.total * self.classes:
            raise NotInPieces(str(node))
        return super()._cloned(node)


def _count(node: fx.Node) -> int:
    return prod(node.meta["val"].shape)


@define
class RowBlocks:
    """Makes the nodes of one loss."""

    graph: fx.Graph
    region: Region
    width: int
    #: Nodes of the region that were made to read other arguments, with those that they had.
    changed: dict[fx.Node, tuple[tuple[Any, ...], dict[str, Any]]] = field(factory=dict)
    #: What stands for nodes that are not of the region and follow from the factor or from new tensors.
    stands: dict[fx.Node, fx.Node] = field(factory=dict)
    sums: dict[fx.Node, fx.Node] = field(factory=dict)
    columns: dict[fx.Node, fx.Node] = field(factory=dict)
    #: What blocks give of a reader or end: one part each, or one sum.
    parts: dict[fx.Node, list[fx.Node]] = field(factory=dict)

    @property
    def rows(self) -> int:
        return int(self.region.product.meta["val"].shape[0])

    def run(self) -> dict[fx.Node, fx.Node]:
        """What stands for readers and ends."""
        try:
            return self._run(self._factor())
        finally:
            for node, (args, kwargs) in self.changed.items():
                node.args, node.kwargs = args, kwargs

    def _factor(self) -> fx.Node:
        """The number that all gradients are multiples of."""
        region = self.region
        if any(node.meta["val"].dtype is torch.float16 for node in region.wide):
            # With the gradient that comes in as a factor small slopes may be in its range; without, they are not.
            raise NotInPieces("float16")
        if region.product.meta["val"].dtype in HALVES and device_of(region.product.meta["val"].device).is_host:
            raise NotInPieces("sums of half precision on the CPU")
        found = multiples(self.graph)
        factors = {found.get(end) for end in region.ends}
        (factor,) = factors if len(factors) == 1 else (None,)
        if factor is None or factor.meta["val"].dim():
            raise NotInPieces("the gradients are no multiples of one number")
        return factor

    def _run(self, factor: fx.Node) -> dict[fx.Node, fx.Node]:
        region = self.region
        first = min(region.readers)
        make = Maker(self.graph, first, {})
        self._without(factor, make)
        replaced = {node: self.stands[node] for node in region.fills}
        region.bring(first, [*region.wide, *region.readers, *region.ends])
        for node in region.wide:
            wide = compute_dtype(node.meta["val"].dtype)
            if node.target is aten.nll_loss_backward.default:
                self.sums[node] = targets_gradient(make, node, wide)
            elif node.target is aten._log_softmax_backward_data.default:
                self.sums[node] = sum_over_classes(make, node.args[0], region.classes, self.sums, wide)
        for start in range(0, self.rows, self.width):
            self._block(make, _Rows(start, min(start + self.width, self.rows)))
        for node in region.readers:
            replaced[node] = self._reader(make, node)
        for end in region.ends:
            replaced[end] = self._end(make, end, factor)
        return replaced

    def _without(self, factor: fx.Node, make: Maker) -> None:
        """Let the region read what there is with 1 in the place of ``factor``, and new tensors of its type that do not depend on it."""
        region = self.region
        val = factor.meta["val"]
        stands = self.stands
        stands[factor] = make.call(aten.full.default, [], 1, dtype=val.dtype, device=val.device)
        for node in region.fills:
            value: Any = node.args[2] if FILLS[node.target] is None else FILLS[node.target]
            own = node.meta["val"]
            early = Maker(self.graph, min(node, make.before), {})
            stands[node] = early.call(aten.full.default, node.args[1], value, dtype=own.dtype, device=own.device)
        inside = {*region.wide, *region.turned, *region.readers, *region.ends}
        needed = set(inside)
        for node in reversed(self.graph.nodes):
            if node in needed:
                needed.update(node.all_input_nodes)
        for node in [node for node in self.graph.nodes if node in needed]:
            if node.op != "call_function" or node in stands or not any(a in stands for a in node.all_input_nodes):
                continue
            if node in inside:
                self.changed[node] = node.args, dict(node.kwargs)
                for old in node.all_input_nodes:
                    node.replace_input_with(old, stands.get(old, old))
            else:
                copy = self.graph.node_copy(node, lambda n: stands.get(n, n))
                node.append(copy)
                copy.meta.pop("backward", None)
                stands[node] = copy

    # One block.

    def _block(self, make: Maker, rows: _Rows) -> None:
        region = self.region
        *bias, x, weight = region.product.args
        own = make.call(aten.slice.Tensor, x, 0, rows.start, rows.end)
        product = make.call(region.product.target, *bias, own, weight)
        statistics: dict[fx.Node, Statistics] = {}
        known = {region.product: product}
        pieces = self._pieces(make, Block(0, region.classes), rows, statistics, known)
        for scores in region.scores:
            wide = compute_dtype(scores.meta["val"].dtype)
            values = make.as_type(pieces.whole(scores), wide)
            peak = make.call(aten.amax.default, values, [-1], True)
            powers = make.call(aten.exp.default, make.call(aten.sub.Tensor, values, peak))
            total = make.call(aten.sum.dim_IntList, powers, [-1], True)
            statistics[scores] = Statistics(peak, total, make.call(aten.log.default, total))
        for reader in region.readers:
            self.parts.setdefault(reader, []).append(self._read(make, reader, rows, pieces))
        for end in region.ends:
            self._part(make, end, rows, pieces)

    def _pieces(
        self,
        make: Maker,
        piece: Block | Pick,
        rows: _Rows,
        statistics: dict[fx.Node, Statistics],
        known: dict[fx.Node, fx.Node],
    ) -> _RowPieces:
        found = _RowPieces(
            make, piece, self.region.classes, self.region.wide, statistics, known,
            rows=rows, total=self.rows, shared=self.columns,
        )  # fmt: skip
        if isinstance(piece, Block):
            found.sums = {node: found.of_rows(total) for node, total in self.sums.items()}
        return found

    def _read(self, make: Maker, reader: fx.Node, rows: _Rows, pieces: _RowPieces) -> fx.Node:
        """What these rows give of a number a row."""
        source: Any = reader.args[0]
        if reader.target is aten.gather.default:
            classes: Any = reader.args[2]
            own = pieces.of_rows(classes)
            whole = Block(0, self.region.classes)
            behind = self.region.pure_behind(source)
            known = {node: chosen_value(make, whole, own, pieces.whole(node)) for node in behind}
            return self._pieces(make, Pick(own), rows, dict(pieces.statistics), known).of(source)
        if reader.target is aten.logsumexp.default:
            found = pieces.statistics[source]
            endless = make.call(aten.eq.Scalar, make.call(aten.abs.default, found.peak), torch.inf)
            return make.call(
                aten.where.self, endless, found.peak, make.call(aten.add.Tensor, found.peak, found.log_total)
            )
        values = make.as_type(pieces.whole(source), compute_dtype(source.meta["val"].dtype))
        return make.call(aten.sum.dim_IntList, values, [-1], True)

    def _part(self, make: Maker, end: fx.Node, rows: _Rows, pieces: _RowPieces) -> None:
        parts, region, wide = self.parts.setdefault(end, []), self.region, compute_dtype(end.meta["val"].dtype)
        if end.target is aten.sum.dim_IntList:
            values = make.as_type(pieces.whole(end.args[0]), wide)
            part = make.call(aten.sum.dim_IntList, values, *end.args[1:])
            parts[:] = [make.call(aten.add.Tensor, *parts, part) if parts else part]
            return
        left, right = end.args
        if left in region.wide:
            parts.append(make.call(aten.mm.default, pieces.whole(left), right))
        elif left in region.turned:
            turned = make.call(aten.t.default, pieces.whole(region.turned[left]))
            own = make.call(aten.slice.Tensor, right, 0, rows.start, rows.end)
            parts[:] = [added(make, parts, turned, own, wide, at_once=True)]
        else:
            own = make.call(aten.slice.Tensor, left, 1, rows.start, rows.end)
            parts[:] = [added(make, parts, own, pieces.whole(right), wide, at_once=True)]

    # Their results.

    def _reader(self, make: Maker, node: fx.Node) -> fx.Node:
        val = node.meta["val"]
        joined = make.as_type(make.call(aten.cat.default, self.parts[node], 0), val.dtype)
        result = make.call(aten.reshape.default, joined, [*val.shape])
        return (
            checked(make, self.region.classes, node.args[2], result) if node.target is aten.gather.default else result
        )

    def _end(self, make: Maker, end: fx.Node, factor: fx.Node) -> fx.Node:
        """A gradient, in the backward: what the forward found, times the number that came in."""
        parts, val = self.parts[end], end.meta["val"]
        found = make.call(aten.cat.default, parts, 0) if len(parts) > 1 else parts[0]
        late = Maker(self.graph, end, {"backward": True})
        wide = compute_dtype(val.dtype)
        scaled = late.call(aten.mul.Tensor, late.as_type(found, wide), late.as_type(factor, wide))
        return late.as_type(scaled, val.dtype)
