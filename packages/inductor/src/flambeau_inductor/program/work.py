"""What one step of a program moves and computes, for profiles and reports.

In: a step of a schedule, the buffers. Out: ``Work``: bytes that must pass between memory and the processor at least, and floating-point
operations, both for the sizes that are likely (``expr.hint``). Nothing is decided on it.

Bytes: each element that a kernel reads counts once and each that it writes once, however often it does so. Of a buffer that is read where other
values say (an embedding), as many elements as there are points, and no more than it has. Operations: one for each scalar operation on floats and each
term of a reduction; conversions, choices and comparisons are none. Of a product or convolution, two for each term, whoever computes it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import prod
from typing import Any

from attrs import frozen

from .. import expr as ex
from ..expr import Expr
from ..ir.kernel import Combined, Computed, Gemm, KernelBody, Reduce, ScanStep, Store
from ..ir.layout import Buffer, Ref
from ..ir.loops import Extern, Template, refs
from ..ir.scalar import Scalar, loads, walk
from ..ir.templates import ATTENTION
from ..schedule import LaunchStep

#: Scalar operations that compute nothing.
_FREE = frozenset(("to_dtype", "where", "bitcast", "check_bounds"))
#: Library products, by the place of their left operand: the last dimension of that one are the terms.
_PRODUCTS: Mapping[str, int] = {
    "mm": 0, "bmm": 0, "linear": 0, "_scaled_mm": 0, "packed_linear": 0, "_int_mm": 0, "mv": 0, "dot": 0, "addmm": 1, "baddbmm": 1, "addmv": 1,
    "_grouped_mm": 0, "_linear_pointwise": 0,
}  # fmt: skip


@frozen
class Work:
    """Bytes moved, floating-point operations."""

    bytes: int
    flops: int

    def __add__(self, other: Work) -> Work:
        return Work(self.bytes + other.bytes, self.flops + other.flops)


def work_of(step: LaunchStep | Extern, buffers: Mapping[str, Buffer]) -> Work:
    """The work of one launch or library call."""
    if isinstance(step, Combined):
        return sum((_loops(body, buffers) for body in step.bodies), Work(0, 0))
    if isinstance(step, KernelBody):
        return _loops(step, buffers)
    if isinstance(step, Gemm):
        return _gemm(step, buffers)
    if isinstance(step, Template):
        return _template(step, buffers)
    return _call(step)


# ---- loops ------------------------------------------------------------------------------------------------------------------------


def _loops(body: KernelBody, buffers: Mapping[str, Buffer]) -> Work:
    return Work(_bytes(body, buffers), _Operations(body).count())


def _bytes(body: KernelBody, buffers: Mapping[str, Buffer]) -> int:
    sizes = {axis.symbol: ex.hint(axis.size) for axis in (*body.outer, *body.inner)}
    read: dict[str, set[Expr]] = {}
    written: dict[str, set[Expr]] = {}
    for statement in body.statements:
        for node in loads(statement.value):
            read.setdefault(node.buffer, set()).add(node.index)
        if isinstance(statement, Store):
            written.setdefault(statement.buffer, set()).add(statement.index)
            if statement.mode != "set":
                read.setdefault(statement.buffer, set()).add(statement.index)
        for index in _indices(statement):
            for symbol in ex.free_symbols(index):
                for node in () if symbol.definition is None else loads(symbol.definition):
                    read.setdefault(node.buffer, set()).add(node.index)
    return sum(
        _elements(indices, sizes, buffers[name]) * buffers[name].layout.dtype.itemsize
        for accesses in (read, written)
        for name, indices in accesses.items()
    )


def _indices(statement: Store | Reduce | ScanStep) -> tuple[Expr, ...]:
    return (statement.index,) if isinstance(statement, Store) else ()


def _elements(indices: Iterable[Expr], sizes: Mapping[Expr, int], buffer: Buffer) -> int:
    points = sum(prod(sizes[axis] for axis in _axes(index, sizes)) for index in indices)
    return min(points, ex.hint(buffer.layout.numel))


def _axes(index: Expr, sizes: Mapping[Expr, int]) -> frozenset[Expr]:
    """The axes that an index depends on, also by way of what is read from memory."""
    found: set[Expr] = set()
    for symbol in ex.free_symbols(index):
        if symbol in sizes:
            found.add(symbol)
        elif symbol.definition is not None:
            for node in walk(symbol.definition):
                if node.kind in ("load", "index"):
                    found |= _axes(node.index, sizes)
    return frozenset(found)


class _Operations:
    """Counts the operations of a body: each at as many points as there are along the axes that it depends on."""

    def __init__(self, body: KernelBody) -> None:
        self.body = body
        self.sizes = {axis.symbol: ex.hint(axis.size) for axis in (*body.outer, *body.inner)}
        self.outer = frozenset(axis.symbol for axis in body.outer)
        self.axes_of: dict[Scalar, frozenset[Expr]] = {}
        self.axes_of_name: dict[str, frozenset[Expr]] = {}

    def count(self) -> int:
        every = frozenset(self.sizes)
        total = 0
        for statement in self.body.statements:
            total += self._new(statement.value)
            if not isinstance(statement, Store):
                if statement.value.dtype.is_floating_point:
                    total += self._points(every)
                self.axes_of_name[statement.name] = self.outer if isinstance(statement, Reduce) else every
            elif statement.mode != "set" and statement.value.dtype.is_floating_point:
                total += self._points(every if statement.level == "inner" else self.outer)
        return total

    def _new(self, root: Scalar) -> int:
        """The operations below ``root`` that no earlier statement computed."""
        total = 0
        for node in walk(root):
            if node in self.axes_of:
                continue
            axes = frozenset().union(*(self.axes_of[operand] for operand in node.operands))
            if node.kind in ("load", "index"):
                axes |= _axes(node.index, self.sizes)
            elif node.kind == "reduced":
                axes |= self.axes_of_name.get(node.args[0], self.outer)
            self.axes_of[node] = axes
            if node.kind == "op" and node.dtype.is_floating_point and node.op not in _FREE:
                total += self._points(axes)
        return total

    def _points(self, axes: Iterable[Expr]) -> int:
        return prod(self.sizes[axis] for axis in axes)


# ---- templates --------------------------------------------------------------------------------------------------------------------


def _gemm(gemm: Gemm, buffers: Mapping[str, Buffer]) -> Work:
    """The product, and what is done to its results."""
    rows, columns = (ex.hint(axis.size) for axis in gemm.body.outer)
    left = gemm.left
    terms = prod(left.taps) * left.channels if not isinstance(left, Ref) else ex.hint(left.sizes[-1])
    rights = 1 if gemm.second is None else 2
    more = [ref for ref in (gemm.offsets, gemm.second, *gemm.further) if ref is not None]
    operands = [left if isinstance(left, Ref) else left.image]
    operands += [gemm.right.source if isinstance(gemm.right, Computed) else gemm.right, *more]
    after = _loops(gemm.body, buffers)
    return Work(sum(map(_size, operands)), 2 * rows * columns * terms * rights) + after


def _template(template: Template, buffers: Mapping[str, Buffer]) -> Work:
    moved = sum(map(_size, template.operands.values()))
    moved += sum(_size(Ref.whole(out)) for out in template.outs.values())
    points = prod(ex.hint(axis.size) for axis in template.axes)
    width = ex.hint(template.operands["q"].sizes[-1]) + ex.hint(template.operands["v"].sizes[-1])
    # Scores and sums forwards; backwards scores again, their gradient, and one product for each gradient.
    products = 2 * width if template.kind == ATTENTION else 2 * width + 2 * width // 2 * len(template.outs)
    return Work(moved, points * products)


# ---- library calls ----------------------------------------------------------------------------------------------------------------


def _call(step: Extern) -> Work:
    windows = list(dict.fromkeys(refs((step.args, step.kwargs))))
    moved = sum(map(_size, windows))
    moved += sum(_size(Ref.whole(out)) for out in (*step.outs, *step.changed) if out is not None)
    return Work(moved, _flops(step))


def _flops(step: Extern) -> int:
    name = getattr(getattr(step.op, "overloadpacket", None), "__name__", "")
    outs = [_shape(Ref.whole(out)) for out in step.outs if out is not None]
    place = _PRODUCTS.get(name)
    if place is not None and outs:
        return 2 * prod(outs[0]) * _shape(step.args[place])[-1]
    if name in ("convolution", "_convolution", "cudnn_convolution") and outs:
        return _convolution(
            _shape(step.args[0]), _shape(step.args[1]), outs[0], transposed=_is_transposed(step.args, 6)
        )
    if name == "convolution_backward":
        result, image, weight = (_shape(step.args[place]) for place in range(3))
        wanted: Any = step.args[10]
        once = _convolution(image, weight, result, transposed=_is_transposed(step.args, 7))
        return once * sum(map(bool, wanted[:2]))
    if name.startswith("_scaled_dot_product"):
        return _attention(name, step.args)
    return 0


def _is_transposed(args: Sequence[Any], place: int) -> bool:
    return bool(args[place])


def _convolution(image: Sequence[int], weight: Sequence[int], result: Sequence[int], *, transposed: bool) -> int:
    """``weight`` has the channels that one group reads behind its first dimension, and then the taps."""
    return 2 * prod(image if transposed else result) * prod(weight[1:])


def _attention(name: str, args: Sequence[Any]) -> int:
    """Forwards two products; backwards five (scores again, and the gradients of the scores, of queries, keys and values)."""
    backward = "backward" in name
    query, key, value = (_shape(args[place]) for place in ((1, 2, 3) if backward else (0, 1, 2)))
    points = prod(query[:-1]) * key[-2]
    if backward:
        return 2 * points * (3 * query[-1] + 2 * value[-1])
    return 2 * points * (query[-1] + value[-1])


def _shape(value: Any) -> list[int]:
    return [ex.hint(size) for size in value.sizes]


def _size(ref: Ref) -> int:
    # What is repeated by a stride of zero is read once.
    distinct = (ex.hint(size) for size, stride in zip(ref.sizes, ref.strides, strict=True) if stride is not ex.ZERO)
    return prod(distinct) * ref.dtype.itemsize
