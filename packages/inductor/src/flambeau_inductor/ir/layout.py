"""Where a tensor's elements are: sizes, strides, offset, dtype and device.

In: expressions. Out: frozen ``Layout`` and ``Buffer`` records and ``Ref``, a strided window on a buffer.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from attrs import evolve, field, frozen

from ..expr import ONE, ZERO, Expr, as_expr, known_eq, maximum

Sizes = tuple[Expr, ...]


def product(sizes: Sequence[Expr]) -> Expr:
    """The number of elements."""
    result: Expr = ONE
    for size in sizes:
        result = result * size
    return result


def contiguous_strides(sizes: Sequence[Expr]) -> Sizes:
    """Row-major strides; a zero size counts as one, as in torch."""
    strides: list[Expr] = []
    running: Expr = ONE
    for size in reversed(sizes):
        strides.append(running)
        running = running * (size if size.lo >= 1 else maximum(size, ONE))
    return tuple(reversed(strides))


def strides_in_order(sizes: Sequence[Expr], order: Sequence[int]) -> Sizes:
    """Dense strides where ``order`` lists the dimensions from outermost to innermost."""
    inner = contiguous_strides([sizes[d] for d in order])
    strides: list[Expr] = [ONE] * len(sizes)
    for d, stride in zip(order, inner, strict=True):
        strides[d] = stride
    return tuple(strides)


def _exprs(values: Sequence[Expr | int]) -> Sizes:
    return tuple(as_expr(value) for value in values)


@frozen
class Layout:
    """Element ``i`` of the tensor is at ``offset + sum(i[d] * strides[d])``, in elements of ``dtype``."""

    sizes: Sizes = field(converter=_exprs)
    strides: Sizes = field(converter=_exprs)
    offset: Expr = field(converter=as_expr)
    dtype: torch.dtype
    device: torch.device

    @classmethod
    def contiguous(cls, sizes: Sequence[Expr | int], dtype: torch.dtype, device: torch.device) -> Layout:
        """Row-major, no offset."""
        exprs = _exprs(sizes)
        return cls(exprs, contiguous_strides(exprs), ZERO, dtype, device)

    def index(self, at: Sequence[Expr]) -> Expr:
        """The element position of coordinates ``at``, without ``offset``."""
        result: Expr = ZERO
        for i, stride in zip(at, self.strides, strict=True):
            result = result + i * stride
        return result

    @property
    def numel(self) -> Expr:
        """The number of elements."""
        return product(self.sizes)

    @property
    def is_contiguous(self) -> bool:
        """True when known to be row-major (dimensions of size one may have any stride)."""
        wanted = contiguous_strides(self.sizes)
        return all(known_eq(s, w) or n is ONE for n, s, w in zip(self.sizes, self.strides, wanted, strict=True))


@frozen
class Buffer:
    """Named memory that exactly one operation (or the caller) fills.

    ``storage`` names the buffer whose memory this one occupies: itself, or, for an in-place update, the buffer (or
    graph input) that the operation overwrites. Reads of ``storage`` come before the operation that writes this buffer.
    A buffer's own data pointer already includes ``layout.offset``: loads index relative to it.
    """

    name: str
    layout: Layout
    storage: str = ""

    def __attrs_post_init__(self) -> None:
        if not self.storage:
            object.__setattr__(self, "storage", self.name)

    @property
    def in_place(self) -> bool:
        """True when this buffer overwrites another one's memory."""
        return self.storage != self.name


@frozen
class Ref:
    """A strided window on buffer ``buffer``: what a library call or a graph output receives.

    ``offset`` counts elements from the buffer's first element (its data pointer), in elements of the buffer's dtype.
    ``dtype`` differs from the buffer's only for bit-cast views of the same width.
    """

    buffer: str
    sizes: Sizes = field(converter=_exprs)
    strides: Sizes = field(converter=_exprs)
    offset: Expr = field(converter=as_expr)
    dtype: torch.dtype
    device: torch.device

    @classmethod
    def whole(cls, buffer: Buffer) -> Ref:
        """All of ``buffer``, as it lies."""
        layout = buffer.layout
        return cls(buffer.name, layout.sizes, layout.strides, ZERO, layout.dtype, layout.device)

    def seen_with(self, strides: Sequence[Expr]) -> Ref:
        """The same elements; where a stride addresses nothing (a dimension of one element, no elements at all), that of ``strides``."""
        nothing = ZERO in self.sizes
        pairs = zip(self.sizes, self.strides, strides, strict=True)
        return evolve(self, strides=tuple(want if nothing or n is ONE else have for n, have, want in pairs))

    def lies_as(self, strides: Sequence[Expr]) -> bool:
        """Whether these are its strides, but for those that address nothing."""
        return ZERO in self.sizes or all(
            have is want or (n.is_int and n.args[0] <= 1)
            for have, want, n in zip(self.strides, strides, self.sizes, strict=True)
        )

    def layout(self) -> Layout:
        """The window as a layout relative to the buffer's first element."""
        return Layout(self.sizes, self.strides, self.offset, self.dtype, self.device)
