"""Views taken in one grad mode and written in another, generated: what is returned, what raises and when, and gradients are eager's.

torch's rule: a view of a tensor that requires grad remembers whether it was taken without gradients, or by an op that gives several. When
its memory has been written since, whoever asks for the history of such a view gets an error. The same for views that the caller took, and wrote.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.torch_version import TorchVersion

import flambeau
from tests.witness import watch

ROOTS: dict[str, Callable[[Tensor], Tensor]] = {"leaf": lambda x: x, "history": lambda x: x * 2}
VIEWS = (
    "b[0]", "b.view(-1)", "b.expand(2, 3, 4)", "b.t()", "b.split(2)[0]", "b.unbind()[1]", "b.unbind(1)[0][1:]", "b[:]", "b.detach()",
)  # fmt: skip
WRITES = (
    "b.mul_(2)", "b.copy_(o)", "b[1:] = b[:-1].clone()", "b.masked_fill_(o > 0, 1)", "v.mul_(2)", "v[0] = 1", "v.copy_(v.clone())",
    "b[1:].mul_(2)", "torch._foreach_mul_([b], 2)", "torch._foreach_mul_([v], 2)", "torch._foreach_addcmul_([b], [o], [o])",
    "torch.mul(o, 2, out=b)", "b.data.mul_(2)", "b.random_()", "b.relu_()", "b[:, 0].relu_()", "pass",
)  # fmt: skip
USES = ("v,", "v * 1,", "(v.sin(), b)", "b.sin(),", "(v, b)", "v.grad_fn is None,")
MODES = ("enable_grad", "no_grad")
PROGRAMS = list(itertools.product(ROOTS, VIEWS, WRITES, USES, MODES, MODES))


def _function(view: str, write: str, use: str, taken: str, written: str) -> Callable[..., Any]:
    space: dict[str, Any] = {"torch": torch}
    lines = (
        "def f(b, o):",
        f" with torch.{taken}():",
        f"  v = {view}",
        f" with torch.{written}():",
        f"  {write}",
        f" return {use}",
    )
    exec("\n".join(lines), space)
    function: Callable[..., Any] = space["f"]
    return function


def _seen(value: Any) -> Any:
    if not isinstance(value, Tensor):
        return value
    try:
        return value.requires_grad, value.grad_fn is None, value.detach().tolist()
    except RuntimeError as error:
        return str(error)


def _outcome(function: Callable[..., Any], root: str) -> list[Any]:
    """Everything that can be seen of a call and of a backward of all that it returned."""
    torch.manual_seed(0)
    leaf = (torch.arange(12.0).reshape(3, 4) - 4).requires_grad_()
    base = ROOTS[root](leaf)
    try:
        results = function(base, torch.arange(12.0).reshape(3, 4) - 5)
    except RuntimeError as error:
        return [str(error)]
    seen = [*map(_seen, results), base.detach().tolist()]
    try:
        parts = [r.sum() for r in results if isinstance(r, Tensor) and r.requires_grad]
        seen.append(torch.autograd.grad(sum(parts, torch.zeros(())), leaf, allow_unused=True) if parts else None)
    except RuntimeError as error:
        seen.append(str(error)[:60])
    return seen


def _check(root: str, view: str, write: str, use: str, taken: str, written: str) -> None:
    function = _function(view, write, use, taken, written)
    assert str(_outcome(flambeau.compile(function, backend="aot_eager"), root)) == str(_outcome(function, root)), (
        f"{view}; {write}; return {use} taken under {taken}, written under {written}, of a {root}"
    )


@pytest.mark.judges_itself  # what eager refuses runs in eager
def test_a_sample_is_as_in_eager(monkeypatch: pytest.MonkeyPatch) -> None:
    witness = watch(monkeypatch)
    for program in PROGRAMS[::307]:
        _check(*program)
    assert witness.graphs > len(PROGRAMS[::307]) // 2


@pytest.mark.slow
@pytest.mark.judges_itself
@pytest.mark.parametrize("part", range(8))
def test_all_are_as_in_eager(part: int) -> None:
    for program in PROGRAMS[part::8]:
        _check(*program)


#: What the caller writes between taking the view and the call.
EARLIER = ("pass", "b.mul_(2)", "b.detach().mul_(2)", "v.detach()[0].mul_(2)")
BODIES = (
    "r = v.sin()", "r = v.detach() * 2", "r = v[:1]", "v.mul_(2); r = v * 1", "v.detach().mul_(2); r = v.argsort()", "v[:1] = 1; r = v",
    "v.data.mul_(2); r = v * 1", "with torch.no_grad(): v.mul_(2)\n r = v * 1", "with torch.no_grad(): v.mul_(2)\n r = v[:1]",
    "with torch.no_grad(): torch._foreach_mul_([v], 2)\n r = v * 1", "w = v[:1]; w.mul_(o.sum()); r = v * 1", "r = v.flip(0); v.relu_()",
    "torch.mul(v.detach(), 2, out=v); r = v",
)  # fmt: skip
#: Of which kind the view is for which the function is compiled, then which other one it is called with.
CALLS = list(itertools.product(ROOTS, BODIES, ("", "b", "b[1:]", "b.detach()"), VIEWS, MODES, EARLIER))


def _taken(view: str, mode: str, earlier: str, base: Tensor) -> Tensor:
    space = {"torch": torch, "b": base}
    with getattr(torch, mode)():
        exec(f"v = {view}", space)
    with torch.no_grad():
        exec(earlier, space)
    taken: Tensor = space["v"]
    return taken


def _outcome_for(function: Callable[..., Any], root: str, view: str, mode: str, earlier: str) -> list[Any]:
    """Everything that can be seen of a call with a view that the caller took, and of a backward of all that is there then."""
    leaf = (torch.arange(12.0).reshape(3, 4) - 4).requires_grad_()
    factor = torch.ones(2, requires_grad=True)
    base = ROOTS[root](leaf)
    given = _taken(view, mode, earlier, base)
    try:
        seen = [function(given, factor)]
    except RuntimeError as error:
        seen = [str(error).partition("\n")[0]]
    tensors = [value for value in (*seen, given, base) if isinstance(value, Tensor)]
    seen = [*map(_seen, (*seen, given, base)), given._version]
    try:
        parts = [tensor.sum() for tensor in tensors if tensor.requires_grad]
        seen.append(torch.autograd.grad(sum(parts, torch.zeros(())), (leaf, factor), allow_unused=True))
    except RuntimeError as error:
        seen.append(str(error)[:60])
    return seen


def _check_call(root: str, body: str, first: str, view: str, mode: str, earlier: str) -> None:
    space: dict[str, Any] = {"torch": torch}
    exec("def f(v, o):\n " + body.replace("; ", "\n ") + "\n return r", space)
    compiled = flambeau.compile(space["f"], backend="aot_eager")
    if first:
        _outcome_for(compiled, root, first, "enable_grad", "pass")
    wanted = _outcome_for(space["f"], root, view, mode, earlier)
    assert str(_outcome_for(compiled, root, view, mode, earlier)) == str(wanted), (
        f"{body!r}, compiled for {first!r}; then {view} of a {root}, taken under {mode}, then {earlier}"
    )


@pytest.mark.judges_itself  # what eager refuses runs in eager, and so does a write to a view that knows how it was taken
def test_a_sample_of_views_of_the_caller_is_as_in_eager(monkeypatch: pytest.MonkeyPatch) -> None:
    witness = watch(monkeypatch)
    for call in CALLS[::167]:
        _check_call(*call)
    assert witness.graphs > len(CALLS[::167]) // 2


@pytest.mark.slow
@pytest.mark.judges_itself
@pytest.mark.parametrize("part", range(8))
def test_all_views_of_the_caller_are_as_in_eager(part: int) -> None:
    for call in CALLS[part::8]:
        _check_call(*call)


def test_a_plain_view_of_the_caller_is_written_in_the_graph() -> None:
    """Only a view that remembers how it was taken is left to eager when it is written."""

    def double(v: Tensor) -> Tensor:
        return v.mul_(2).sin()

    base = torch.ones(3, 4, requires_grad=True) * 2
    compiled = flambeau.compile(double, backend="aot_eager")
    torch.testing.assert_close(compiled(base[1:]), (torch.full((2, 4), 4.0)).sin())


#: torch 2.11 and 2.15 refuse the view on fakes already, behind which the frame goes on.
OVERTAKEN = (
    "an output has no history any more"
    if "2.13" <= TorchVersion(torch.__version__) < "2.15"
    else "a tensor is written whose memory another input shares"
)


@pytest.mark.falls_back(OVERTAKEN)
@pytest.mark.parametrize("view", ["b[0]", "b.unbind()[1]", "b.expand(2, 3, 4)"])
@pytest.mark.parametrize("write", ["b.mul_(2)", "b.random_()", "torch._foreach_mul_([b], 2)", "b[1:] = b[:-1].clone()"])
def test_a_view_that_was_overtaken_is_no_result(view: str, write: str) -> None:
    """Capture stops where eager raises: what it has by then, the view among it, would be taken anew after the write."""
    function = _function(view, write, "v.sin(),", "no_grad", "enable_grad")
    with pytest.raises(RuntimeError, match="no_grad mode"):
        flambeau.compile(function, backend="aot_eager")(torch.ones(3, 4, requires_grad=True) * 2, torch.ones(3, 4))
