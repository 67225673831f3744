"""Loops take the order in which memory lies, except where their order is what is asked for."""

from __future__ import annotations

from itertools import permutations

import torch
from tracing import lowered, traced

from flambeau_inductor.ir.kernel import KernelBody
from flambeau_inductor.pipeline import compile_loops
from flambeau_inductor.schedule import schedule
from flambeau_runtime import load


def test_positions_count_in_the_order_of_the_tensor() -> None:
    """Of a tensor whose memory lies in any other order, with ties."""
    orders = list(permutations(range(3)))

    def positions(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(kind(x.permute(order)) for order in orders for kind in (torch.argmax, torch.argmin))

    x = torch.tensor([[[1.0, 5.0], [5.0, 0.0], [2.0, 3.0]], [[0.0, 5.0], [4.0, 5.0], [0.0, 1.0]]])
    found = load(compile_loops(lowered(traced(positions, x))).artifact)(x)
    assert list(map(int, found)) == list(map(int, positions(x)))


def test_loops_over_memory_in_one_order_are_one_loop() -> None:
    """In whatever order the dimensions are: the strides put the loops in order, and neighbours that run on merge."""
    tensors = [torch.rand(3, 4, 5, 6), torch.rand(3, 4, 5, 6)]
    for order in ((3, 2, 1, 0), (2, 0, 3, 1)):

        def program(*given: torch.Tensor, order: tuple[int, ...] = order) -> torch.Tensor:
            x, y = (t.permute(order) for t in given)
            return x * y

        (body,) = (step for step in schedule(lowered(traced(program, *tensors))).steps if isinstance(step, KernelBody))
        assert len(body.outer) == 1
