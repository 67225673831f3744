"""Every block of Python in the guide and on the pages of the internals runs, as a program of its own would."""

from __future__ import annotations

import linecache
import os
from collections.abc import Iterator

import pytest
import structlog

from .pages import Page, pages

#: Not programs: signatures side by side, and an excerpt of a module.
EXCERPTS = {"docs/internals/contracts.md", "docs/internals/symbolic-interpreter.md"}
PAGES = [p for p in pages("docs/guide/*.md", "docs/internals/*.md") if p.blocks("python") and p.path not in EXCERPTS]


@pytest.fixture(autouse=True)
def surroundings(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Environment variables and logging are put back: blocks set both."""
    before = dict(os.environ)
    yield
    for name in os.environ.keys() - before.keys():
        del os.environ[name]
    os.environ.update(before)
    structlog.reset_defaults()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.path)
def test_blocks_run(page: Page, capsys: pytest.CaptureFixture[str]) -> None:
    """In order, each with names of its own. The compiler reads sources, so that each block is given lines."""
    for number, code in enumerate(page.blocks("python")):
        name = f"<{page.path}, block {number}>"
        linecache.cache[name] = (len(code), None, code.splitlines(keepends=True), name)
        exec(compile(code, name, "exec"), {"__name__": "__main__"})
