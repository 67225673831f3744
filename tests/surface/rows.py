"""The rows of the surface of torch.compile, and which of them a test calls.

In: `tools/surface/*.toml`, one file a section; the `calls` marks of the tests in this folder. Out: a row's state for `docs/guide/surface.md`.

A row is here when a test of this folder uses it as torch's documentation says and sees its effect: a name that is accepted without
effect is not here. A row that has no meaning in flambeau says why in the table instead. To add one: write a test under
`@calls(section, name)`, then run `python tools/generate_docs.py`.
"""

from __future__ import annotations

import importlib
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from attrs import frozen

from flambeau import without_effect

FOLDER = Path(__file__).resolve().parent
TABLES = FOLDER.parent.parent / "tools" / "surface"
Test = TypeVar("Test", bound=Callable[..., Any])

_REASONS = {"options": without_effect.OPTIONS, "settings": without_effect.SETTINGS}

_CALLED: dict[tuple[str, str], list[str]] = {}


@frozen
class Row:
    """One name of the surface.

    Attributes:
        section: the file it stands in.
        name: as users write it.
        tier: 1 = used daily, 2 = by integrators, 3 = for debugging.
        meaning: a few words.
        reason: why it has no meaning here; empty for a row that should be here.
    """

    section: str
    name: str
    tier: int
    meaning: str
    reason: str = ""


def calls(section: str, *names: str) -> Callable[[Test], Test]:
    """Mark a test that uses rows of a section and fails when one has no effect."""

    def mark(test: Test) -> Test:
        for name in names:
            _CALLED.setdefault((section, name), []).append(f"{test.__module__}.{test.__qualname__}")
        return test

    return mark


def sections() -> dict[str, list[Row]]:
    """Section -> its rows, in the order of the files and of the lines."""
    return {
        path.stem: [_row(path.stem, name, cells) for name, cells in tomllib.loads(path.read_text()).items()]
        for path in sorted(TABLES.glob("*.toml"))
    }


def _row(section: str, name: str, cells: list[Any]) -> Row:
    """Options and settings without meaning have their reason in the code, which tells it as a hint."""
    table = _REASONS.get(section, {})
    return (
        Row(section, name, *cells, table[name][1]) if len(cells) == 2 and name in table else Row(section, name, *cells)
    )


def called_rows() -> dict[tuple[str, str], list[str]]:
    """(section, name) -> the tests that use it."""
    for path in sorted(FOLDER.glob("test_*.py")):
        importlib.import_module(f"tests.surface.{path.stem}")
    return dict(_CALLED)


def state(row: Row, called: dict[tuple[str, str], list[str]]) -> str:
    """What the documentation says of a row."""
    if row.reason:
        return f"no: {row.reason}"
    return "yes" if (row.section, row.name) in called else "not yet"
