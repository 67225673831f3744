"""Attention as a C++ kernel: products in registers, a softmax of whole rows in the caches, products again; no matrix of scores in memory.

In: ``Template``s of attention over float32 whose pairs are those of a window. Out: kernels. The extent counts heads, and pieces of the queries where there
are few of those. Of each head, keys and values are packed once (``include/products.hpp``); then a group of queries at a time goes through
four steps: its products with the keys that the window leaves to any of them, into an array of the call; the score function and the softmax, row by row
in lanes, as other kernels compute rows; the products of the shares with the values; the division by each row's sum. A row of scores is kept
whole, so that its exponentials are computed once and of the row's largest score, as a softmax on its own computes them.

Measured on one core of a Sapphire Rapids (torch 2.11, MKL), batch x heads x queries x keys x width, the library's attention (bmm, softmax and bmm) and a kernel like these in milliseconds: 1 x 12 x 1500 x 1500 x 64
98 (342) and 78; 1 x 12 x 512 x 512 x 64 11.8 (19.6) and 9.6; 1 x 12 x 197 x 197 x 64 3.0 (3.4) and 2.0; 1 x 12 x 128 x 128 x 64 under a mask 0.78 (0.94) and 0.63, causal with 32 heads 2.4 and 1.2; 1 x 8 x 128 x 128 x 64
with a bias 0.74 (0.83) and 0.50; 64 x 3 x 49 x 49 x 32 with a bias 2.9 (3.7) and 1.6; on one of a Zen 5 a third to a half of the library's time everywhere.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch

from ... import expr as ex
from ... import kernel_ir as kir
from ...expr import Expr, Symbol
from ...ir import scalar as sc
from ...ir.layout import Ref
from ...ir.loops import Template
from ...ir.scalar import Scalar
from ...ir.templates import ATTENTION, MOST_KEPT_KEYS
from ...kernel_ir import NO_TILES, Node, Variable
from ..errors import UnsupportedKernel
from ..kernel import GeneratedKernel, with_shared_sources
from .dtypes import MEMORY, width
from .emit import Emitter, Slot
from .function import SLICE, function_text, identifier
from .layout import GRAIN
from .narrow import fits_int32
from .reduce import Accumulator

#: Queries of a group: all numbers of rows that products take at a time (``Strips::rows``) divide it.
GROUP = 24
#: Fewer heads than these are cut into pieces of so many queries, whole groups, so that there is work for several threads. A thread that has several of one head
#: packs its keys once.
_MANY_HEADS, _PIECE = 64, 2 * GROUP
_LANES = frozenset({kir.ROW})
_ONE = kir.Number(1)
_SCORES, _PACKED_KEYS, _PACKED_VALUES = (kir.Pointer(name, torch.float32) for name in ("scores", "keys", "values"))
_QUERIES, _RESULTS, _SUMS = (kir.Pointer(name, torch.float32) for name in ("queries", "results", "sums"))
_LAST_HEAD = kir.Pointer("last_head", torch.int64)


def generate_templates(templates: Sequence[Template]) -> list[GeneratedKernel]:
    """One kernel for each, in order. Raises UnsupportedKernel for those of another kind or type."""
    return with_shared_sources(map(_generated, templates))


def _generated(template: Template) -> GeneratedKernel:
    if template.kind != ATTENTION or set(template.outs) != {"out"} or "window" not in template.facts:
        raise UnsupportedKernel("attention under a block mask, or gradients, on a CPU")
    if any(template.operands[name].dtype is not torch.float32 for name in "qkv"):
        raise UnsupportedKernel("attention of another type than float32 on a CPU")
    if any(node.dtype not in MEMORY for node in sc.walk(template.bodies["inner"])):
        raise UnsupportedKernel("a score of a type that no C++ kernel has")
    return _Writer(template).generated()


def _room(columns: int) -> int:
    """Columns of an array that products of so many columns may fill: whole strips of any width."""
    return -(-columns // 64) * 64 + 64


class _Writer:
    """Builds one kernel."""

    def __init__(self, template: Template) -> None:
        self.template = template
        self.axes = {axis.symbol.name: axis for axis in template.axes}
        self.sizes = {name: int(axis.size) for name, axis in self.axes.items()}
        if self.sizes["n"] > MOST_KEPT_KEYS:
            raise UnsupportedKernel("a row of scores that is too long to be kept")
        self.operands = dict(template.operands)
        self.score = template.bodies["inner"]
        (self.out,) = template.outs.values()
        self.width, self.value_width = (int(self.operands[name].sizes[-1]) for name in "qv")
        names = [*dict.fromkeys((*template.reads, self.out.name))]
        dtypes = {node.buffer: node.dtype for node in sc.loads(self.score)}
        dtypes |= {ref.buffer: ref.dtype for ref in self.operands.values()}
        dtypes[self.out.name] = self.out.layout.dtype
        self.pointers = {name: kir.Pointer(f"b{n}", dtypes[name]) for n, name in enumerate(names)}
        self.em = Emitter(self.pointers)
        self.piece = self._piece()

    def _piece(self) -> int:
        """How many queries a step of the extent has."""
        queries = self.sizes["m"]
        return queries if self.sizes["b"] * self.sizes["h"] >= _MANY_HEADS else min(queries, _PIECE)

    def generated(self) -> GeneratedKernel:
        """The kernel, and how it is launched."""
        kernel = self._kernel()
        text = function_text(kernel, (), self._lane_bytes())
        name = f"cpp_{self.template.kind}_{identifier(self.template.name.removeprefix('fused_'))}"
        opening = f'extern "C" int64_t {name}(void* const* B, const int64_t* S, int64_t begin, int64_t end) {{\n'
        refs = [*self.operands.values(), Ref.whole(self.out)]
        moved = sum(math.prod(int(size) for size in ref.sizes) * ref.dtype.itemsize for ref in refs)
        return GeneratedKernel(
            name,
            f"{opening}{text.lines}}}\n",
            tuple(self.pointers),
            tuple(pointer.dtype for pointer in self.pointers.values()),
            (),
            "",
            ex.Int(math.prod(int(size) for size in self._extents())),
            max(1, GRAIN // (self.piece * self.sizes["n"] * (self.width + self.value_width))),
            ("index out of range", "integer division or modulo by zero") if text.fails else (),
            {"bytes": moved, "mode": "attention", "origins": list(self.template.origins)},
            text.lines,
            kernels=(kernel,),
            functions=text.functions,
        )

    def _lane_bytes(self) -> int:
        """How wide the widest lane of the score function is."""
        column = self.axes["n"].symbol
        for node in sc.walk(self.score):
            varies = column in self.em.needs(node)
            if varies and width(node.dtype) == 8 and not fits_int32(node):
                return 8
        return 4

    def _extents(self) -> tuple[Expr, ...]:
        return (*(axis.size for axis in self.template.axes[:2]), ex.Int(-(-self.sizes["m"] // self.piece)))

    # -- positions -------------------------------------------------------------------------------------------------------

    def _know(
        self, name: str, depth: int, tiles: kir.Tiles = NO_TILES, size: Expr | None = None
    ) -> tuple[Expr, Variable]:
        """A position that the scope of ``depth`` has."""
        symbol = self.axes[name].symbol if name in self.axes else Symbol(name, bound=size)
        variable = Variable(symbol.name, tiles, kir.INDEX)
        self.em.depth_of[symbol] = depth
        self.em.places[symbol] = variable
        return symbol, variable

    def _place(self, name: str) -> Expr:
        axis = self.axes[name]
        return ex.ZERO if int(axis.size) == 1 else axis.symbol

    def _head(self, name: str) -> tuple[Expr, Expr]:
        """Batch and head of an operand, which several of the queries' may share."""
        ref = self.operands[name]
        batches, heads = (int(size) for size in ref.sizes[:2])
        b = self._place("b") if batches > 1 else ex.ZERO
        return b, ex.floor_div(self._place("h"), ex.Int(self.sizes["h"] // heads)) if heads > 1 else ex.ZERO

    def _first(self, name: str, row: Expr = ex.ZERO) -> Expr:
        """Where the head at hand begins in an operand, or a row of it."""
        ref = self.operands[name]
        b, h = self._head(name)
        return ref.offset + b * ref.strides[0] + h * ref.strides[1] + row * ref.strides[2]

    def _index(self, e: Expr) -> kir.Index:
        return self.em.index(e)

    # -- the kernel ------------------------------------------------------------------------------------------------------

    def _kernel(self) -> kir.Kernel:
        em, sizes = self.em, self.sizes
        lengths = {
            _PACKED_KEYS: _room(sizes["n"]) * self.width,
            _PACKED_VALUES: _room(self.value_width) * sizes["n"],
            _SCORES: _room(sizes["n"]) * GROUP,
            _QUERIES: GROUP * -(-self.width // 16) * 16,
            _RESULTS: _room(self.value_width) * GROUP,
        }
        for pointer, length in lengths.items():
            em.add(kir.LocalArray(pointer, kir.Number(length), heap=True, whole=True))
        em.add(kir.LocalArray(_SUMS, kir.Number(32), whole=True))
        em.add(kir.LocalArray(_LAST_HEAD, _ONE, kir.constant(-1, torch.int64)))
        self._know("b", 1)
        self._know("h", 1)
        _, piece = self._know("piece", 1, size=self._extents()[2])
        em.push(1)
        self._pack()
        self._groups(piece)
        body = em.pop()
        variables = (self.em.places[self.axes["b"].symbol], self.em.places[self.axes["h"].symbol], piece)
        counts = (self._index(size) for size in self._extents())
        em.add(kir.Points(tuple(zip(variables, counts, strict=True)), body))
        return kir.Kernel((kir.ROW,), 64, tuple(self.pointers.values()), SLICE, (), em.pop(), called=True)

    def _pack(self) -> None:
        """Keys and values of the head at hand, unless the step before had the same."""
        em, count = self.em, int(self.operands["k"].sizes[1])
        (b, h), keys = self._head("k"), self.operands["k"]
        head = Variable("head", NO_TILES, torch.int64)
        em.add(kir.Assign((head,), kir.Cast(self._index(b * ex.Int(count) + h), torch.int64)))
        known = kir.Load(_LAST_HEAD, kir.Number(0))
        em.push(1)
        for name, array, (column, row), columns, rows in (
            ("k", _PACKED_KEYS, keys.strides[2:], self.sizes["n"], self.width),
            ("v", _PACKED_VALUES, self.operands["v"].strides[:1:-1], self.value_width, self.sizes["n"]),
        ):
            memory = self.pointers[self.operands[name].buffer]
            first = self._index(self._first(name))
            em.add(kir.Pack(array, memory, first, int(column), int(row), columns, rows))
        em.add(kir.Store(_LAST_HEAD, kir.Number(0), head))
        em.add(kir.If(kir.Op("ne", (known, head), torch.bool, NO_TILES), em.pop()))

    def _groups(self, piece: Variable) -> None:
        """All groups of the queries at hand."""
        em, queries = self.em, self.sizes["m"]
        start = kir.arith("mul", piece, kir.Number(self.piece))
        stop = kir.arith("min", kir.total(start, kir.Number(self.piece)), kir.Number(queries))
        group, variable = self._know("group", 2, size=ex.Int(queries))
        em.push(2)
        last = ex.minimum(group + GROUP, ex.Int(queries))
        count = self._index(last - group)
        ref = self.operands["q"]
        steps = self._index(ref.strides[2]), self._index(ref.strides[3])
        memory = self.pointers[ref.buffer]
        place = self._index(self._first("q", group))
        em.add(kir.CopyRows(_QUERIES, memory, place, *steps, count, self.width, GROUP))
        first, end = map(self._index, self._keys(group, last - 1))
        keys, values = self.sizes["n"], self.value_width
        rooms = _room(keys), _room(values)
        em.add(
            kir.MultiplyRows(_SCORES, rooms[0], _QUERIES, self.width, count, _PACKED_KEYS, keys, self.width, first, end)
        )
        with self._rows(group, last) as row:
            self._softmax(group, row, last - 1)
        em.add(
            kir.MultiplyRows(
                _RESULTS, rooms[1], _SCORES, rooms[0], count, _PACKED_VALUES, values, keys, first, end, True
            )
        )
        with self._rows(group, last) as row:
            self._result(group, row)
        em.add(kir.loop(variable, stop, kir.Number(GROUP), em.pop(), start))

    def _keys(self, first: Expr, last: Expr) -> tuple[Expr, Expr]:
        """From and below which key there are some that the window leaves to queries from ``first`` to ``last``."""
        low, high = self.template.facts["window"]
        keys = ex.Int(self.sizes["n"])
        start = ex.ZERO if low is None else ex.minimum(keys, ex.maximum(ex.ZERO, first + low))
        return start, keys if high is None else ex.maximum(ex.ZERO, ex.minimum(keys, last + high + 1))

    @contextmanager
    def _rows(self, group: Expr, last: Expr) -> Iterator[Expr]:
        """Inside a loop over the queries of a group."""
        symbol, variable = self._know("m", 3)
        self.em.push(3)
        yield symbol
        self.em.add(kir.loop(variable, self._index(last), _ONE, self.em.pop(), self._index(group)))

    @contextmanager
    def _lanes(
        self, label: str, start: Node, stop: Node, symbol: Expr, carried: Sequence[Variable] = ()
    ) -> Iterator[Expr]:
        """Inside a loop over lanes along ``symbol``."""
        em = self.em
        position = Variable(symbol.name, _LANES, kir.INDEX)
        em.depth_of[symbol], em.places[symbol] = 4, position
        em.vector_axis, em.lanes = symbol, Variable("t", _LANES, torch.bool)
        em.push(4)
        yield symbol
        body = em.pop()
        em.add(kir.ForLanes(label, position, em.lanes, start, stop, body, tuple(carried)))
        em.vector_axis, em.lanes = None, None

    # -- a row -----------------------------------------------------------------------------------------------------------

    def _softmax(self, group: Expr, row: Expr, last: Expr) -> None:
        """The scores of a row become its exponentials, whose sum is kept."""
        em, column = self.em, self.axes["n"].symbol
        start, stop = map(self._index, self._keys(row, row))
        place = (row - group) * _room(self.sizes["n"]) + column
        most = self._pass("score", start, stop, place, "max", self.score)
        lowest = sc.constant(-math.inf, torch.float32)
        top = sc.reduced("top", torch.float32)
        em.reduced["top"], em.depth_of["top"] = most, 3
        # Of a row whose scores are all minus infinity, nothing is subtracted: its exponentials are 0.
        base = sc.op("where", sc.op("eq", top, lowest), sc.constant(0.0, torch.float32), top)
        value = sc.op("exp", sc.op("sub", sc.reduced("score", torch.float32), base))
        total = self._pass("share", start, stop, place, "sum", value)
        em.add(kir.Store(_SUMS, self._index(row - group), total))
        low, high = self.template.facts["window"]
        first, end = map(self._index, self._keys(row if low is None else group, row if high is None else last))
        for label, left, right, side in (("before", first, start, low), ("behind", stop, end, high)):
            if side is None:
                continue
            with self._lanes(label, left, right, column):
                em.add(kir.Store(_SCORES, self._index(place), kir.constant(0.0, torch.float32), em.lanes))

    def _pass(self, label: str, start: Node, stop: Node, place: Expr, kind: str, value: Scalar) -> Variable:
        """``value`` of each score, at ``place``, takes its place; what all of them come to by ``kind``."""
        em = self.em
        a = Accumulator(label, kind, torch.float32, torch.float32)
        em.add(kir.Begin(label, (a.begin(f"all_{label}", _LANES),)))
        (target,) = a.variables(f"all_{label}", _LANES)
        with self._lanes(label, start, stop, self.axes["n"].symbol, (target,)):
            slot = em.columns["score"] = Slot(_SCORES, self._index(place))
            em.depth_of["score"], em.lane_reduced = 4, {"score"}
            found = em.wide(em.emit(value), value)
            found = found if found.tiles else kir.Broadcast(found, _LANES)
            em.add(em.kept(slot, found))
            em.add(kir.Update((target,), a.step((target,), found, slot.index, em.lanes)))
        result = Variable(f"{kind}_{label}", NO_TILES, torch.float32)
        em.add(kir.Assign((result,), kir.Reduce(kind, (target,), kind)))
        return result

    def _result(self, group: Expr, row: Expr) -> None:
        """A row of the result."""
        em = self.em
        total = em.define(kir.Load(_SUMS, self._index(row - group)))
        one = kir.constant(1.0, torch.float32)
        if self.template.facts.get("empty_is_zero"):
            none = kir.Op("eq", (total, kir.constant(0.0, torch.float32)), torch.bool, NO_TILES)
            total = em.define(kir.Op("where", (none, one, total), torch.float32, NO_TILES))
        share = em.define(kir.Op("truediv", (one, total), torch.float32, NO_TILES))
        width = ex.Int(self.value_width)
        layout = self.out.layout
        b, h = self._place("b"), self._place("h")
        lanes = (b, h) if len(layout.sizes) == 4 else (b * self.axes["h"].size + h,)
        with self._lanes("result", kir.Number(0), self._index(width), Symbol("c", bound=width)) as column:
            found = em.define(kir.Load(_RESULTS, self._index((row - group) * _room(self.value_width) + column)))
            value = em.define(kir.Op("mul", (found, share), torch.float32, _LANES))
            if layout.dtype is not torch.float32:
                value = em.define(kir.Op("to_dtype", (value,), layout.dtype, _LANES))
            places = zip((*lanes, row, column), layout.strides, strict=True)
            index = self._index(sum((place * stride for place, stride in places), layout.offset))
            em.add(kir.Store(self.pointers[self.out.name], index, value, em.lanes))
