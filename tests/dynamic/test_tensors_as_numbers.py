"""Tensors in the place of numbers: sizes, positions, counts. What eager refuses for the number that a tensor holds is refused, read or not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import flambeau

#: Each is right for some of the numbers 0 to 3, and refused for others.
CALLS: dict[str, Callable[[Tensor], Any]] = {
    "view": lambda n: torch.ones(2).view(n),
    "reshape": lambda n: torch.ones(2, 3).reshape(n + 1, n),
    "expand": lambda n: torch.ones(2, 3).expand(n, n + 1),
    "unflatten": lambda n: torch.ones(2).unflatten(0, (n, 1)),
    "narrow": lambda n: torch.ones(2).narrow(0, n, 1),
    "select": lambda n: torch.ones(2).select(0, n),
    "select at an item": lambda n: torch.ones(2).select(0, n.item()),
    "index at an item": lambda n: torch.ones(2)[n.item()],
    "kthvalue": lambda n: torch.ones(2).kthvalue(n),
    "topk": lambda n: torch.ones(2).topk(n + 1),
    "zeros": lambda n: torch.zeros(n - 2),
    "arange": lambda n: torch.arange(2, n),
    "repeat": lambda n: torch.ones(2).repeat(n - 1),
    "eye": lambda n: torch.eye(n - 1),
    "sum": lambda n: torch.ones(2, 2).sum(n),
}


def outcome(function: Callable[[Tensor], Any], number: int) -> Any:
    try:
        return function(torch.tensor(number))
    except (RuntimeError, IndexError) as error:
        return type(error)


@pytest.mark.parametrize("is_read", [True, False])
@pytest.mark.parametrize("name", CALLS)
def test_what_a_number_is_refused_for(name: str, is_read: bool) -> None:
    def function(number: Tensor) -> Any:
        made = CALLS[name](number)
        return made if is_read else number + 1

    wanted = [outcome(function, number) for number in range(4)]
    assert any(isinstance(one, type) for one in wanted) and not all(isinstance(one, type) for one in wanted)
    for backend in ("aot_eager", "inductor"):
        run = flambeau.compile(function, backend=backend)
        for number, eager in enumerate(wanted):
            found = outcome(run, number)
            if isinstance(eager, type):
                assert found is eager, (backend, number)
            else:
                torch.testing.assert_close(found, eager)


def test_a_tensor_that_is_a_size_is_part_of_one_graph() -> None:
    def function(x: Tensor, n: Tensor) -> Tensor:
        return x.expand(n, 3).sin() + torch.zeros(n, 1)

    run = flambeau.compile(function, fullgraph=True)
    for count in (2, 5):
        x = torch.randn(3)
        torch.testing.assert_close(run(x, torch.tensor(count)), function(x, torch.tensor(count)))
