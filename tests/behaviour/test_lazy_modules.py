"""Modules whose parameters get their sizes from the first input: made while the first call is traced, with the values, classes and hooks of eager's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import flambeau


class ByName(nn.Module):
    """Calls its layer with a keyword."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.LazyLinear(4)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(input=x * 2).relu()


class Doubled(nn.LazyLinear):
    """A lazy class of the program's that leaves the parameters to torch, and stays what it is."""

    cls_to_become = None

    def forward(self, input: Tensor) -> Tensor:
        return super().forward(input) * 2


class OtherwiseOnce(nn.LazyLinear):
    """What it does at the first call it does never again: it is a `Linear` then."""

    def forward(self, input: Tensor) -> Tensor:
        return nn.functional.linear(input, self.weight * 2)


class OfItsOwnKind(nn.LazyLinear):
    """A lazy class that looks at values."""

    def initialize_parameters(self, input: Any) -> None:
        super().initialize_parameters(input)
        with torch.no_grad():
            self.weight.fill_(float(input.mean()))


MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "linear": (lambda: nn.Sequential(nn.LazyLinear(4), nn.ReLU(), nn.LazyLinear(2)), (2, 3)),
    "alone": (lambda: nn.LazyLinear(4), (2, 3)),
    "convolution": (lambda: nn.Sequential(nn.LazyConv2d(4, 3), nn.LazyBatchNorm2d(), nn.Flatten(), nn.LazyLinear(3)), (2, 3, 8, 8)),
    "transposed": (lambda: nn.Sequential(nn.LazyConvTranspose1d(4, 3), nn.LazyInstanceNorm1d(affine=True)), (2, 3, 8)),
    "by name": (ByName, (2, 3)),
    "subclass": (lambda: Doubled(4), (2, 3)),
}  # fmt: skip
BREAKS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "drawn before": (lambda: nn.Sequential(nn.LazyLinear(4), nn.Dropout(), nn.LazyLinear(2)), (2, 3)),
    "otherwise once": (lambda: nn.Sequential(nn.Linear(3, 3), OtherwiseOnce(4)), (2, 3)),
    "own kind": (lambda: nn.Sequential(nn.Linear(3, 3), OfItsOwnKind(4)), (2, 3)),
}


def trained(make: Callable[[], nn.Module], shape: tuple[int, ...], compile: Callable[[nn.Module], Any]) -> list[Any]:
    """Two steps: results, parameters, their gradients, buffers, classes, hooks, and the next random number."""
    torch.manual_seed(0)
    x, model = torch.randn(shape), make()
    call = compile(model)
    torch.manual_seed(1)
    found: list[Any] = []
    for _ in range(2):
        out = call(x)
        out.sum().backward()
        found.append(out.detach().clone())
    found += [*model.state_dict().items(), *(parameter.grad for parameter in model.parameters())]
    found += [(type(part).__name__, len(part._forward_pre_hooks), list(vars(part))) for part in model.modules()]
    return [*found, torch.randn(1)]


def assert_alike(found: list[Any], expected: list[Any]) -> None:
    """Equal item by item: tensors nearly, names and the rest exactly."""
    assert len(found) == len(expected)
    for ours, theirs in zip(found, expected, strict=True):
        parts = (ours, theirs) if isinstance(ours, tuple) else ((ours,), (theirs,))
        for one, other in zip(*parts, strict=True):
            if isinstance(other, Tensor):
                torch.testing.assert_close(one, other)
            else:
                assert one == other


@pytest.mark.parametrize("backend", ["eager", "inductor"])
@pytest.mark.parametrize("name", MODELS)
def test_the_first_call_is_one_graph(name: str, backend: str) -> None:
    make, shape = MODELS[name]
    found = trained(make, shape, lambda model: flambeau.compile(model, backend=backend, fullgraph=True))
    assert_alike(found, trained(make, shape, lambda model: model))


@pytest.mark.falls_back("lazy module")
@pytest.mark.parametrize("name", BREAKS)
def test_where_values_or_their_order_decide_plain_python_makes_the_parameters(name: str) -> None:
    make, shape = BREAKS[name]
    assert_alike(trained(make, shape, flambeau.compile), trained(make, shape, lambda model: model))


@pytest.mark.falls_back("lazy module")
def test_inputs_that_do_not_fit_are_eagers_errors() -> None:
    model = nn.Sequential(nn.LazyConv2d(4, 3))
    with pytest.raises(RuntimeError, match=r"input to LazyConv2d, but got input of size"):
        flambeau.compile(model)(torch.randn(2, 3))
    assert model[0].has_uninitialized_params()
    assert flambeau.compile(model)(torch.randn(2, 3, 5, 5)).shape == (2, 4, 3, 3)
