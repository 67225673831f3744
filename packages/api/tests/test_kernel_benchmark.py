"""Steps of a program that are timed again: each that does something else, however it is named."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

import flambeau
from flambeau.insight.kernel_benchmark import benchmark, names, table


def _program(function: Any, *inputs: Tensor) -> Any:
    return flambeau.explain(function, measure=False)(*inputs).programs[0].artifact


def test_calls_of_one_name_are_told_apart_by_their_operands() -> None:
    """Those of the same layout are timed once, with how many there are."""

    def function(x: Tensor, y: Tensor, z: Tensor) -> tuple[Tensor, ...]:
        return tuple(torch.sort(value, -1)[0] for value in (x, y, z)) + torch.sort(x, 0)[:1]

    artifact = _program(function, torch.randn(30, 41), torch.randn(5, 7), torch.randn(30, 41))
    assert names(artifact) == ["aten::sort"]
    times = benchmark(artifact, rounds=1)
    assert [time.count for time in times] == [2, 1, 1] and all(time.seconds for time in times)
    assert table(times).count("aten::sort x 2") == 1 and len(table(times).splitlines()) == 4
    assert benchmark(artifact, "of no kernel") == []
