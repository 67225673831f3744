"""Sizes that no example decides: of inputs marked unbacked, and of results that depend on values. Whatever tracing assumes of them is checked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import flambeau
from flambeau.compiler import config, mark_unbacked

BACKENDS = ["eager", "inductor"]


def add(x: Tensor, y: Tensor) -> Any:
    return x + y, x * 2


def join(x: Tensor, y: Tensor) -> Any:
    return torch.cat([x, y]).view(2, -1)


def outcome(function: Callable[..., Any], *args: Tensor) -> Any:
    """The results, or that it raises."""
    try:
        found = function(*args)
    except RuntimeError:
        return "raises"
    return found if isinstance(found, tuple) else (found,)


def same(a: Any, b: Any) -> bool:
    """Equal results, bit for bit, or the same lack of one."""
    if isinstance(a, str) or isinstance(b, str):
        return isinstance(a, str) and isinstance(b, str)
    return all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("program", [add, join])
@pytest.mark.falls_back("is false for u0 = ")
def test_inputs_that_do_not_fit_run_in_eager(program: Callable[..., Any], backend: str) -> None:
    """Broadcast sizes, odd sums, sizes that eager refuses; compiled anew from a cached graph too."""
    for _ in range(2):
        flambeau.compiler.reset()
        compiled = flambeau.compile(program, backend=backend)
        for n, m in ((4, 4), (1, 5), (5, 1), (3, 4), (6, 6), (4, 4)):
            x, y = torch.arange(float(n)), torch.arange(float(m)) + 7
            mark_unbacked(x, 0)
            mark_unbacked(y, 0)
            assert same(outcome(compiled, x, y), outcome(program, x, y))


@pytest.mark.falls_back("Eq(u0, u1) is false")
def test_explain_names_the_relation() -> None:
    """As the reason why the call was not compiled."""
    x, y = torch.ones(1), torch.ones(5)
    mark_unbacked(x, 0)
    mark_unbacked(y, 0)
    (found,) = flambeau.explain(add)(x, y).breaks
    assert found.code == "open-size" and "Eq(" in found.reason


def picked(x: Tensor, y: Tensor) -> Tensor:
    return x[x.nonzero()[:, 0]] + y


def picked_twice(x: Tensor, y: Tensor) -> Tensor:
    return x[x.nonzero()[:, 0]] + y[y.nonzero()[:, 0]]


def halved(x: Tensor, y: Tensor) -> Tensor:
    return torch.cat([x[x.nonzero()[:, 0]], y]).view(2, -1)


def sized(x: Tensor, y: Tensor) -> Tensor:
    return torch.zeros(int(x.sum().item())) + y


def branching(x: Tensor, y: Tensor) -> Tensor:
    chosen = x.nonzero()[:, 0]
    return x[chosen] + 1 if chosen.shape[0] > 2 else y - 1


def ones(count: int) -> Tensor:
    return (torch.arange(8) < count).float()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("program", [picked, picked_twice, halved, sized, branching])
def test_results_of_unknown_size_are_never_taken_for_others(program: Callable[..., Any], backend: str) -> None:
    """A call gives what eager gives, or raises; most that eager can do are done."""
    done = possible = 0
    with config.patch(capture_dynamic_output_shape_ops=True, capture_scalar_outputs=True):
        compiled = flambeau.compile(program, backend=backend)
        for count in (5, 1, 5, 3, 0, 7):
            for y in (torch.arange(5.0), ones(count), ones(3)):
                found, wanted = outcome(compiled, ones(count), y), outcome(program, ones(count), y)
                assert found == "raises" or same(found, wanted)
                done += found != "raises"
                possible += wanted != "raises"
    # One element that eager broadcasts is three of the calls: they raise.
    assert done >= possible - 3


def test_a_graph_with_sizes_of_its_own_is_cached() -> None:
    """What its program checks itself is no condition on the inputs."""
    with config.patch(capture_dynamic_output_shape_ops=True):
        for cached in (False, True):
            flambeau.compiler.reset()
            (found,) = flambeau.explain(picked_twice)(ones(3), ones(3)).programs
            assert found.cached is cached
