"""Tensors whose last dimension is that of the classes, computed for a piece of the classes alone.

In: nodes that follow from the scores of all classes, element by element or by views of the other dimensions. Out: nodes of the same values for the
classes of a block, or for one class of each row; and sums over all classes of what scores do not enter.
Raises ``NotInPieces`` for anything else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from attrs import define, field, frozen
from torch import fx
from torch._ops import OpOverload

from ..devices import device_of
from .fakes import insert_call
from .joins import call

aten = torch.ops.aten

_VIEWS = (aten.view.default, aten._unsafe_view.default, aten.reshape.default)
#: Ops along other dimensions than the last: the argument that names the dimension.
_ALONG = {aten.slice.Tensor: 1, aten.select.int: 1, aten.slice_scatter.default: 2, aten.unsqueeze.default: 1, aten.squeeze.dim: 1}  # fmt: skip
#: Ops that make a tensor of the sizes that they are given: the position of those.
_SIZED = {
    aten.expand.default: 1, aten.new_zeros.default: 1, aten.new_full.default: 1, aten.full.default: 0, aten.zeros.default: 0,
}  # fmt: skip
_ELEMENTWISE = (aten._to_copy.default, aten.clone.default, aten.zeros_like.default, aten.full_like.default)
_PRODUCTS = (aten.mul.Tensor, aten.mul.Scalar, aten.div.Tensor, aten.div.Scalar)
_SUMS = (aten.add.Tensor, aten.sub.Tensor)
_MEAN = 1


class NotInPieces(Exception):
    """Something that is not known for a piece of the classes."""


@frozen
class Statistics:
    """Of each row of scores: the largest, the sum of ``exp(score - largest)``, and the logarithm of that."""

    peak: fx.Node
    total: fx.Node
    log_total: fx.Node


@define
class Maker:
    """Makes nodes in front of ``before``, each with the notes ``meta``."""

    graph: fx.Graph
    before: fx.Node
    meta: Mapping[str, Any]

    def call(self, target: Any, *args: Any, **kwargs: Any) -> fx.Node:
        """A new call with its fake result."""
        node = call(self.graph, self.before, target, *args, **kwargs)
        node.meta.update(self.meta)
        return node

    def call_like(self, known: torch.Tensor, target: Any, *args: Any) -> fx.Node:
        """A new call whose fake result is ``known``."""
        node = insert_call(self.graph, self.before, target, args, known)
        node.meta.update(self.meta)
        return node

    def as_type(self, node: fx.Node, dtype: torch.dtype) -> fx.Node:
        """``node`` converted, where it has another type."""
        return node if node.meta["val"].dtype is dtype else self.call(aten._to_copy.default, node, dtype=dtype)


@frozen
class Block:
    """Classes ``start`` to ``end``."""

    start: int
    end: int

    @property
    def width(self) -> int:
        return self.end - self.start

    def of_vector(self, make: Maker, node: fx.Node) -> fx.Node:
        """The same classes of a tensor with one row."""
        return make.call(aten.slice.Tensor, node, node.meta["val"].dim() - 1, self.start, self.end)

    def chosen(self, make: Maker, classes: fx.Node) -> fx.Node:
        """Whether each class is that of its row."""
        device = classes.meta["val"].device
        own = make.call(aten.arange.start, self.start, self.end, device=device)
        return make.call(aten.eq.Tensor, own, classes)


@frozen
class Pick:
    """The class of each row that ``classes`` names; its last dimension has one element."""

    classes: fx.Node
    width: int = 1

    def of_vector(self, make: Maker, node: fx.Node) -> fx.Node:
        """What a tensor with one row holds for them."""
        sizes = [*self.classes.meta["val"].shape[:-1], node.meta["val"].shape[-1]]
        return make.call(aten.gather.default, make.call(aten.expand.default, node, sizes), -1, self.classes)


@define
class Pieces:
    """Values of ``piece`` of what follows from ``known``: nodes and what stands for them."""

    make: Maker
    piece: Block | Pick
    classes: int
    wide: Mapping[fx.Node, Any]
    statistics: Mapping[fx.Node, Statistics]
    known: dict[fx.Node, fx.Node] = field(factory=dict)
    sums: Mapping[fx.Node, fx.Node] = field(factory=dict)

    def of(self, value: Any) -> Any:
        """The piece of an argument; what has one value for all classes of a row is its own."""
        if not isinstance(value, fx.Node):
            return value
        found = self.known.get(value)
        if found is None:
            found = self.known[value] = self._made(value) if value in self.wide else self._operand(value)
        return found

    def _operand(self, node: fx.Node) -> fx.Node:
        """Of what does not follow from scores."""
        val: Any = node.meta.get("val")
        if not isinstance(val, torch.Tensor):
            raise NotInPieces(str(node))
        if val.dim() == 0 or val.shape[-1] == 1:
            return node
        if val.shape[-1] != self.classes:
            raise NotInPieces(str(node))
        if val.numel() == self.classes:
            return self.piece.of_vector(self.make, node)
        return self._made(node)

    def _made(self, node: fx.Node) -> fx.Node:
        rule = _RULES.get(node.target)
        return self._cloned(node) if rule is None else rule(self, node)

    def _cloned(self, node: fx.Node) -> fx.Node:
        by_rows = node.target in _VIEWS or node.target in _ALONG or node.target in _SIZED
        if not is_followed(node, self.classes) or (by_rows and isinstance(self.piece, Pick)):
            raise NotInPieces(str(node))
        args = [self.of(value) for value in node.args]
        kwargs = {key: self.of(value) for key, value in node.kwargs.items()}
        at: Any = 1 if node.target in _VIEWS else _SIZED.get(node.target)
        if at is not None:
            args[at] = [*node.args[at][:-1], self.piece.width]
        return self.make.call(node.target, *args, **kwargs)

    def _logarithms(self, node: fx.Node) -> fx.Node:
        scores: Any = node.args[0]
        found, own = self.statistics[scores], self.of(scores)
        shifted = self.make.call(aten.sub.Tensor, self.make.as_type(own, found.peak.meta["val"].dtype), found.peak)
        return self.make.as_type(self.make.call(aten.sub.Tensor, shifted, found.log_total), node.meta["val"].dtype)

    def _targets_gradient(self, node: fx.Node) -> fx.Node:
        if not isinstance(self.piece, Block):
            raise NotInPieces(str(node))
        target: Any = node.args[2]
        chosen = self.piece.chosen(self.make, self._column(target))
        return self.make.call(aten.where.ScalarOther, chosen, self.sums[node], 0)

    def _column(self, node: fx.Node) -> fx.Node:
        """What has one number a row, as a matrix of one column."""
        return self.make.call(aten.unsqueeze.default, node, -1)

    def _through_softmax(self, node: fx.Node) -> fx.Node:
        grad, logarithms, _, dtype = node.args
        total = self.sums[node]
        wide = total.meta["val"].dtype
        powers = self.make.call(aten.exp.default, self.make.as_type(self.of(logarithms), wide))
        whole = self.make.call(aten.mul.Tensor, powers, total)
        result = self.make.call(aten.sub.Tensor, self.make.as_type(self.of(grad), wide), whole)
        return self.make.as_type(result, dtype)


_RULES: dict[Any, Callable[[Pieces, fx.Node], fx.Node]] = {
    aten._log_softmax.default: Pieces._logarithms,
    aten.nll_loss_backward.default: Pieces._targets_gradient,
    aten._log_softmax_backward_data.default: Pieces._through_softmax,
}


def is_followed(node: fx.Node, classes: int) -> bool:
    """Whether ``node`` has its last dimension from its operands, class by class."""
    val, target = node.meta.get("val"), node.target
    if not isinstance(val, torch.Tensor) or val.dim() == 0 or val.shape[-1] != classes:
        return False
    if not isinstance(target, OpOverload) or torch.Tag.nondeterministic_seeded in target.tags:
        return False
    operands = [a.meta.get("val") for a in node.all_input_nodes]
    if any(isinstance(a, torch.Tensor) and a.device != val.device and a.dim() for a in operands):
        return False
    if target in _VIEWS or target in _SIZED:
        source: Any = node.args[0] if target not in (aten.full.default, aten.zeros.default) else None
        widths = (classes, 1) if target is aten.expand.default else (classes,)
        return source is None or source.meta["val"].shape[-1:] in [(width,) for width in widths]
    if target in _ALONG:
        dim: Any = node.args[_ALONG[target]] if len(node.args) > _ALONG[target] else 0
        source = node.args[0]
        rank = max(val.dim(), source.meta["val"].dim())
        return source.meta["val"].shape[-1] == classes and dim % rank != rank - 1
    return target in _ELEMENTWISE or torch.Tag.pointwise in target.tags


def targets_gradient(make: Maker, node: fx.Node, wide: torch.dtype) -> fx.Node:
    """Of an ``nll_loss_backward``: the one element of each row that is not zero, where the row counts; its last dimension is 1.

    It stays in the type that is computed in: what a softmax subtracts is a multiple of its sum with other elements, from which a rounded one would differ.
    """
    grad, _, target, weight, reduction, ignored, total = node.args
    counts = make.call(aten.ne.Scalar, target, ignored)
    value: Any = make.as_type(grad, wide)
    if reduction == _MEAN:
        value = make.call(aten.div.Tensor, value, total)
    if weight is not None:
        place = make.call(aten.where.ScalarOther, counts, target, 0)
        value = make.call(aten.mul.Tensor, value, make.call(aten.gather.default, weight, 0, place))
    value = make.call(aten.where.ScalarOther, counts, make.call(aten.neg.default, value), 0)
    return make.call(aten.unsqueeze.default, value, -1)


def sum_over_classes(make: Maker, value: Any, classes: int, rows: Mapping[fx.Node, fx.Node], wide: torch.dtype) -> Any:
    """The sum of ``value`` over all classes, with one element in the last dimension. ``rows``: sums that are known."""
    if not isinstance(value, fx.Node):
        return value * classes
    val = value.meta["val"]
    if value in rows:
        return make.as_type(rows[value], wide)
    if val.dim() == 0 or val.shape[-1] == 1:
        return make.call(aten.mul.Scalar, make.as_type(value, wide), classes)
    if val.numel() == classes:
        return make.call(aten.sum.dim_IntList, value, [val.dim() - 1], True, dtype=wide)
    if value.target is aten.expand.default:
        return sum_over_classes(make, value.args[0], classes, rows, wide)
    if value.target in (aten._to_copy.default, aten.clone.default, aten.neg.default):
        found = sum_over_classes(make, value.args[0], classes, rows, wide)
        return make.call(aten.neg.default, found) if value.target is aten.neg.default else found
    if value.target in _SUMS and len(value.args) == 2 and not value.kwargs:
        return make.call(value.target, *(sum_over_classes(make, part, classes, rows, wide) for part in value.args))
    if value.target in _PRODUCTS and len(value.args) == 2 and not value.kwargs:
        return _sum_of_product(make, value, classes, rows, wide)
    raise NotInPieces(str(value))


def _sum_of_product(
    make: Maker, node: fx.Node, classes: int, rows: Mapping[fx.Node, fx.Node], wide: torch.dtype
) -> Any:
    """Of a product of which one factor is the same for all classes of a row."""
    first, second = node.args
    if (factor := _same_for_all(second)) is not None:
        return make.call(node.target, sum_over_classes(make, first, classes, rows, wide), factor)
    if node.target is aten.mul.Tensor and (factor := _same_for_all(first)) is not None:
        return make.call(node.target, sum_over_classes(make, second, classes, rows, wide), factor)
    raise NotInPieces(str(node))


def _same_for_all(value: Any) -> Any:
    """``value`` with one element for all classes of a row; None where it has more."""
    while isinstance(value, fx.Node) and value.target is aten.expand.default:
        value = value.args[0]
    if not isinstance(value, fx.Node):
        return value
    val = value.meta["val"]
    return value if val.dim() == 0 or val.shape[-1] == 1 else None


def added(
    make: Maker, before: Sequence[fx.Node], left: fx.Node, right: fx.Node, wide: torch.dtype, *, at_once: bool = False
) -> fx.Node:
    """``left @ right`` in the type that sums are kept in, added to what came before: by the product itself if it has to be ``at_once``."""
    val = left.meta["val"]
    if left.meta["val"].dtype is not wide and not device_of(val.device).is_host and "dtype" in aten.mm.overloads():
        if before and at_once:
            try:
                return make.call(aten.addmm.dtype, *before, left, right, wide)
            except TypeError:
                # The decomposition that torch 2.11 runs on fakes takes the type for a factor; its kernel does not.
                (sums,) = before
                return make.call_like(sums.meta["val"], aten.addmm.dtype, sums, left, right, wide)
            except (NotImplementedError, RuntimeError) as error:
                # Not every version of torch adds to float32, or knows beforehand what comes of it.
                raise NotInPieces(str(error)) from error
        product = make.call(aten.mm.dtype, left, right, wide)
        return make.call(aten.add.Tensor, *before, product) if before else product
    left, right = make.as_type(left, wide), make.as_type(right, wide)
    target: Any = aten.addmm.default if before else aten.mm.default
    return make.call(target, *before, left, right)


def chosen_value(make: Maker, block: Block, classes: fx.Node, values: fx.Node) -> fx.Node:
    """Of each row the value of the class that it names, where that is in the block; else -inf."""
    own = make.call(aten.where.ScalarOther, block.chosen(make, classes), values, -torch.inf)
    return make.call(aten.amax.default, own, [-1], True)


def checked(make: Maker, count: int, classes: fx.Node, value: fx.Node) -> fx.Node:
    """``value``, after a look at a row of ``count`` zeros at ``classes``: a class that does not exist is an error as in eager."""
    val = value.meta["val"]
    zero = make.call(aten.full.default, [1], 0, dtype=val.dtype, device=val.device)
    whole = make.call(aten.expand.default, zero, [*val.shape[:-1], count])
    return make.call(aten.add.Tensor, value, make.call(aten.gather.default, whole, -1, classes))
