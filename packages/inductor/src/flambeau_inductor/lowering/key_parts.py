"""Attention of few queries over many keys, whose programs would leave most of a processor idle: keys in parts, each with programs of its own.

In: how many programs there are, and what each part gives. Out: how many parts there shall be, and the results of all of them together: each part's result
weighs as much as its sum of exponentials.
"""

from __future__ import annotations

from functools import reduce

import torch
from attrs import frozen

from ..devices import device_facts
from ..expr import Int
from ..ir import scalar as sc
from ..ir.layout import Layout, contiguous_strides
from ..ir.scalar import Scalar
from .values import Index, TensorValue

#: Queries that fill no block of a product, keys of a part, and most parts: their results are read by each element of the result.
MOST_QUERIES, _LEAST_KEYS, _MOST_PARTS = 16, 256, 16


def parts_of(programs: int, keys: int, device: torch.device) -> int:
    """In how many parts keys are read by ``programs`` each: as many as leave no multiprocessor without a program."""
    wanted = device_facts(device).multiprocessors // max(programs, 1)
    return max(1, min(wanted, keys // _LEAST_KEYS, _MOST_PARTS))


def part_layout(layout: Layout, parts: int, sizes: tuple[int, ...]) -> Layout:
    """Float32 results of ``sizes`` for each part, in the place of one that lies as ``layout``."""
    whole = tuple(map(Int, (parts, *sizes)))
    return Layout(whole, contiguous_strides(whole), layout.offset, torch.float32, layout.device)


@frozen
class Parts:
    """What parts gave, the number of the part first: results that are divided by their sums, the logarithms of these to the base 2, and largest scores."""

    out: TensorValue
    lse: TensorValue

    def _each(self, value: TensorValue, index: Index) -> list[Scalar]:
        return [value.at((Int(part), *index)) for part in range(int(self.lse.sizes[0]))]

    def _weights(self, row: Index) -> tuple[list[Scalar], Scalar, Scalar]:
        """What each part of a row weighs, the sum of that, and the largest logarithm."""
        sums = self._each(self.lse, row)
        most = reduce(lambda a, b: sc.op("maximum", a, b), sums)
        nothing = sc.op("eq", most, sc.constant(-float("inf"), torch.float32))
        base = sc.op("where", nothing, sc.constant(0.0, torch.float32), most)
        weights = [sc.op("exp2", sc.op("sub", part, base)) for part in sums]
        return weights, reduce(_sum, weights), most

    def result(self, index: Index) -> Scalar:
        """An element of the result; 0 in a row of which nothing takes part."""
        weights, total, _ = self._weights(index[:-1])
        values = [sc.op("mul", weight, part) for weight, part in zip(weights, self._each(self.out, index), strict=True)]
        zero = sc.op("eq", total, sc.constant(0.0, torch.float32))
        return sc.op("truediv", reduce(_sum, values), sc.op("where", zero, sc.constant(1.0, torch.float32), total))

    def logarithm(self, row: Index) -> Scalar:
        """The logarithm of a row's sum, to the base 2."""
        _, total, most = self._weights(row)
        return sc.op("add", most, sc.op("log2", total))

    def largest(self, peaks: TensorValue, row: Index) -> Scalar:
        """A row's largest score."""
        return reduce(lambda a, b: sc.op("maximum", a, b), self._each(peaks, row))


def _sum(a: Scalar, b: Scalar) -> Scalar:
    return sc.op("add", a, b)
