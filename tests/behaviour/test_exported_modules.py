"""Modules that `torch.export` made: each is one graph, and gives, writes and refuses what it does in eager."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim, export
from torch.utils._pytree import tree_leaves

import flambeau

from ..comparison import assert_same

# What torch's own exporter uses of torch.
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*isinstance.treespec, LeafSpec.*"),
    pytest.mark.filterwarnings("ignore:.*TreeSpec.*:FutureWarning"),
]


class Plain(nn.Module):
    """Parameters, and a buffer that is read."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 4)
        self.register_buffer("shift", torch.arange(4.0))

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x).relu() + self.shift


class Counting(Plain):
    """Buffers that are written."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))
        self.norm = nn.BatchNorm1d(4)

    def forward(self, x: Tensor) -> Tensor:
        self.calls.add_(1)
        return self.norm(super().forward(x)) + self.calls


class Nested(Plain):
    """Arguments by keyword and results in containers."""

    def forward(self, x: Tensor, *, scale: Tensor, more: dict[str, Any]) -> Any:
        y = super().forward(x) * scale + more["b"]
        return {"y": y, "rest": (y.sum(), [x + more["a"][0], more["a"][1]])}


def more(rows: int) -> dict[str, Any]:
    torch.manual_seed(rows)
    return {"scale": torch.rand(4), "more": {"b": torch.rand(rows, 4), "a": [torch.rand(3), torch.rand(2)]}}


def nothing(rows: int) -> dict[str, Any]:
    return {}


ROWS = Dim("rows", min=2, max=64)
DYNAMIC = {"x": {0: ROWS}}
#: What is exported: the module, keywords for so many rows, which sizes are free.
EXPORTED: dict[str, tuple[Callable[[], nn.Module], Callable[[int], dict[str, Any]], Any]] = {
    "plain": (Plain, nothing, None),
    "buffers": (Counting, nothing, None),
    "nested": (Nested, more, None),
    "sizes": (Plain, nothing, DYNAMIC),
    "buffers and sizes": (Counting, nothing, DYNAMIC),
    "nested and sizes": (Nested, more, {**DYNAMIC, "scale": None, "more": {"b": {0: ROWS}, "a": [None, None]}}),
}


def exported(name: str) -> tuple[nn.Module, nn.Module, Callable[[int], dict[str, Any]]]:
    """The module that is exported, twice, and its keywords."""
    make, keywords, sizes = EXPORTED[name]
    made = []
    for _ in range(2):
        torch.manual_seed(0)
        made.append(export(make(), (torch.randn(5, 3),), keywords(5), dynamic_shapes=sizes).module())
    return made[0], made[1], keywords


@pytest.mark.parametrize("name", EXPORTED)
def test_one_graph(name: str) -> None:
    ours, theirs, keywords = exported(name)
    compiled = flambeau.compile(ours, fullgraph=True)
    for rows in (5, 7, 9, 5) if EXPORTED[name][2] else (5, 5):
        given = torch.randn(rows, 3)
        assert_same(compiled(given, **keywords(rows)), theirs(given, **keywords(rows)))
        assert_same(list(ours.buffers()), list(theirs.buffers()))
        if rows != 7:
            for run in (compiled, theirs):
                # Not their plain sum, whose gradient behind a normalisation is nothing but rounding.
                sum(part.sin().sum() for part in tree_leaves(run(given, **keywords(rows)))).backward()
    assert_same([each.grad for each in ours.parameters()], [each.grad for each in theirs.parameters()], strides=False)


@pytest.mark.falls_back("is raised")
@pytest.mark.parametrize("name", EXPORTED)
def test_what_the_guards_of_the_module_refuse(name: str) -> None:
    """Too many rows, another number of columns, one argument too many."""
    ours, theirs, keywords = exported(name)
    compiled = flambeau.compile(ours)
    assert_same(compiled(torch.ones(5, 3), **keywords(5)), theirs(torch.ones(5, 3), **keywords(5)))
    for given in ((torch.ones(99, 3),), (torch.ones(5, 2),), (torch.ones(5, 3), 1)):
        with pytest.raises(Exception) as expected:
            theirs(*given, **keywords(99))
        with pytest.raises(expected.type) as raised:
            compiled(*given, **keywords(99))
        assert str(raised.value) == str(expected.value)


def test_within_another_program() -> None:
    inner, ours, _ = exported("buffers and sizes")

    def program(inner: nn.Module, x: Tensor) -> Tensor:
        return inner(x * 2) + inner(x)

    compiled = flambeau.compile(program, fullgraph=True)
    for rows in (4, 6):
        given = torch.randn(rows, 3)
        assert_same(compiled(ours, given), program(inner, given))
    assert_same(ours.state_dict(), inner.state_dict())
