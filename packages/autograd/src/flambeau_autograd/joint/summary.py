"""What the autograd graph of a body tells of each call of it.

In: a body that was traced, before it is differentiated. Out: a `Summary`, which the one node that stands for a call in the graph around it answers
with (`reach.py`): which results decide an operand, and which operands and results eager's nodes save, are then known as if the call were inlined.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from attrs import frozen
from torch._subclasses.fake_tensor import FakeTensor

from ..functional.recorder import Recorder
from .inputs import TracedInput
from .reach import Reach


@frozen
class Summary:
    """`decided`: for each operand the results that decide it; `led`: those from which the engine comes to it, with a gradient or without.

    `saved`: what nodes save, as ("input" | "output", its place) or ("inside", -1), with the results that lead to the node.
    """

    decided: tuple[tuple[int, ...], ...]
    led: tuple[tuple[int, ...], ...]
    saved: tuple[tuple[str, int, tuple[int, ...]], ...]


def summary_of(
    recorder: Recorder,
    reach: Reach,
    inputs: Sequence[TracedInput],
    results: Sequence[Any],
    differentiable: Sequence[int],
) -> Summary:
    """Look at the graph that leads to `results[i] for i in differentiable`. Before it is freed."""

    def places(ends: Sequence[int]) -> tuple[int, ...]:
        return tuple(differentiable[end] for end in ends)

    outputs = {recorder.value_of(result).cell: place for place, result in enumerate(results) if result is not None}
    saved: dict[tuple[str, int, tuple[int, ...]], None] = {}
    for tensor, ends in reach.saved():
        kind, place = "inside", -1
        if isinstance(tensor, FakeTensor):
            cell = recorder.value_of(tensor).cell
            if cell.input_index >= 0:
                kind, place = "input", cell.input_index
            elif cell in outputs:
                kind, place = "output", outputs[cell]
        saved[kind, place, places(ends)] = None
    leaves = [item.leaf if item.is_tensor else None for item in inputs]
    return Summary(
        tuple(() if leaf is None else places(reach.outputs_of(leaf)) for leaf in leaves),
        tuple(() if leaf is None else places(reach.leading_to(leaf)) for leaf in leaves),
        tuple(saved),
    )
