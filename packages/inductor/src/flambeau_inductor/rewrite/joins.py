"""Several matrices as one, without a copy where they lie side by side.

In: matrices and the dimension along which to join them. Out: a plan (``plan_join``) that says what it would copy, and that can be
carried out (``emit``). Matrices that are windows of one tensor (its selects, slices, or the results of a split or an unbind) are
read from that tensor: in place where their order is that of memory, otherwise through one copy of all.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import getitem
from typing import Any

import torch
from attrs import frozen
from torch import fx
from torch._subclasses.fake_tensor import FakeTensorMode

from .fakes import bytes_of, insert_call, quietly, same_size

aten = torch.ops.aten


@frozen
class Window:
    """``length`` positions of ``base`` from ``start`` on along ``dim``; no length for a select, which drops the dimension."""

    base: fx.Node
    dim: int
    start: int
    length: int | None


@frozen
class Join:
    """How ``parts`` become one.

    Attributes:
        base, dim, start, length: the window that covers all parts; no base where they must be put together by ``cat``.
        copied: bytes that carrying it out copies.
        turned: the parts are transposes, and it is their sources that are joined.
    """

    parts: tuple[fx.Node, ...]
    along: int
    copied: int
    base: fx.Node | None = None
    dim: int = 0
    start: int = 0
    length: int = 0
    is_select: bool = False
    turned: bool = False

    def emit(self, graph: fx.Graph, before: fx.Node, mode: FakeTensorMode) -> fx.Node:
        """The joined matrix, made in front of ``before``."""
        with quietly(mode):
            joined = self._joined(graph, before)
            if self.turned:
                joined = call(graph, before, aten.t.default, joined)
        return joined

    def _joined(self, graph: fx.Graph, before: fx.Node) -> fx.Node:
        if self.base is None:
            return call(graph, before, aten.cat.default, list(self.parts), self.along)
        joined = self.base
        if self.start != 0 or not same_size(self.length, joined.meta["val"].shape[self.dim]):
            joined = call(graph, before, aten.slice.Tensor, joined, self.dim, self.start, self.start + self.length)
        if not self.is_select:
            return joined
        order = _order(self.dim, self.along)
        if order != [0, 1, 2]:
            joined = call(graph, before, aten.permute.default, joined, order)
        if self.copied:
            joined = call(graph, before, aten.clone.default, joined, memory_format=torch.contiguous_format)
        return call(graph, before, aten.view.default, joined, _merged(joined.meta["val"].shape, self.along))


def call(graph: fx.Graph, before: fx.Node, target: Any, *args: Any, **kwargs: Any) -> fx.Node:
    """A new call in front of ``before`` with the fake result of running it; to be used inside ``quietly``."""
    values = fx.node.map_arg(args, lambda node: node.meta["val"])
    return insert_call(graph, before, target, args, target(*values, **kwargs), **kwargs)


def plan_join(parts: Sequence[fx.Node], along: int) -> Join:
    """The cheapest way to join matrices along dimension 0 or 1."""
    if all(is_transpose(part) for part in parts):
        inner = plan_join([part.args[0] for part in parts], 1 - along)
        return Join(**{**_fields(inner), "turned": not inner.turned})
    copied = sum(bytes_of(part.meta["val"]) for part in parts)
    plain = Join(tuple(parts), along, copied)
    windows = [window_of(part) for part in parts]
    first = windows[0]
    if first is None:
        return plain
    end = first.start
    for window in windows:
        if window is None or (window.base, window.dim, window.start) != (first.base, first.dim, end):
            return plain
        if (window.length is None) is not (first.length is None):
            return plain
        end += 1 if window.length is None else window.length
    covering = Join(tuple(parts), along, copied, first.base, first.dim, first.start, end - first.start)
    val = first.base.meta["val"]
    if first.length is not None:
        return Join(**{**_fields(covering), "copied": 0}) if first.dim == along and val.dim() == 2 else plain
    if val.dim() != 3 or _merged([val.shape[d] for d in _order(first.dim, along)], along) is None:
        return plain
    in_place = _runs_on(val, _order(first.dim, along), along)
    return Join(**{**_fields(covering), "copied": 0 if in_place else copied, "is_select": True})


def _fields(join: Join) -> dict[str, Any]:
    return {name: getattr(join, name) for name in ("parts", "along", "copied", "base", "dim", "start", "length", "is_select", "turned")}  # fmt: skip


def _order(dim: int, along: int) -> list[int]:
    """The dimensions of a tensor whose ``dim`` is to be merged with dimension ``along`` of what is left."""
    rest = [d for d in range(3) if d != dim]
    return [*rest[:along], dim, *rest[along:]]


def _merged(shape: Sequence[Any], along: int) -> list[int] | None:
    """The sizes of a view that merges dimensions ``along`` and the next; at most one may be unknown."""
    pair, other = shape[along : along + 2], shape[2 if along == 0 else 0]
    merged = pair[0] * pair[1] if all(isinstance(n, int) for n in pair) else -1
    if not isinstance(other, int):
        if merged == -1:
            return None
        other = -1
    return [merged, other] if along == 0 else [other, merged]


def _runs_on(val: torch.Tensor, order: Sequence[int], along: int) -> bool:
    """Whether dimensions ``along`` and the next of the tensor in this order are known to be one in memory, and rows to be dense."""
    size, stride = [val.shape[d] for d in order], [val.stride(d) for d in order]
    return same_size(stride[along], size[along + 1] * stride[along + 1]) and same_size(stride[2], 1)


def is_transpose(node: fx.Node) -> bool:
    """Whether ``node`` is the transpose of a matrix."""
    val = node.meta.get("val")
    if node.op != "call_function" or not isinstance(val, torch.Tensor) or val.dim() != 2:
        return False
    if node.target is aten.permute.default:
        order: Any = node.args[1]
        return [d % 2 for d in order] == [1, 0]
    if node.target is aten.transpose.int:
        return {int(d) % 2 for d in node.args[1:]} == {0, 1}
    return node.target is aten.t.default


def window_of(node: fx.Node) -> Window | None:
    """``node`` as a window at a known place, if it is one."""
    if node.op != "call_function":
        return None
    if node.target is getitem:
        return _piece(node)
    if node.target not in (aten.select.int, aten.slice.Tensor) or not isinstance(node.args[0], fx.Node):
        return None
    base = node.args[0]
    val = base.meta["val"]
    if node.target is aten.select.int:
        dim, start = node.args[1:3]
        dim, size = int(dim) % val.dim(), val.shape[int(dim)]
        if not isinstance(start, int) or (start < 0 and not isinstance(size, int)):
            return None
        return Window(base, dim, start + size if start < 0 else start, None)
    found: Any = [*node.args[1:], *(0, 0, None, 1)[len(node.args) - 1 :]]
    dim, start, step = int(found[0]) % val.dim(), found[1] or 0, found[3]
    length = node.meta["val"].shape[dim]
    if not isinstance(start, int) or not isinstance(length, int) or start < 0 or step != 1:
        return None
    return Window(base, dim, start, length)


def _piece(node: fx.Node) -> Window | None:
    """One result of a split or an unbind."""
    source, position = node.args
    if not isinstance(source, fx.Node) or source.op != "call_function" or not isinstance(position, int):
        return None
    arguments: Any = source.args
    if position < 0 or not arguments or not isinstance(arguments[0], fx.Node):
        return None
    base = arguments[0]
    rank = base.meta["val"].dim()
    if source.target is aten.unbind.int:
        return Window(base, int(arguments[1] if len(arguments) > 1 else 0) % rank, position, None)
    if source.target not in (aten.split.Tensor, aten.split_with_sizes.default):
        return None
    dim = int(arguments[2] if len(arguments) > 2 else 0) % rank
    lengths = [piece.shape[dim] for piece in source.meta["val"][: position + 1]]
    if not all(isinstance(n, int) for n in lengths):
        return None
    return Window(base, dim, sum(lengths[:-1]), lengths[-1])
