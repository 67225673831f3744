"""Over which places attention's programs walk.

In: a window of distances and the sides of a block. Out: ``Walk``s, and the lines that say where they begin and end. Programs that share their rows, with a part of the
places each, have the number ``part``.
"""

from __future__ import annotations

from collections.abc import Sequence

from attrs import evolve, frozen

from ....ir.templates import LEAST_SIDE


@frozen
class Walk:
    """A loop over steps. ``side`` is the table's that names its blocks, "" where it goes from ``first`` to ``last`` instead; ``score`` names the body, which is
    asked the mask too unless the blocks are ``full``. ``inside``: no place is beyond the end."""

    side: str = ""
    first: str = ""
    last: str = ""
    score: str = "score"
    full: bool = False
    inside: bool = False


@frozen
class Window:
    """Places from ``low`` to ``high`` beyond a row (None: no end) of ``size``, in steps of ``step``, for the rows from ``first`` to ``last`` (texts), in ``parts``."""

    low: int | None
    high: int | None
    size: int
    step: int
    first: str
    last: str
    parts: int = 1

    def lines(self) -> list[str]:
        """Where steps begin and end, and between which no pair is outside. Steps begin at multiples of their length."""
        step, whole = self.step, self.size // self.step * self.step
        begin = "0" if self.low is None else f"tl.maximum({self.first} + {self.low}, 0) // {step} * {step}"
        end = str(self.size) if self.high is None else f"tl.minimum({self.last} + {self.high + 1}, {self.size})"
        inner = "begin"
        if self.low is not None:
            inner = f"tl.maximum(({self.last} + {self.low + step - 1}) // {step} * {step}, begin)"
        outer = (
            str(whole)
            if self.high is None
            else f"tl.minimum(({self.first} + {self.high + 1}) // {step} * {step}, {whole})"
        )
        if self.parts > 1:
            outer = f"tl.minimum({outer}, end // {step} * {step})"
        return [
            f"begin = {begin}",
            f"end = {end}",
            *(self._part() if self.parts > 1 else []),
            f"inner = tl.minimum({inner}, tl.maximum(end, begin))",
            f"outer = tl.maximum({outer}, inner)",
        ]

    def _part(self) -> list[str]:
        span = f"(tl.maximum(end - begin, 0) + {self.step * self.parts - 1}) // {self.step * self.parts} * {self.step}"
        return [f"span = {span}", "begin += part * span", "end = tl.minimum(begin + span, end)"]

    def walks(self) -> Sequence[Walk]:
        """Before, inside and behind what holds for all rows."""
        found = [Walk(first="inner", last="outer", score="inner", full=True, inside=True)]
        partial = Walk(first="begin", last="inner", inside=self.size % self.step == 0)
        found = [partial, *found] if self.low is not None else found
        behind = self.high is not None or self.size % self.step
        return [*found, evolve(partial, first="outer", last="end")] if behind else found


def power_in(size: int) -> int:
    """The largest power of two that divides ``size``."""
    return size & -size


def power_above(size: int) -> int:
    """The smallest power of two that a product takes and ``size`` fits in."""
    return max(LEAST_SIDE, 1 << (size - 1).bit_length())
