"""Random programs of ops that change a tensor's shape in place, between views and writes of the same memory."""

from __future__ import annotations

import random
from collections import Counter

import pytest
import torch
from lifting import check_function

from flambeau_autograd import UnsupportedGraph

SHAPES = (
    "{}.t_()",
    "{}.unsqueeze_(0).squeeze_(0)",
    "{}.transpose_(0, 1)",
    "{}.unsqueeze_(1)",
    "{}.squeeze_()",
    "{}.swapaxes_(0, -1)",
)
VIEWS = ("{}.select(0, 0)", "{}.select(-1, 1)", "{}[1:]", "{}.mT", "{}.unsqueeze(0)", "{}.narrow(-1, 0, 2)")
WRITES = ("{}.mul_(3)", "{}.add_({}.detach().cos())", "{}.sin_()", "{}[0] = 2", "{}.copy_({} * 2)")
STARTS = ("x.sin()", "x * 2", "torch.sort(x)[0]", "x.max(1)[0].outer(x[0])", "x.clone().t()", "torch.cummax(x, 0)[0]", "x.clone()[1:]")  # fmt: skip


def draw(seed: int) -> str:
    """The body of a function of `x`, of shape (4, 4)."""
    choose = random.Random(seed).choice
    lines, names = [f"a = {choose(STARTS)}"], ["a"]
    for name in "bcdefg"[: 3 + seed % 4]:
        kind = choose((SHAPES, SHAPES, WRITES, VIEWS, ("{} + 1",)))
        text = choose(kind).replace("{}", choose(names))
        if kind in (SHAPES, WRITES):
            lines.append(text)
        else:
            lines.append(f"{name} = {text}")
            names.append(name)
    return "\n".join([*lines, f"return {', '.join(names)},"])


def function_of(body: str):
    """The body as a function."""
    scope: dict = {"torch": torch}
    exec("def function(x):\n" + "\n".join(f"    {line}" for line in body.splitlines()), scope)
    return scope["function"]


def compare(body: str, grad: bool) -> str:
    """What came of a program: "same", or why there was nothing to compare."""
    given = [torch.randn(4, 4, generator=torch.Generator().manual_seed(1)).requires_grad_(grad)]
    function = function_of(body)
    try:
        function(*given)
    except (RuntimeError, IndexError):
        return "eager refuses"
    try:
        check_function(function, given)
    except UnsupportedGraph as error:
        return str(error)
    except AssertionError as error:
        raise AssertionError(body) from error
    return "same"


def compared(seeds: range) -> Counter[str]:
    """How often a program came to what."""
    return Counter(compare(draw(seed), grad) for seed in seeds for grad in (False, True))


def test_random_programs() -> None:
    """Values, strides and gradients are eager's, and no node of the graphs shows a shape that its tensor got later."""
    assert compared(range(40))["same"] >= 40


@pytest.mark.slow
def test_more_random_programs() -> None:
    """The same for many more."""
    assert compared(range(100, 1100))["same"] >= 1000


def test_a_view_that_may_have_a_history_is_left_to_eager() -> None:
    """Autograd replays views for its gradients, without the changes of shape between them."""

    def function(x):
        whole = x + 1
        part = whole[1:]
        part.t_()
        part[0].mul_(5)
        return whole

    given = torch.ones(4, 3)
    check_function(function, [given])
    with pytest.raises(UnsupportedGraph, match="views that may have a history"):
        check_function(function, [given.requires_grad_()])


@pytest.mark.parametrize("view", VIEWS)
def test_views_taken_before_and_after(view: str) -> None:
    """Only a view that was taken before, and may have a history, leaves the graph to eager."""
    for shape in SHAPES:
        change, look = shape.format("a"), f"b = {view.format('a')}"
        before, after = (
            "\n".join(["a = x.roll(1)", *lines, "return a * 2, b * 3"]) for lines in ((look, change), (change, look))
        )
        assert compare(before, False) == "same"
        assert "views that may have a history" in compare(before, True)
        assert {compare(after, grad) for grad in (False, True)} == {"same"}


@pytest.mark.parametrize("alias", ["a.detach()", "a.data"])
def test_an_alias_without_a_history(alias: str) -> None:
    """It keeps the shape; a write to it is one to the other, which has a history."""
    for change in ("a.t_()", "b.unsqueeze_(0)"):
        body = f"a = x * 2\nb = {alias}\n{change}\nb.mul_(2)\nreturn a, b"
        assert compare(body, False) == "same"
        assert "has a history of its own" in compare(body, True) or "b." in change
