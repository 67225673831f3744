"""Where a graph under DistributedDataParallel may be cut, and that its parts give what the whole gives."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.nn.parallel import DistributedDataParallel

import flambeau
from flambeau.ddp import by_buckets


class Parts:
    """A backend that runs graphs as they are, and counts them."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, gm: Any, inputs: Any) -> Any:
        self.count += 1
        return gm.forward


@pytest.fixture
def in_wrapper(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in the forward of a wrapper with buckets of one parameter."""
    monkeypatch.setattr(DistributedDataParallel, "_active_ddp_module", SimpleNamespace(bucket_bytes_cap=1))


class Net(torch.nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function
        self.v, self.w = (torch.nn.Parameter(torch.randn(4, 4)) for _ in range(2))

    def forward(self, x: torch.Tensor) -> Any:
        return self.function(x, self.v, self.w)


def chain(x, v, w):
    return (x @ v).sin() @ w


def several_results(x, v, w):
    y = x @ v
    return y, (y @ w).cos(), x


def written_across(x, v, w):
    y = x @ v
    z = y.t()
    u = x.sin() @ w
    z.mul_(2)
    return u + y


def written_between(x, v, w):
    y = (x @ v).sin_()
    return y @ w


def tuples(x, v, w):
    a, b = (x @ v).chunk(2)
    return a @ w + b


def settings(x, v, w):
    y = x @ v
    with torch.no_grad():
        z = y @ w
    return y + z


def sizes(x, v, w):
    n = x.shape[0] * 2
    return (x @ v) @ w * n


@pytest.mark.usefixtures("in_wrapper")
@pytest.mark.parametrize(
    ("function", "parts"),
    [(chain, 2), (several_results, 2), (written_across, 1), (written_between, 2), (tuples, 2), (sizes, 2)],
)
def test_parts_give_what_the_whole_gives(function: Callable[..., Any], parts: int) -> None:
    """Results and gradients, of a second size too."""
    model, counted = Net(function), Parts()
    compiled = flambeau.compile(model, backend=by_buckets(counted), dynamic=True)
    for rows in (4, 4, 6):
        x = torch.randn(rows, 4, requires_grad=True)
        found, wanted = ([r for r in _flat(run(x))] for run in (compiled, model))
        for one, other in zip(found, wanted, strict=True):
            assert torch.allclose(one, other)
        inputs = (x, *model.parameters())
        grads = [
            torch.autograd.grad(sum(r.sum() for r in results), inputs, allow_unused=True) for results in (found, wanted)
        ]
        for one, other in zip(*grads, strict=True):
            assert (one is None) is (other is None) and (one is None or torch.allclose(one, other, atol=1e-5))
    assert counted.count == parts


def _flat(result: Any) -> tuple[torch.Tensor, ...]:
    return result if isinstance(result, tuple) else (result,)


def test_a_model_that_was_compiled_before_there_was_a_wrapper(request: pytest.FixtureRequest) -> None:
    """As is usual: the group of processes is asked for when the graph is captured."""
    model, counted = Net(chain), Parts()
    compiled = flambeau.compile(model, backend=counted)
    request.getfixturevalue("in_wrapper")
    x = torch.randn(4, 4)
    assert torch.allclose(compiled(x), model(x))
    assert counted.count == 2


def test_errors_name_the_backend() -> None:
    class Bad:
        def __call__(self, gm: Any, inputs: Any) -> Any:
            raise KeyError("mine")

    with pytest.raises(flambeau.errors.BackendError, match="backend 'Bad' raised KeyError"):
        flambeau.compile(Net(chain), backend=Bad())(torch.randn(4, 4))


@pytest.mark.usefixtures("in_wrapper")
def test_a_graph_that_changes_settings_stays_whole() -> None:
    model, counted = Net(settings), Parts()
    x = torch.randn(4, 4)
    assert torch.allclose(flambeau.compile(model, backend=by_buckets(counted))(x), model(x))
    assert counted.count == 1


def test_outside_of_a_wrapper_nothing_is_cut() -> None:
    model, counted = Net(chain), Parts()
    x = torch.randn(4, 4)
    assert torch.allclose(flambeau.compile(model, backend=by_buckets(counted))(x), model(x))
    assert counted.count == 1
