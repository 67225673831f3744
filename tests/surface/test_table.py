"""The table of the surface beside the tests that use it."""

from __future__ import annotations

from .rows import called_rows, sections


def test_every_use_has_a_row() -> None:
    """A test that names a row that does not exist would count for nothing."""
    rows = {(row.section, row.name) for section in sections().values() for row in section}
    assert set(called_rows()) <= rows, set(called_rows()) - rows


def test_what_has_no_meaning_is_not_used() -> None:
    """A row either says why it has no meaning, or has a test."""
    called = called_rows()
    both = [
        row.name
        for section in sections().values()
        for row in section
        if row.reason and (row.section, row.name) in called
    ]
    assert not both, both


def test_rows_are_rows() -> None:
    """Tiers and words."""
    for section in sections().values():
        for row in section:
            assert row.tier in (1, 2, 3) and row.meaning, row
