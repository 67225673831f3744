"""Gradients of `cond`, `scan` and `map` beside eager, which results have one, and which operands get one; of `while_loop` beside plain Python.

Torch's operators have one autograd function around all of their results. So a result has a gradient though nothing that it is made of has one, and an
operand gets zeros though no result depends on it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._higher_order_ops.map import map as map_over
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop
from torch.torch_version import TorchVersion

import flambeau

Programs = dict[str, Callable[[Tensor, Tensor], Any]]
PROGRAMS: Programs = {
    "a carry that has no gradient at first": lambda x, w: scan(
        lambda c, x: ((c * w + x).tanh(), (c * 2).sin()), torch.zeros(3), x
    ),
    "one carry has a gradient by way of another": lambda x, w: scan(
        lambda c, x: ((c[0] * w + c[1], c[0].sin() + x), c[1] * 2), (torch.zeros(3), torch.zeros(3)), x
    ),
    "a carry that never has one": lambda x, w: scan(
        lambda c, x: ((c[0] * w, c[1] + 1), c[1] * x), (torch.ones(3), torch.zeros(3)), x
    ),
    "rows that nothing depends on": lambda x, w: scan(
        lambda c, x: (c + x.detach(), c * w), torch.zeros(3), x
    ),
    "a scan of what is detached": lambda x, w: scan(
        lambda c, x: (c + x.detach(), (c * 2).detach()), torch.zeros(3), x * w
    ),
    "a branch without a gradient": lambda x, w: torch.cond(
        x.sum() > 0, lambda x: x * w, lambda x: torch.ones_like(x) * 2, (x,)
    ),
    "a result of both branches without one": lambda x, w: torch.cond(
        x.sum() > 0, lambda x: (x * w, x.detach() * 3), lambda x: (x.sin(), x.detach().cos()), (x,)
    ),
    "a map of which a result has none": lambda x, w: map_over(lambda row: (row * w, row.detach() * 2), x),
    "a map of what is detached": lambda x, w: map_over(lambda row: (row.detach() * 2,), x)[0] * w,
}  # fmt: skip


#: Torch 2.11's own gradients of these are not those of the steps in plain Python.
WRONG_IN_EAGER = frozenset((
    "a carry that has no gradient at first", "one carry has a gradient by way of another", "a carry that never has one",
))  # fmt: skip


def _scanned(step: Any, carry: Any, xs: Tensor) -> tuple[Any, Tensor]:
    """What `scan` stands for."""
    rows = []
    for x in xs:
        carry, row = step(carry, x)
        rows.append(row)
    return carry, torch.stack(rows)


def _outcome(call: Callable[[Tensor, Tensor], Any], is_wanted: bool) -> Any:
    torch.manual_seed(0)
    x, w = torch.randn(5, 3, requires_grad=is_wanted), torch.randn(3, requires_grad=True)
    results = torch.utils._pytree.tree_leaves(call(x, w))
    has = [result.requires_grad for result in results]
    loss = torch.stack([r.square().sum() for r, differentiable in zip(results, has, strict=True) if differentiable])
    leaves = [w, x] if is_wanted else [w]
    return results, has, torch.autograd.grad(loss.sum(), leaves, allow_unused=True)


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("is_wanted", [True, False], ids=["of all", "of one"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_as_in_eager(name: str, is_wanted: bool, dynamic: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Results, which of them have a gradient, and the gradients; one graph."""
    compiled = flambeau.compile(PROGRAMS[name], fullgraph=True, dynamic=dynamic)
    found, wanted = _outcome(compiled, is_wanted), _outcome(PROGRAMS[name], is_wanted)
    assert found[1] == wanted[1]
    if name in WRONG_IN_EAGER and TorchVersion(torch.__version__) < "2.12":
        monkeypatch.setitem(globals(), "scan", _scanned)
        wanted = _outcome(PROGRAMS[name], is_wanted)
    for ours, theirs in zip((*found[0], *found[2]), (*wanted[0], *wanted[2]), strict=True):
        assert (ours is None) == (theirs is None)
        torch.testing.assert_close(ours, theirs)


def _looped(holds: Any, step: Any, carried: tuple[Any, ...]) -> tuple[Any, ...]:
    """What `while_loop` stands for. Its own gradient is wrong where a carry has none at first (torch 2.13)."""
    while holds(*carried):
        carried = step(*carried)
    return carried


LOOPS: dict[str, Callable[[Any, Tensor, Tensor], Any]] = {
    "steps": lambda loop, x, w: loop(
        lambda n, y: n < 3, lambda n, y: (n + 1, y.sin() * w), (torch.tensor(0), x.sum(0))
    )[1],
    "as many as a value says": lambda loop, x, w: loop(
        lambda y, z: y.sum() < 20, lambda y, z: (y.abs() * 1.5 + 1, z * w + y), (x * w, torch.zeros(5, 3))
    ),
    "no step, which could not be taken": lambda loop, x, w: loop(
        lambda n, y: n < 5, lambda n, y: (n + 1, y * x.index_select(0, n.reshape(1))[0]), (torch.tensor(5), w * 2)
    )[1],
    "one after another": lambda loop, x, w: loop(
        lambda n, y: n < 2,
        lambda n, y: (n + 1, y * w),
        (torch.tensor(0), loop(lambda y: y.sum() < 9, lambda y: (y * y + 1,), (x,))[0]),
    )[1],
}  # fmt: skip


@pytest.mark.parametrize("backend", ["inductor", "aot_eager"])
@pytest.mark.parametrize("is_wanted", [True, False], ids=["of all", "of one"])
@pytest.mark.parametrize("name", LOOPS)
def test_loops_as_in_plain_python(name: str, is_wanted: bool, backend: str) -> None:
    """As many steps back as were made, none included; the operator gives zeros where plain Python gives nothing."""
    compiled = flambeau.compile(lambda x, w: LOOPS[name](while_loop, x, w), fullgraph=True, backend=backend)
    found, _, gradients = _outcome(compiled, is_wanted)
    wanted, _, expected = _outcome(lambda x, w: LOOPS[name](_looped, x, w), is_wanted)
    for ours, theirs in zip((*found, *gradients), (*wanted, *expected), strict=True):
        torch.testing.assert_close(ours, torch.zeros_like(ours) if theirs is None else theirs)
