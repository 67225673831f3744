"""The one table of what is known to differ from eager in torch's databases: a row for each, with its reason.

A row is found by `database:name:dtype`, with `*` for any run of characters. A case that has a row must differ: one that no longer does is a
fault of the table (`full.py` says so, `test_slices.py` fails).
"""

from __future__ import annotations

from fnmatch import fnmatchcase

KNOWN: dict[str, str] = {}

#: Cases of which a graph runs in eager, or that have none -> a part of the reason that must be given.
IN_EAGER: dict[str, str] = {}

#: Cases that cannot be run twice alike, or not at all here, in eager itself.
NOT_RUN: dict[str, str] = {
    "op:linalg.eig*:*": "eigenvectors are determined up to a phase; eager's backward looks at the data to refuse a loss that depends on it",
}


def reason(table: dict[str, str], identity: str) -> str | None:
    """The row that speaks of a case."""
    return next((why for pattern, why in table.items() if fnmatchcase(identity, pattern)), None)
