"""Checks of computed positions that outlive the elements read there: where one is made apart, and where the loops make it themselves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from tracing import lowered, traced

from flambeau_inductor.effects import checks
from flambeau_inductor.ir.loops import Scatter

ROWS = torch.tensor([[0, 2, 1], [1, 1, 0]])


def places(function: Callable[..., Any]) -> list[int]:
    """Where checks stand among the operations of a function of a tensor and rows."""
    found = lowered(traced(function, torch.ones(4, 3), ROWS)).operations
    return [place for place, operation in enumerate(found) if checks(operation)]


SEEN = {
    "as they lie": lambda x, rows: x[rows],
    "in another order": lambda x, rows: x[rows].permute(2, 1, 0).contiguous(),
    "merged": lambda x, rows: x[rows].view(6, 3) @ x.t(),
    "split": lambda x, rows: x[rows].view(2, 3, 3, 1).sum(-2),
    "stored": lambda x, rows: x[rows + 1 - 1].exp().softmax(-1) + x[rows],
    "of a part": lambda x, rows: x.sum(1)[rows[:, 1:].reshape(-1)],
    "written": lambda x, rows: x.index_add(0, rows[0], torch.ones(3, 3)),
}
LOST = {
    "cut": lambda x, rows: x[rows][1:] * 2,
    "under a condition": lambda x, rows: torch.cat([x[rows], x[rows]])[1:3],
    "of no use": lambda x, rows: x[rows].pow(0),
    "one element": lambda x, rows: x[None][rows * 0],
    "written over": lambda x, rows: x.index_add(0, rows[0], torch.ones(3, 3)).pow(0),
    "every other": lambda x, rows: x[rows][:, ::2] * 2,
}


@pytest.mark.parametrize("name", SEEN)
def test_loops_check_what_they_read(name: str) -> None:
    """No check is made twice."""
    assert places(SEEN[name]) == []


@pytest.mark.parametrize("name", LOST)
def test_what_no_loop_reads_everywhere_is_checked_apart(name: str) -> None:
    """Once."""
    assert len(places(LOST[name])) == 1


def test_checks_come_before_writes() -> None:
    """One for all uses of the same rows, first of all where rows come from outside; the write goes into the input itself."""

    def program(x: Tensor, rows: Tensor) -> Tensor:
        taken = x[rows[0]] * 2
        torch.ops.aten.copy_.default(x, x.index_copy(0, rows[0], taken))
        return taken

    found = lowered(traced(program, torch.ones(4, 3), ROWS)).operations
    assert [checks(operation) for operation in found][:2] == [
        True,
        True,
    ]  # positions of `index` count from the end, too
    assert not any(map(checks, found[2:]))
    assert any(isinstance(operation, Scatter) for operation in found)


def test_rows_that_are_computed_are_checked_when_they_are_there() -> None:
    """After what they are computed by, before the write."""

    def program(x: Tensor, rows: Tensor) -> None:
        chosen = torch.argmax(x, 1)
        torch.ops.aten.copy_.default(x, torch.index_select(x * 2, 0, chosen))

    found = lowered(traced(program, torch.ones(4, 3), ROWS)).operations
    assert [checks(operation) for operation in found].index(True) == 1
