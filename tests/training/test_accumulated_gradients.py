"""Gradients that are added to those of an earlier backward, in place: none may show the memory of another.

Eager itself adds up wrongly here where two of its gradients are views of one, so what is expected comes from one backward.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import flambeau

#: Ways from a parameter to three rows of four, and the parameter's shape.
WAYS = {
    "itself": ((3, 4), lambda p: p),
    "flat": ((12,), lambda p: p.view(3, 4)),
    "of one more": ((3, 4, 1), lambda p: p.squeeze(-1)),
    "turned": ((4, 3), lambda p: p.t()),
    "a row": ((4,), lambda p: p.view(1, 4)),
    "rows": ((1, 4), lambda p: p),
}


class Sum(nn.Module):
    def __init__(self, ways: list[str]) -> None:
        super().__init__()
        self.ways = [WAYS[way][1] for way in ways]
        self.parts = nn.ParameterList(torch.randn(WAYS[way][0]) for way in ways)

    def forward(self, x: Tensor) -> Tensor:
        for way, part in zip(self.ways, self.parts):
            x = x + way(part)
        return x.sin()


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_what_is_added_twice_is_twice_the_gradient(backend: str) -> None:
    x = torch.randn(3, 4)
    for ways in ([*WAYS, *WAYS], [*reversed(WAYS)], ["flat", "turned"], ["flat", "itself", "flat"]):
        model = Sum(ways)
        parameters = list(model.parameters())
        once = torch.autograd.grad(model(x).sum(), parameters)
        compiled = flambeau.compile(model, backend=backend)
        for _ in range(2):
            compiled(x).sum().backward()
        for part, gradient in zip(parameters, once, strict=True):
            torch.testing.assert_close(part.grad, gradient * 2)


@pytest.mark.parametrize("join", [torch.cat, torch.stack, torch.hstack])
def test_parts_of_one_gradient_are_not_copied(join: Callable[..., Tensor]) -> None:
    """Those of a concatenation lie beside each other, as in eager."""
    storages = []
    for run in (join, flambeau.compile(join, backend="aot_eager")):
        a, b = (torch.randn(2, 3, requires_grad=True) for _ in range(2))
        run([a, b]).sin().sum().backward()
        storages.append([t.grad.untyped_storage().nbytes() for t in (a, b)])
    assert storages[0] == storages[1]
