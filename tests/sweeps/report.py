"""A failure in words, and as a test that can be pasted.

In: a failing program and what it was shrunk to. Out: text.
"""

from __future__ import annotations

import re
import textwrap

from .compare import Failure
from .examine import examine_text
from .program import Program
from .shrink import shrink


def shrunk(program: Program, failure: Failure, seconds: float = 20.0) -> str:
    """The program's text, made small while it fails in the same class."""

    def still_fails(text: str) -> bool:
        verdict = examine_text(text, program.backend, program.exact)
        found = verdict.failure
        if found is None or found.kind != failure.kind:
            return False
        # A program whose names are gone fails in another way, which was not what was looked for.
        return not _went_astray(found, failure)

    return shrink(program.source, still_fails, seconds)


def _went_astray(found: Failure, first: Failure) -> bool:
    if (
        found.kind in ("raises", "raises in backward", "other exception")
        and found.ours.split(":")[0] != first.ours.split(":")[0]
    ):
        return True
    lost = ("NameError", "UnboundLocalError", "AttributeError", "TypeError")
    return any(name in found.ours + found.plain and name not in first.ours + first.plain for name in lost)


def as_test(program: Program, failure: Failure, text: str) -> str:
    """A test of `tests/sweeps/test_found.py`."""
    name = re.sub(r"\W+", "_", failure.kind)
    more = "" if program.exact else ", exact=False"
    body = textwrap.indent(text.strip(), " " * 8)
    return (
        f"def test_{name}_{program.sweep}_{program.seed}() -> None:\n"
        f'    """{failure.kind} at {failure.path}."""\n'
        f'    check(\n        """\n{body}\n        """,\n        {program.backend!r}{more},\n    )\n'
    )
