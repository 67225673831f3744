"""The windows of a convolution as blocks of a product's left operand (implicit GEMM): loaded out of the image where they are needed.

In: a ``Window`` and the sides of a block. Out: lines of Triton: ``opening`` where a tile of points begins, ``load`` for each block of terms.

Where a block of terms is of one tap, the points of a tile may be a box: some rows of some columns of some images. Then what a tap of all of them looks at is a
box of the image, which the hardware fetches whole (a tensor descriptor), zero outside of the image. Else, and where a pointer turns out to lie otherwise than
that takes, by one address for each element.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator

from attrs import frozen

from flambeau_runtime.triton_kernels import ALIGNED

from ....ir.kernel import Window
from .assemble import indented

_INT32 = 2**31 - 1
#: Bytes that starts and strides of what the hardware fetches are multiples of, and the longest side of a block of it.
ALIGNMENT, LONGEST_SIDE = 16, 256
#: How many times the tiles that points in a row need may be needed by boxes.
_WASTE = 1.2


@frozen
class _Way:
    """One dimension of an image as boxes of it are fetched: every ``every``-th place counts from the first one on, ``behind`` of them before the image."""

    size: int
    step: int
    every: int
    behind: int
    points: int
    dilation: int
    #: How far a tap lies behind the place that is ``behind`` places before the image.
    shift: int


@frozen
class WindowSide:
    """``block`` are the points and terms of a block. The writer calls the first of them ``row`` and ``term``, and the group ``batch``.
    ``may_fetch``: by the tile."""

    name: str
    window: Window
    block: tuple[int, int]
    may_fetch: bool = True

    @property
    def is_fetched(self) -> bool:
        """Whether the hardware fetches its blocks, given a pointer that is a multiple of 16 bytes."""
        return self.box is not None

    @property
    def by_terms(self) -> bool:
        """Whether neighbouring channels are neighbours in memory."""
        return self.steps[1] == 1

    @property
    def steps(self) -> tuple[int, ...]:
        """How far apart images, channels, rows and columns lie."""
        return tuple(int(stride) for stride in self.window.image.strides)

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Groups, points, terms."""
        groups, points, terms = (int(size) for size in self.window.sizes)
        return groups, points, terms

    @property
    def by_tap(self) -> bool:
        """Whether all terms of a block belong to one tap."""
        return self.window.channels % self.block[1] == 0

    @property
    def tiles(self) -> int:
        """How many tiles of points there are."""
        if self.box is None:
            return -(-self.sizes[1] // self.block[0])
        images, rows, columns = self._boxes(self.box)
        return images * rows * columns

    # -- boxes -----------------------------------------------------------------------------------------------------------

    @functools.cached_property
    def box(self) -> tuple[int, int, int] | None:
        """The images, rows and columns of a tile's points; None where its points just follow each other."""
        if not self.may_fetch or not self._can_fetch():
            return None
        powers = [1 << n for n in range(LONGEST_SIDE.bit_length()) if 1 << n <= self.block[0]]
        found = [
            (images, rows, self.block[0] // (images * rows))
            for images, rows in itertools.product(powers, powers)
            if images * rows <= self.block[0] <= LONGEST_SIDE * images * rows
        ]

        def cost(box: tuple[int, int, int]) -> tuple[int, int, int]:
            images, rows, columns = self._boxes(box)
            # Of equally many the widest: neighbours share what their windows have in common.
            return images * rows * columns, -box[2], -box[1]

        box = min(found, key=cost)
        return box if cost(box)[0] * self.block[0] <= _WASTE * max(self.sizes[1], self.block[0]) else None

    def _boxes(self, box: tuple[int, int, int]) -> tuple[int, int, int]:
        """How many boxes there are of images, rows and columns."""
        sides = (int(self.window.image.sizes[0]), *self.window.points)
        images, rows, columns = (-(-size // side) for size, side in zip(sides, box, strict=True))
        return images, rows, columns

    def _can_fetch(self) -> bool:
        itemsize = self.window.dtype.itemsize
        images, _, rows, columns = self.steps
        ways = self._ways
        starts = [int(self.window.image.offset), images, rows, columns, self.window.channels]
        if not self.by_tap or not self.by_terms or any(start * itemsize % ALIGNMENT for start in starts):
            return False
        if any(way.size % way.every and self._leaves(dim)[1] for dim, way in enumerate(ways)):
            # The places of a line beyond its end would be the next line's.
            return False
        return all(step > 0 for step in (images, rows, columns)) and self.block[1] * itemsize >= ALIGNMENT

    @property
    def _ways(self) -> tuple[_Way, ...]:
        """Rows and columns."""
        window, found = self.window, []
        for dim, step in enumerate(self.steps[2:]):
            size, every, padding = int(window.image.sizes[2 + dim]), window.stride[dim], window.padding[dim]
            if window.taps[dim] == 1 and not padding:
                # Places in between are never looked at.
                size, step, every = window.points[dim], step * every, 1
            behind = -(-padding // every)
            found.append(
                _Way(size, step, every, behind, window.points[dim], window.dilation[dim], behind * every - padding)
            )
        return tuple(found)

    def descriptor(self) -> list[str]:
        """The descriptor of the image, whose dimensions are images, rows, columns, and channels of the places that are taken as one."""
        if self.box is None:
            return []
        images, _, *_ = self.steps
        y, x = self._ways
        dims = [
            (int(self.window.image.sizes[0]), images, self.box[0]),
            (-(-y.size // y.every), y.step * y.every, self.box[1]),
        ]
        if y.every > 1:
            dims.append((y.every, y.step, 1))
        channels = int(self.window.image.sizes[1]) + (x.every - 1) * x.step
        dims += [(-(-x.size // x.every), x.step * x.every, self.box[2]), (channels, 1, self.block[1])]
        shape, strides, block = (list(part) for part in zip(*dims, strict=True))
        offset = f" + {int(self.window.image.offset)}" if int(self.window.image.offset) else ""
        return [
            f"if {ALIGNED}:",
            f"    {self.name}_at = tl.make_tensor_descriptor({self.name}{offset}, {shape}, {strides}, {block})",
        ]

    def _corner(self, box: tuple[int, int, int]) -> list[str]:
        """The first image, row and column of a tile's points."""
        _, rows, columns = self._boxes(box)
        return [
            "box = row // YBLOCK",
            f"image = box // {rows * columns} * {box[0]}",
            f"top = box // {columns} % {rows} * {box[1]}",
            f"side = box % {columns} * {box[2]}",
        ]

    def points(self) -> list[str]:
        """The numbers of a box's points, and which of them exist."""
        assert self.box is not None
        _, rows, columns = self.box
        (images, *_), (height, width) = self.window.image.sizes, self.window.points
        return [
            "lane = tl.arange(0, YBLOCK)",
            f"images, rows, columns = image + lane // {rows * columns}, top + lane // {columns} % {rows}, side + lane % {columns}",
            f"point = (images * {height} + rows) * {width} + columns",
            f"inside = (images < {int(images)}) & (rows < {height}) & (columns < {width})",
        ]

    # -- text ------------------------------------------------------------------------------------------------------------

    def opening(self) -> list[str]:
        """Which points a tile has, and where their windows begin. Points beyond the end are the last one again."""
        if self.box is not None:
            return self._corner(self.box)
        points, place = self.sizes[1], "row + tl.arange(0, YBLOCK)"
        point = f"tl.minimum({place}, {points - 1})" if points % self.block[0] else place
        return [f"point = {point}", *self._starts()]

    def load(self) -> list[str]:
        """One block: points by terms, zero outside of the image and beyond the last term."""
        if self.box is None:
            return self._by_address()
        window = self.window
        y, x = self._ways
        lines = [f"tap = term // {window.channels}"]
        for name, place, way in (("i", f"tap // {window.taps[1]}", y), ("j", f"tap % {window.taps[1]}", x)):
            lines.append(f"{name} = {place} * {way.dilation} + {way.shift}")
        at = ["image", f"top - {y.behind} + i // {y.every}"]
        if y.every > 1:
            at.append(f"i % {y.every}")
        channel = f"term % {window.channels}"
        if window.groups > 1:
            channel += f" + batch * {window.channels}"
        if x.every > 1:
            channel += f" + j % {x.every} * {x.step}"
        at += [f"side - {x.behind} + j // {x.every}", channel]
        lines.append(f"{self.name}_block = {self.name}_at.load([{', '.join(at)}]).reshape(YBLOCK, KBLOCK)")
        given = [*self.points(), "point = tl.where(inside, point, 0)", *self._starts(), *self._by_address()]
        return [f"if {ALIGNED}:", *indented(lines), "else:", *indented(given)]

    def _starts(self) -> list[str]:
        """Where the windows of points begin, in the image and in memory."""
        window = self.window
        rows, columns = window.points
        images, channels, *steps = self.steps
        wide = ".to(tl.int64)" if self._is_wide() else ""
        start = f"(point // {rows * columns}){wide} * {images} + y * {steps[0]} + x * {steps[1]}"
        if window.groups > 1:
            start += f" + batch * {channels * window.channels}"
        return [
            f"y = point // {columns} % {rows} * {window.stride[0]} - {window.padding[0]}",
            f"x = point % {columns} * {window.stride[1]} - {window.padding[1]}",
            f"start = {start}",
        ]

    def _by_address(self) -> list[str]:
        window, (_, block) = self.window, self.block
        channels, taps = window.channels, window.taps
        _, each, *steps = self.steps
        by_tap = self.by_tap
        terms = "tl.arange(0, KBLOCK)"
        if by_tap:
            lines = [f"tap = term // {channels}", f"channel = term % {channels} + {terms}"]
        else:
            lines = [f"terms = term + {terms}", f"tap = terms // {channels}", f"channel = terms % {channels}"]
        lines += [f"i = tap // {taps[1]} * {window.dilation[0]}", f"j = tap % {taps[1]} * {window.dilation[1]}"]
        along = "i * {} + j * {} + channel * {}".format(*steps, each)
        masks = list(self._masks())
        if not by_tap and self.sizes[2] % block:
            masks.append(f"(terms < {self.sizes[2]})[None, :]")
        given = f", mask={' & '.join(masks)}, other=0.0" if masks else ""
        offset = f" + {int(window.image.offset)}" if int(window.image.offset) else ""
        lines.append(f"{self.name}_block = tl.load({self.name}{offset} + (start[:, None] + ({along})[None, :]){given})")
        return lines

    def _masks(self) -> Iterator[str]:
        """What says that a tap is inside of the image, as far as it may be outside."""
        for dim, (start, tap) in enumerate((("y", "i"), ("x", "j"))):
            place = f"({start} + {tap})[:, None]" if self.by_tap else f"({start}[:, None] + {tap}[None, :])"
            before, behind = self._leaves(dim)
            if before:
                yield f"({place} >= 0)"
            if behind:
                yield f"({place} < {int(self.window.image.sizes[2 + dim])})"

    def _leaves(self, dim: int) -> tuple[bool, bool]:
        """Whether taps may be before the first place of the image, and behind the last one."""
        window = self.window
        return window.padding[dim] > 0, self._reach(dim) - window.padding[dim] >= int(window.image.sizes[2 + dim])

    def _reach(self, dim: int) -> int:
        """How far the last tap of the last point is from the first of the first."""
        window = self.window
        return (window.points[dim] - 1) * window.stride[dim] + (window.taps[dim] - 1) * window.dilation[dim]

    def _is_wide(self) -> bool:
        """Whether places in memory, those outside of the image included, need more than 32 bits."""
        furthest = sum((int(size) - 1) * abs(step) for size, step in zip(self.window.image.sizes, self.steps))
        for dim, step in enumerate(self.steps[2:]):
            furthest += (self._reach(dim) + self.window.padding[dim]) * abs(step)
        return furthest > _INT32
