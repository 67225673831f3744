"""The strides that eager's allocations choose: for the result of a loop over elements, and for a tensor that is made like another.

In: sizes and strides as numbers. Out: strides. These are the rules of ATen's `TensorIterator` (TensorIterator.cpp: `fast_set_up`,
`reorder_dimensions`, `allocate_or_resize_outputs`) and of `empty_like` (TensorFactories.cpp; ExpandUtils.cpp: `infer_dense_strides`), as kernels
on the CPU and on GPUs follow them. `tests/test_layouts_of_loops.py` compares both with kernels on random layouts.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence
from typing import Any

Shape = tuple[int, ...]
#: Sizes and strides of one tensor.
Laid = tuple[Shape, Shape]
_CHANNELS_LAST = (1, 3, 2, 0)


def row_major(shape: Sequence[int]) -> Shape:
    """Those of a new tensor; a size of zero counts as one."""
    strides: list[int] = []
    running = 1
    for size in reversed(shape):
        strides.append(running)
        running *= max(size, 1)
    return tuple(reversed(strides))


@functools.lru_cache(4096)
def of_a_loop(shape: Shape, operands: tuple[Laid, ...], alike: bool) -> Shape:
    """Those of the result of a loop over `operands`; `alike`: nothing else, such as a number, is repeated to the shape."""
    if alike and all(sizes == shape for sizes, _ in operands):
        if all(is_dense_in_order(laid, range(len(shape))[::-1]) for laid in operands):
            return row_major(shape)
        if len(shape) == 4 and all(is_dense_in_order(laid, _CHANNELS_LAST) for laid in operands):
            return _in_order(shape, _CHANNELS_LAST)
        first = operands[0]
        if all(strides == first[1] for _, strides in operands) and is_dense(first):
            return first[1]
    order = _loop_order(shape, [repeated(laid, shape) for laid in operands])
    return row_major(shape) if order == sorted(order, reverse=True) else _in_order(shape, order)


@functools.lru_cache(4096)
def of_a_likeness(like: Laid) -> Shape:
    """Those of `empty_like`, and of copies that keep the layout."""
    shape, strides = like
    return strides if is_dense(like) else _in_order(shape, _loop_order(shape, [strides]))


@functools.lru_cache(4096)
def of_a_view(laid: Laid, shape: Shape) -> Shape | None:
    """Those of a view in another shape; None where there is none."""
    sizes, strides = laid
    if 0 in sizes or not sizes:
        return strides if sizes == shape else row_major(shape)
    steps = steps_of_a_view(laid, shape)
    return None if steps is None else tuple(stepped(strides, shape, steps))


@functools.lru_cache(4096)
def steps_of_a_view(laid: Laid, shape: Shape) -> tuple[tuple[int, int], ...] | None:
    """How `stepped` makes the strides of a view of something with elements: for each of its dimensions one of what is viewed, whose stride it
    repeats, and the end of the dimensions that lie in the same run."""
    sizes, strides = laid
    found, place = [(0, 0)] * len(shape), len(shape) - 1
    inner, elements, covered, end = len(sizes) - 1, 1, 1, len(shape)
    for dim in reversed(range(len(sizes))):
        elements *= sizes[dim]
        if dim and (sizes[dim - 1] == 1 or strides[dim - 1] == elements * strides[inner]):
            continue
        # Here ends a run of dimensions that lie in memory like one.
        while place >= 0 and (covered < elements or shape[place] == 1):
            found[place] = (inner, end)
            covered *= shape[place]
            place -= 1
        if covered != elements:
            return None
        inner, elements, covered, end = dim - 1, 1, 1, place + 1
    return tuple(found)


def stepped(strides: Sequence[Any], shape: Sequence[Any], steps: Sequence[tuple[int, int]]) -> Iterator[Any]:
    """Strides in numbers or in symbols, by `steps_of_a_view`."""
    for place, (dim, end) in enumerate(steps):
        yield math.prod(shape[place + 1 : end], start=strides[dim])


def is_dense(laid: Laid) -> bool:
    """Whether the elements fill their memory, each in a place of its own."""
    shape, strides = laid
    return is_dense_in_order(laid, sorted(range(len(shape)), key=lambda d: strides[d] if shape[d] != 1 else -1))


def is_dense_in_order(laid: Laid, inner_first: Sequence[int]) -> bool:
    """The same, for this order of dimensions; strides of sizes of one do not count, nor any where there are no elements."""
    shape, strides = laid
    running = 1
    for dim in inner_first:
        if shape[dim] != 1 and strides[dim] != running and 0 not in shape:
            return False
        running *= shape[dim]
    return True


def in_suggested_format(laid: Laid, shape: Shape | None = None) -> Shape:
    """Those of a new tensor (of `shape`, or as large) in the memory format that this one suggests: channels-last or row-major."""
    order, shape = _channels_last(len(laid[0])), laid[0] if shape is None else shape
    return _in_order(shape, order) if order and _ascends(laid, order) else row_major(shape)


def in_format_of(laid: Laid) -> Shape:
    """Channels-last where it lies so, whatever its strides for sizes of one are; else in the format that it suggests."""
    order = _channels_last(len(laid[0]))
    return _in_order(laid[0], order) if order and is_dense_in_order(laid, order) else in_suggested_format(laid)


def _channels_last(rank: int) -> Sequence[int]:
    """That format's dimensions, the innermost first; empty where there is none of this rank."""
    return {4: _CHANNELS_LAST, 5: (1, 4, 3, 2, 0)}.get(rank, ())


def _ascends(laid: Laid, inner_first: Sequence[int]) -> bool:
    """Whether each stride spans the dimensions before it (ChannelsLast.h: `is_channels_last_strides_2d`)."""
    shape, strides = laid
    least = 0
    for dim in inner_first:
        if shape[dim] == 0 or strides[dim] < least or strides[1] == 0 or (dim == 0 and least == strides[1]):
            return False
        least = strides[dim] * max(shape[dim], 1)
    return True


def _in_order(shape: Shape, inner_first: Sequence[int]) -> Shape:
    strides, running = [0] * len(shape), 1
    for dim in inner_first:
        strides[dim] = running
        running *= shape[dim]
    return tuple(strides)


def repeated(laid: Laid, shape: Shape) -> Shape:
    """The strides of a tensor that is repeated to this shape."""
    sizes, strides = laid
    missing = len(shape) - len(sizes)
    known = (0 if size == 1 != wanted else step for size, step, wanted in zip(sizes, strides, shape[missing:]))
    return (*(0 for _ in range(missing)), *known)


def _loop_order(shape: Shape, strides: Sequence[Shape]) -> list[int]:
    """Dimensions from the innermost loop to the outermost: by the first operand that tells two of them apart, as eager sorts them."""

    def compared(inner: int, outer: int) -> int:
        """1 where the two are the wrong way round, -1 where they are not, 0 where no operand says."""
        for steps in strides:
            if not steps[inner] or not steps[outer]:
                continue
            if steps[inner] != steps[outer]:
                return 1 if steps[inner] > steps[outer] else -1
            if shape[inner] > shape[outer]:
                return 1
        return 0

    order = list(reversed(range(len(shape))))
    for start in range(1, len(order)):
        moved = start
        for place in reversed(range(start)):
            found = compared(order[place], order[moved])
            if found < 0:
                break
            if found > 0:
                order[place], order[moved] = order[moved], order[place]
                moved = place
    return order
