"""Views of symbolic sizes, writes through them, and views handed back: values, layout, aliasing and errors are eager's.

Small programs are drawn from fixed seeds. They run through autograd's graphs without the code generator, which keeps them
quick; the table of single views runs through the default backend too.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import flambeau

from ..comparison import outcome

SIZES = ((6, 4), (7, 5), (9, 8))
VIEWS = (
    "{v}[:n - 2]", "{v}[n // 2:]", "{v}[-(m // 2):]", "{v}[:, ::2]", "{v}[:n // 2, 1:m - 1]", "{v}.narrow(0, 1, {v}.shape[0] - 1)",
    "{v}.t()", "{v}.t()[1:]", "{v}.split({v}.shape[1] - 1, 1)[0]", "{v}.chunk(2, 1)[-1]", "{v}.unfold(1, 2, 2).select(2, 0)",
    "{v}.reshape({v}.shape[1], {v}.shape[0])", "{v}.reshape(-1).view({v}.shape[0], -1)", "{v}[0].expand(m, -1)",
    "{v}.unbind(1)[-1][:, None]", "{v}.diagonal()[None]", "{v}.as_strided(({v}.shape[0] - 1, 2), (2, 1))", "{v}.detach()",
    "{v}.roll(1, 0)", "{v}.flip(1)", "torch.cat([{v}, {v}[:, :1]], 1)", "{v}.index_select(0, torch.arange({v}.shape[0] - 1))",
    "{v}[torch.arange({v}.shape[0] // 2)]", "{v}.repeat(2, 1)", "{v} * 2", "{v} + n",
)  # fmt: skip
WRITES = (
    "{v}.add_(1)", "{v}[:n // 2].mul_(2)", "{v}.t()[0] = 1.5", "{v}[:, ::2].add_(m)", "{v}[:, ::2] += m", "{v}.masked_fill_({v} > 0, 0.5)", "{v}.fill_(n)",
    "{v}.index_put_((torch.arange({v}.shape[0] - 1),), torch.tensor(0.25))", "{v}[1:] = {v}[:-1].clone()", "{v}[1:] = {v}[:-1]",
    "{v}.copy_({v}.sum() + 1)", "{v}.reshape(-1)[: m - 1].zero_()", "{v}.narrow(0, 0, {v}.shape[0] // 2).sin_()",
)  # fmt: skip
SLICES: dict[str, Callable[..., Any]] = {
    "to": lambda x, y: (torch.sin(x) * y[: x.shape[0]]).sum(0),
    "from": lambda x, y: x.sum() * y[x.shape[0] - 2 :],
    "last": lambda x, y: x * y[-x.shape[0] :],
    "narrow": lambda x, y: x + y.narrow(0, 0, x.shape[0]),
    "index": lambda x, y: x * y.index_select(0, torch.arange(x.shape[0])) + y[torch.arange(x.shape[0])],
    "expand": lambda x, y: x[0].expand(y.shape[0], -1) * y,
    "repeat": lambda x, y: x.repeat(y.shape[0], 1).sum(0) + y.sum(0),
    "split": lambda x, y: x * y.split(x.shape[0])[0],
    "given-back": lambda x, y: (y[: x.shape[0]], x.view(x.shape[0] * x.shape[1]), y[0].expand(x.shape[0], -1)),
}


def _program(seed: int) -> str:
    draw = random.Random(seed)
    names, lines = ["x", "y"], ["n, m = x.shape"]
    for _ in range(draw.randint(2, 6)):
        name = draw.choice(names)
        if draw.random() < 0.6:
            names.append(f"v{len(names)}")
            lines.append(f"{names[-1]} = {draw.choice(VIEWS).format(v=name)}")
        else:
            lines.append(draw.choice(WRITES).format(v=name))
    results = draw.sample(names, min(len(names), draw.randint(1, 3)))
    return "def program(x, y):\n    " + "\n    ".join([*lines, f"return ({', '.join(results)},)"])


def _compare(function: Callable[..., Any], kind: str, **options: Any) -> None:
    compiled = flambeau.compile(function, **options)
    for sizes in SIZES:
        generator = torch.Generator().manual_seed(7)
        inputs = [torch.randn(sizes, generator=generator) for _ in range(2)]
        exact, tensors = outcome(function, inputs, kind)
        ours, our_tensors = outcome(compiled, inputs, kind)
        assert ours == exact
        torch.testing.assert_close(our_tensors, tensors)


#: Drawn programs that are left to eager -> why.
IN_EAGER = {
    9: "a write goes through a view in strides that starts where another view does",
    17: "is a view and is being modified inplace",
    **dict.fromkeys((7, 13, 19, 22), "leaf Variable that requires grad is being used in an in-place operation"),
}


@pytest.mark.parametrize(
    "seed",
    [pytest.param(s, marks=pytest.mark.falls_back(IN_EAGER[s]) if s in IN_EAGER else ()) for s in range(24)],
)
def test_drawn_programs(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three sizes of a program of views and writes, with and without gradients."""
    monkeypatch.setenv("FLAMBEAU_SUPPRESS_ERRORS", "0")
    scope: dict[str, Any] = {"torch": torch}
    exec(_program(seed), scope)
    kind = ("plain", "leaf", "inner")[seed % 3]
    _compare(scope["program"], kind, dynamic=(True, None)[seed % 2], backend="aot_eager")


@pytest.mark.parametrize("kind", ["plain", "leaf"])
@pytest.mark.parametrize("name", SLICES)
def test_bounds_that_are_sizes_of_another_tensor(name: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The default backend: slices, indices, expansions and splits by the sizes of another input."""
    monkeypatch.setenv("FLAMBEAU_SUPPRESS_ERRORS", "0")
    _compare(SLICES[name], kind, dynamic=True)


@pytest.mark.parametrize("grads", [(False, False), (True, False), (False, True), (True, True)])
def test_sizes_that_do_not_broadcast_raise_what_eager_raises(
    grads: tuple[bool, bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first call fails as eager does; the next one, whose sizes fit, is right."""
    monkeypatch.setenv("FLAMBEAU_SUPPRESS_ERRORS", "0")
    function = SLICES["to"]
    compiled = flambeau.compile(function, dynamic=True)
    y = torch.randn(5, 6, requires_grad=grads[1])
    x = torch.randn(6, 6, requires_grad=grads[0])
    with pytest.raises(RuntimeError) as theirs:
        function(x, y)
    with pytest.raises(RuntimeError) as ours:
        compiled(x, y)
    assert str(ours.value) == str(theirs.value)
    x = torch.randn(5, 6, requires_grad=grads[0])
    torch.testing.assert_close(compiled(x, y), function(x, y))


@pytest.mark.falls_back("where the input starts is not known")
def test_a_window_at_an_offset_of_the_storage_of_a_written_input() -> None:
    """The window starts in the storage, of which the graph has the input's elements alone: such a program is left to eager."""

    def program(y: Tensor) -> Tensor:
        window = y.diagonal().as_strided((3,), (2,), 1)
        y.sin_()
        return window.sum(0)

    ours = torch.arange(42.0).view(7, 6)
    theirs = ours.clone()
    torch.testing.assert_close(flambeau.compile(program)(ours[:-1, :-2]), program(theirs[:-1, :-2]))
    torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("front", [(1,), (1, 1), (1, 2), (2, 1)], ids=str)
def test_new_dimensions_of_one_element(front: tuple[int, ...]) -> None:
    """They step over what is behind them, also over nothing, where that repeats."""

    def program(x: Tensor) -> tuple[Any, ...]:
        row = x.sum(-1)
        found = row.expand(*front, x.shape[0], *row.shape), torch.broadcast_tensors(row, x.expand(*front, *x.shape))[0]
        return *found, *(t.stride() for t in found)

    compiled = flambeau.compile(program, dynamic=True)
    for size in (3, 5):
        ours, theirs = compiled(torch.ones(size, 1, 2)), program(torch.ones(size, 1, 2))
        assert [t.stride() for t in ours[:2]] == [t.stride() for t in theirs[:2]]
        assert ours[2:] == theirs[2:]
