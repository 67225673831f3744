"""The windows of a convolution as blocks of a product's left operand (implicit GEMM): loaded out of the image where they are needed.

In: a ``Window`` and the sides of a block. Out: lines of Triton: ``opening`` where a tile of points begins, ``load`` for each block of terms. Where blocks
divide the channels of a group, a block is of one tap, whose position is a number; else each term has a tap of its own.
"""

from __future__ import annotations

from collections.abc import Iterator

from attrs import frozen

from ....ir.kernel import Window

_INT32 = 2**31 - 1


@frozen
class WindowSide:
    """``block`` are the points and terms of a block. The writer calls the first of them ``row`` and ``term``, and the group ``batch``."""

    name: str
    window: Window
    block: tuple[int, int]

    @property
    def is_fetched(self) -> bool:
        """Whether the hardware fetches its blocks: windows are loaded by address."""
        return False

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

    def opening(self) -> list[str]:
        """Where the windows of a tile's points begin, in the image and in memory. Points beyond the end are the last one again."""
        window = self.window
        points, (rows, columns) = self.sizes[1], window.points
        images, channels, *steps = self.steps
        place = "row + tl.arange(0, YBLOCK)"
        lines = [f"point = tl.minimum({place}, {points - 1})" if points % self.block[0] else f"point = {place}"]
        lines.append(f"y = point // {columns} % {rows} * {window.stride[0]} - {window.padding[0]}")
        lines.append(f"x = point % {columns} * {window.stride[1]} - {window.padding[1]}")
        image = f"point // {rows * columns}"
        wide = ".to(tl.int64)" if self._is_wide() else ""
        start = f"({image}){wide} * {images} + y * {steps[0]} + x * {steps[1]}"
        if window.groups > 1:
            start += f" + batch * {channels * window.channels}"
        lines.append(f"start = {start}")
        return lines

    def load(self) -> list[str]:
        """One block: points by terms, zero outside of the image and beyond the last term."""
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
        window = self.window
        sizes = [int(size) for size in window.image.sizes[2:]]
        for dim, (start, tap) in enumerate((("y", "i"), ("x", "j"))):
            reach = (window.points[dim] - 1) * window.stride[dim] + (window.taps[dim] - 1) * window.dilation[dim]
            place = f"({start} + {tap})[:, None]" if self.by_tap else f"({start}[:, None] + {tap}[None, :])"
            if window.padding[dim]:
                yield f"({place} >= 0)"
            if reach - window.padding[dim] >= sizes[dim]:
                yield f"({place} < {sizes[dim]})"

    def _is_wide(self) -> bool:
        """Whether places in memory, those outside of the image included, need more than 32 bits."""
        window = self.window
        furthest = sum((int(size) - 1) * abs(step) for size, step in zip(window.image.sizes, self.steps))
        for dim, step in enumerate(self.steps[2:]):
            reach = (window.points[dim] - 1) * window.stride[dim] + (window.taps[dim] - 1) * window.dilation[dim]
            furthest += (reach + window.padding[dim]) * abs(step)
        return furthest > _INT32
