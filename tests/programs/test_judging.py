"""What the runner must notice: each kind of difference between two records of a program."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from .observe import observe, one_graph, verdict
from .registry import Made, Program
from .snapshot import difference, snapshot

pytestmark = pytest.mark.judges_itself

_T = torch.tensor([1.0, 2.0])


@pytest.mark.parametrize(
    ("ours", "theirs", "part"),
    [
        (_T, torch.tensor([1.0, 2.1]), "value 1"),
        (_T, _T.double(), "dtype"),
        (_T, _T[None], "shape"),
        (torch.zeros(2, 3), torch.zeros(3, 2).t(), "stride"),
        (_T, _T.clone().requires_grad_(), "instead of"),
        (_T, nn.Parameter(_T.clone(), requires_grad=False), "kind"),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}, "items"),
        ([1], (1,), "kind"),
        (True, 1, "instead of"),
        (1, 1.0, "instead of"),
        (float("nan"), 0.0, "value 0"),
    ],
)
def test_a_difference_is_told(ours: Any, theirs: Any, part: str) -> None:
    assert part in difference(snapshot(ours), snapshot(theirs))


@pytest.mark.parametrize(
    "value", [_T, float("nan"), {"a": [_T, (1, "x")]}, {1, 2}, torch.float32, _T.numpy(), nn.Linear(2, 2)]
)
def test_the_same_value_is_the_same(value: Any) -> None:
    assert not difference(snapshot(value), snapshot(value))


def test_rounding_is_no_difference() -> None:
    assert not difference(snapshot(_T * (1 + 1e-6)), snapshot(_T))


def _program(function: Any, *, outside: Any = None, raises: bool = False) -> Program:
    def make() -> Made:
        return function, [(torch.ones(3, requires_grad=True),)], outside

    return Program("one", "tests", make, raises)


def test_a_wrong_gradient_and_a_wrong_write_are_wrong() -> None:
    eager = observe(_program(lambda x: x * 2), "eager")
    assert verdict(observe(_program(lambda x: x * 2), "eager"), eager) == ("equal", "")
    other = observe(_program(lambda x: x.detach() * 2 + (x - x.detach())), "eager")
    found, what = verdict(other, eager)
    assert found == "wrong" and "grad" in what
    log: list[int] = []
    assert verdict(observe(_program(lambda x: log.append(1) or x * 2, outside=log), "eager"), eager)[0] == "wrong"


def test_raising_where_eager_does_not_is_told_apart() -> None:
    def fails(x: torch.Tensor) -> torch.Tensor:
        raise KeyError("no")

    eager, raising = observe(_program(lambda x: x * 2), "eager"), observe(_program(fails), "eager")
    assert verdict(raising, eager)[0] == "raises"
    assert verdict(eager, raising)[0] == "wrong"
    assert verdict(raising, raising)[0] == "equal"


def test_graphs_are_counted_and_a_break_is_not_one_graph() -> None:
    def broken(x: torch.Tensor) -> torch.Tensor:
        y = x.sin()
        print("a break")
        return y.cos()

    whole = observe(_program(lambda x: x.sin().cos()), "flambeau")
    parts = observe(_program(broken), "flambeau")
    assert (whole["graphs"], parts["graphs"]) == (1, 2)
    eager = observe(_program(broken), "eager")
    assert one_graph(whole, eager) and not one_graph(parts, eager)
    assert "print" in parts["breaks"][0] and eager["calls"][0]["printed"] == "a break\n"
