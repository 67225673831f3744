"""`torch.cond` and `torch.while_loop` in CUDA graphs: the device decides at each replay, the host does not wait, every call equals eager."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

import flambeau
from flambeau_runtime.device import conditional
from flambeau_runtime.graphs.call import RecordedProgram
from tests.comparison import assert_same

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
    pytest.mark.skipif(not conditional.is_available(), reason="needs a driver of CUDA 12.4"),
]
CALLS = 12


def branches(x: Tensor, y: Tensor) -> Any:
    """Products in both branches, work around them."""
    z = torch.nn.functional.gelu(x @ y)
    chosen = torch.cond(z.sum() > 0, lambda a, b: (a @ b).relu() + 1, lambda a, b: torch.softmax(a - b, -1), (z, y))
    return chosen.sin() * 2, z


def handed_back(x: Tensor, y: Tensor) -> Any:
    """Branches of several results, in other layouts than their operands."""
    return torch.cond((x * y).mean() > 0, lambda a, b: (a.t() + 0, b * 2), lambda a, b: (b.t() + 1, a + b), (x, y))


def computed_twice(x: Tensor, y: Tensor) -> Any:
    """Results that are one value in one branch, and two in the other."""
    return torch.cond((x * y).mean() > 0, lambda a, b: (a + b, a + b), lambda a, b: (a - b, a * b), (x, y))


def nested(x: Tensor, y: Tensor) -> Any:
    """A branch within a branch, and a loop within one."""

    def yes(a: Tensor, b: Tensor) -> Tensor:
        return torch.cond(a.max() > 2, lambda a, b: a * 2 + b, lambda a, b: a - b, (a, b)) + 1

    def no(a: Tensor, b: Tensor) -> Tensor:
        (_, last) = torch.while_loop(
            lambda i, _: i < 3, lambda i, c: (i + 1, c.sin() @ b), (torch.zeros_like(a[0, 0]), a)
        )
        return last

    return torch.cond(x.mean() > 0, yes, no, (x, y)) @ y


def loops(x: Tensor, y: Tensor) -> Any:
    """As many steps as the data say, none among them; what is carried changes places."""

    def go_on(count: Tensor, a: Tensor, b: Tensor) -> Tensor:
        return (count < y[0, 0].abs() * 4) & (a.abs().max() < 1e4)

    return torch.while_loop(
        go_on, lambda count, a, b: (count + 1, torch.tanh(b) * 1.5, a + 1), (y.new_zeros(()), x * 2, x + y)
    )


def inputs(number: int) -> tuple[Tensor, Tensor]:
    """Of changing signs and sizes."""
    sign = (-1) ** (number // 2)
    return torch.randn(16, 16, device="cuda") * (1 + number % 3) + sign * 0.5, torch.rand(16, 16, device="cuda") * sign


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """Every decision of recorded programs, as kind and reason; a recording that fails is an error."""
    found: list[tuple[str, str]] = []
    tell = RecordedProgram._tell

    def note(self: Any, seen: set[str], kind: str, reason: str, **options: Any) -> None:
        found.append((kind, reason))
        tell(self, seen, kind, reason, **options)

    def fail(self: Any, error: Exception) -> None:
        raise error

    monkeypatch.setattr(RecordedProgram, "_tell", note)
    monkeypatch.setattr(RecordedProgram, "_close", fail)
    return found


@pytest.mark.parametrize("function", [branches, handed_back, computed_twice, nested, loops])
def test_every_call_equals_eager(function: Callable[..., Any], told: list[tuple[str, str]]) -> None:
    """Results are kept, so several recordings take turns; other work is queued between the calls."""
    compiled = flambeau.compile(function, mode="reduce-overhead", fullgraph=True)
    kept = []
    for number in range(CALLS):
        given = inputs(number)
        kept.append((compiled(*given), function(*given)))
    for ours, theirs in kept:
        for found, wanted in zip(tree_leaves(ours), tree_leaves(theirs), strict=True):
            assert found.stride() == wanted.stride()
            assert_same(found, wanted, rtol=1e-4, atol=1e-4)
    assert {kind for kind, _ in told} == {"recorded"}


@pytest.mark.parametrize("function", [branches, handed_back, computed_twice, nested, loops])
def test_the_host_does_not_wait(function: Callable[..., Any]) -> None:
    compiled = flambeau.compile(function, mode="reduce-overhead", fullgraph=True)
    given = inputs(0)
    for _ in range(4):
        compiled(*given)
    before = torch.cuda.get_sync_debug_mode()
    torch.cuda.set_sync_debug_mode("error")
    try:
        compiled(*given)
    finally:
        torch.cuda.set_sync_debug_mode(before)


def test_gradients(told: list[tuple[str, str]]) -> None:
    """Forward and backward decide alike: each replay's backward belongs to the branch that its forward took."""

    def function(x: Tensor, w: Tensor) -> Tensor:
        return torch.cond(x.sum() > 0, lambda a: (a @ w).sin() @ w, lambda a: (a @ w).cos() * 2, (x,)).sum()

    compiled = flambeau.compile(function, mode="reduce-overhead", fullgraph=True)
    for number in range(CALLS):
        x, w = (value.requires_grad_() for value in inputs(number))
        wanted = torch.autograd.grad(function(x, w), (x, w))
        for ours, theirs in zip(torch.autograd.grad(compiled(x, w), (x, w)), wanted, strict=True):
            assert_same(ours, theirs, rtol=1e-4, atol=1e-4)
    assert {kind for kind, _ in told} == {"recorded"}


def test_random_draws_where_data_decides_are_plain() -> None:
    """The branch that is not taken must not advance the generator."""

    def function(x: Tensor) -> Tensor:
        return torch.cond(x.sum() > 0, lambda a: torch.rand_like(a) + a, lambda a: a * 2, (x,))

    compiled = flambeau.compile(function, options={"triton.cudagraphs": True, "fallback_random": True})
    for number in range(6):
        x, _ = inputs(number)
        torch.manual_seed(number)
        ours = compiled(x), torch.rand(1, device="cuda")
        torch.manual_seed(number)
        wanted = function(x), torch.rand(1, device="cuda")
        for found, value in zip(ours, wanted, strict=True):
            assert_same(found, value)
