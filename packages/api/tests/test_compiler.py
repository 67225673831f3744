"""The questions of `flambeau.compiler`, asked by plain Python and by what is compiled; what is forgotten."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, fx

from flambeau import compiler


@pytest.mark.parametrize(
    "asks",
    [
        compiler.is_compiling,
        compiler.is_dynamo_compiling,
        torch.compiler.is_compiling,
        torch.compiler.is_dynamo_compiling,
    ],
)
def test_only_what_is_compiled_is_told_so(asks: Callable[[], bool]) -> None:
    """Asked by a compiled function, by its backend, and by plain Python before and after."""
    answers: list[bool] = []

    def backend(gm: fx.GraphModule, inputs: list[Any]) -> Any:
        answers.append(asks())
        return gm.forward

    def function(x: Tensor) -> Any:
        return x + 1, asks()

    compiled = compiler.compile(function, backend=backend, fullgraph=True)
    assert asks() is False
    assert function(torch.ones(2))[1] is False
    assert [compiled(torch.ones(2))[1] for _ in range(2)] == [True, True]
    assert asks() is False
    assert answers == [False]


def test_reset_compiles_again() -> None:
    """Once for each function, for the next call alone."""
    graphs: list[fx.GraphModule] = []

    def backend(gm: fx.GraphModule, inputs: list[Any]) -> Any:
        graphs.append(gm)
        return gm.forward

    compiled = [compiler.compile(function, backend=backend) for function in (lambda x: x + 1, lambda x: x * 2)]
    for times in (1, 2):
        for _ in range(2):
            assert [function(torch.ones(1)).item() for function in compiled] == [2, 2]
        assert len(graphs) == 2 * times
        compiler.reset()
