"""Which tensors of one storage lie over each other: what eager refuses to write, or writes in the order of its loops.

In: fake tensors with their strides and storage offsets, symbolic ones by their hints. Out: yes or no; `folds_onto_itself` and `lies_within`
say no where a hint is missing.
"""

from __future__ import annotations

from collections import Counter

import torch

from .layout import hint

#: Ops that put elements of another tensor into places that indices or a mask name. With that tensor in the memory they write, eager
#: raises or takes what was overwritten before.
MOVES = frozenset(
    {
        "masked_scatter_", "index_copy_", "index_add_", "index_reduce_", "index_put_", "_index_put_impl_", "put_", "scatter_", "scatter_add_",
        "scatter_reduce_", "index_fill_", "masked_fill_",
    }
)  # fmt: skip


def _numbers(tensor: torch.Tensor) -> tuple[list[tuple[int, int]], int] | None:
    """(stride, size) of each dimension longer than 1, from the largest stride down, and the offset; None when unknown."""
    offset, dims = hint(tensor.storage_offset()), []
    for size, stride in zip(tensor.shape, tensor.stride()):
        length, step = hint(size), hint(stride)
        if length is None or step is None or offset is None:
            return None
        if length != 1:
            dims.append((step, length))
    return (sorted(dims, reverse=True), offset) if offset is not None else None


def folds_onto_itself(tensor: torch.Tensor) -> bool:
    """True when two elements of the tensor may share one memory location (`expand`, steps of `unfold` below its size)."""
    known = _numbers(tensor)
    if known is None or any(size == 0 for _, size in known[0]):
        return False
    room = 1
    for stride, size in reversed(known[0]):
        if stride < room:
            return True
        room += stride * (size - 1)
    return False


def collides(target: torch.Tensor, source: torch.Tensor) -> bool:
    """True when a write to `target` changes elements of `source` other than those in the same places, or may.

    Both are views of one storage. Of views in different strides eager refuses dense ones that meet, and reads others in the order of
    its loops. The elements of one in the very places of the other are written after they are read.
    """
    if target.dtype.itemsize != source.dtype.itemsize:
        return overlaps(target, source)
    first, second = _numbers(target), _numbers(source)
    same = first == second and tuple(map(hint, target.stride())) == tuple(map(hint, source.stride()))
    return not same and overlaps(target, source)


def lies_within(view: torch.Tensor, base: torch.Tensor) -> bool:
    """True when every memory location of `view` is one of an element of `base`, which is dense, and not when that is not known."""
    known, whole = _numbers(view), _numbers(base)
    if known is None or whole is None:
        return False
    (dims, start), (others, begin) = known, whole
    if any(size == 0 for _, size in dims):
        return True
    width, room = view.dtype.itemsize, base.dtype.itemsize
    ends = (start + _extent(dims) + 1) * width <= (begin + _extent(others) + 1) * room
    return _is_dense(others) and begin * room <= start * width and ends


def overlaps(first: torch.Tensor, second: torch.Tensor) -> bool:
    """True when two views of one storage have a memory location in common, or may have: what is not known counts as yes."""
    known, other = _numbers(first), _numbers(second)
    if known is None or other is None:
        return True
    (dims, start), (others, begin) = known, other
    if any(size == 0 for _, size in (*dims, *others)):
        return False
    if first.dtype.itemsize != second.dtype.itemsize:
        return start <= begin + _extent(others) and begin <= start + _extent(dims)
    # A step along a dimension of the first moves forward, one along a dimension of the second back.
    forward, back = Counter[int](), Counter[int]()
    for stride, size in dims:
        forward[stride] += size - 1
    for stride, size in others:
        back[stride] += size - 1
    steps = sorted({stride for stride in (*forward, *back) if stride != 0}, reverse=True)
    return _sums_to(begin - start, [(stride, -back[stride], forward[stride]) for stride in steps])


def _extent(dims: list[tuple[int, int]]) -> int:
    return sum(stride * (size - 1) for stride, size in dims)


def _is_dense(dims: list[tuple[int, int]]) -> bool:
    expected = 1
    for stride, size in reversed(dims):
        if stride != expected:
            return False
        expected *= size
    return True


#: So many ways to share a distance out among the dimensions are looked at; views that need more are taken to meet.
_MOST_WAYS = 1000


def _sums_to(distance: int, moves: list[tuple[int, int, int]]) -> bool:
    """True when `distance` is a sum of strides, the one of each `(stride, low, high)` taken at least low and at most high times."""
    waiting, ways = [(distance, 0)], 0
    lowest, highest = [0], [0]
    for stride, low, high in reversed(moves):
        lowest.append(lowest[-1] + stride * low)
        highest.append(highest[-1] + stride * high)
    while waiting:
        rest, place = waiting.pop()
        if place == len(moves):
            if rest == 0:
                return True
            continue
        stride, low, high = moves[place]
        below = len(moves) - place - 1
        # The dimensions after this one make up for any distance from lowest to highest.
        first = max(low, -((highest[below] - rest) // stride))
        last = min(high, (rest - lowest[below]) // stride)
        ways += max(0, last - first + 1)
        if ways > _MOST_WAYS:
            return True
        waiting.extend((rest - stride * count, place + 1) for count in range(first, last + 1))
    return False
