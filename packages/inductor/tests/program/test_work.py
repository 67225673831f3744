"""Bytes and operations of steps, against what a person counts."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from tracing import lowered, traced

from flambeau_inductor.config import Config
from flambeau_inductor.context import CompileContext
from flambeau_inductor.pipeline import compile_loops
from flambeau_runtime.artifact import Call, Launch

X, Y = torch.ones(8, 16), torch.ones(8, 16)


def facts(function: Any, *inputs: Tensor, **options: Any) -> list[dict[str, Any]]:
    """The facts of all launches and calls of a program, in order."""
    artifact = compile_loops(lowered(traced(function, *inputs)), CompileContext(Config(**options))).artifact
    steps = [i for i in artifact.program.instructions if isinstance(i, Launch | Call)]
    return [i.meta if isinstance(i, Call) else dict(artifact.kernels[i.kernel].meta) for i in steps]


@pytest.mark.parametrize(
    ("function", "inputs", "moved", "flops"),
    [
        (lambda x, y: x * y + 1, (X, Y), 3 * 128 * 4, 2 * 128),
        (lambda x: x.sum(-1), (X,), (128 + 8) * 4, 128),
        (lambda x: x - x.mean(-1, keepdim=True), (X,), 2 * 128 * 4, 2 * 128 + 8),
        (lambda x: x.double() > 1, (X,), 128 * 4 + 128, 0),
        (lambda x, b: x + b, (X, torch.ones(16)), 2 * 128 * 4 + 16 * 4, 128),
        (lambda t, i: t[i], (torch.ones(1000, 16), torch.tensor([1, 2, 3])), 2 * 3 * 16 * 4 + 3 * 8, 0),
        (lambda x: x.cumsum(-1), (X,), 2 * 128 * 4, 128),
    ],
)  # fmt: skip
def test_one_kernel(function: Any, inputs: tuple[Tensor, ...], moved: int, flops: int) -> None:
    """Each element read once and written once; each operation at each point that it depends on."""
    (found,) = facts(function, *inputs)
    assert (found["bytes"], found["flops"]) == (moved, flops)


@pytest.mark.parametrize("cpp_kernels", [True, False])
def test_a_product_counts_the_same_whoever_computes_it(cpp_kernels: bool) -> None:
    """Two operations for each term."""
    left, right = torch.ones(8, 16), torch.ones(16, 4)
    (found,) = facts(lambda a, b: a @ b, left, right, cpp_kernels=cpp_kernels)
    assert found["flops"] == 2 * 8 * 4 * 16 and found["ops"] == ["mm"]
    assert found["bytes"] == (8 * 16 + 16 * 4 + 8 * 4) * 4


def test_convolutions() -> None:
    """Forwards from the result, two for each tap; both gradients of the backward are such convolutions."""
    image, weight = torch.ones(2, 3, 8, 8), torch.ones(6, 3, 3, 3)
    forward = 2 * (2 * 6 * 6 * 6) * 27
    found = facts(lambda x, w: torch.conv2d(x, w), image, weight, cpp_kernels=False)
    assert sum(step["flops"] for step in found) == forward

    def backward(g: Tensor, x: Tensor, w: Tensor) -> Any:
        mask = [True, True, False]
        return torch.ops.aten.convolution_backward(g, x, w, None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1, mask)[:2]

    found = facts(backward, torch.ones(2, 6, 6, 6), image, weight, cpp_kernels=False)
    assert sum(step["flops"] for step in found) == 2 * forward
