"""The page and the expectations that come of three runs."""

from __future__ import annotations

from typing import Any

import pytest

from .registry import Program
from .table import Row, expectations, page

pytestmark = pytest.mark.compiles(graphs=0)
_EQUAL = ("equal", "")


def _row(name: str, graphs: tuple[int, int], whole: tuple[bool, bool], flambeau: tuple[str, str] = _EQUAL) -> Row:
    return Row(Program(name, "loops", list), graphs, whole, (_EQUAL, flambeau), "a | reason", "")


_ROWS = [
    _row("whole", (1, 1), (True, True)),
    _row("lost", (1, 3), (True, False)),
    _row("won", (2, 1), (False, True)),
    _row("bad", (1, 1), (True, True), ("wrong", "value 0")),
]
_VERSIONS: dict[str, Any] = {"torch": "2.0", "python": "3.11"}


def test_the_summary_counts() -> None:
    assert "| loops | 4 | 3 | 3 | 0 | 1 | 0 | 0 |" in page(_ROWS, _VERSIONS)


def test_each_list_holds_its_programs() -> None:
    lists = {part.partition("\n")[0]: part for part in page(_ROWS, _VERSIONS).split("\n## ")}
    assert "| `bad` | loops | wrong | value 0 |" in lists["Not as in eager"]
    assert "| `lost` | loops | 3 | a \\| reason |" in lists["One graph for torch.compile only"]
    assert "| `won` | loops | 2 graphs |" in lists["One graph for flambeau only"]
    assert "`whole`" not in lists["Not as in eager"] + lists["One graph for torch.compile only"]


def test_expectations_name_what_is_not_equal() -> None:
    held = expectations(_ROWS, _VERSIONS)["programs"]
    assert list(held) == ["bad", "lost", "whole", "won"]
    assert held["bad"] == {"torch.compile": 1, "flambeau": 1, "one graph": True, "verdict": "wrong"}
    assert held["lost"] == {"torch.compile": 1, "flambeau": 3, "one graph": False}
