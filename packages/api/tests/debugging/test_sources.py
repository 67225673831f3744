"""Scripts that are made smaller, with failures by decree."""

from __future__ import annotations

import ast

from flambeau.debugging.delta import fewest
from flambeau.debugging.sources import reduced_source

_SCRIPT = '''
from __future__ import annotations
import math

class Model:
    """Holds things."""

    def __init__(self, width: int) -> None:
        self.width = width
        self.unused = [width, width]

    def forward(self, x: float) -> float:
        for step in range(3):
            x = x + step
        with open("nowhere"):
            x = math.sin(x * 2.0, *[]) + bad(x)
        return {"a": x, "b": other(x)}["a"]

if True:
    Model(3).forward(1.0)
'''


def _calls(text: str) -> set[str]:
    return {node.id for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Name)}


def test_what_fails_is_left() -> None:
    """A failure that needs one name keeps that, and what the grammar needs around it."""
    found = reduced_source(_SCRIPT, lambda text: "bad" in _calls(text))
    assert "bad" in found
    assert not any(gone in found for gone in ("import", "range", "open", "unused", "return", "if"))
    assert len(found.splitlines()) <= 4


def test_blocks_around_what_is_needed_go() -> None:
    """What needs two names from two blocks keeps both; classes and functions stay where their contents cannot leave them."""
    found = reduced_source(_SCRIPT, lambda text: {"bad", "range"} <= _calls(text))
    assert "open" not in found and "unused" not in found and "other" not in found
    assert found.count("\n") <= 6


def test_a_text_of_which_all_is_needed_stays() -> None:
    text = "x = a + b\n"
    assert reduced_source(text, lambda found: {"a", "b", "x"} <= _calls(found)) == text


def test_the_fewest_are_found_wherever_they_lie() -> None:
    asked: list[int] = []

    def fails(chosen: object) -> bool:
        asked.append(1)
        return {3, 17} <= set(chosen)  # type: ignore[call-overload]

    assert fewest(range(24), fails) == [3, 17]
    assert len(asked) < 100
    assert fewest([5], fails) == [5]
