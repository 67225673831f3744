"""What the documents show runs: blocks of Python on the pages, the examples; and generated pages are current."""

from __future__ import annotations

import linecache
import runpy
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import structlog

from .pages import ROOT, Page, pages

#: Not programs: signatures side by side, an excerpt of a module, uses of a graph or model that the reader has.
EXCERPTS = {
    "docs/internals/contracts.md",
    "docs/internals/symbolic-interpreter.md",
    "packages/api/README.md",
    "packages/autograd/README.md",
    "packages/inductor/README.md",
}
PAGES = [
    page
    for page in pages("README.md", "docs/guide/*.md", "docs/internals/*.md", "packages/*/README.md")
    if page.blocks("python") and page.path not in EXCERPTS
]
#: The demo has a session of its own: five models, each in processes of its own.
EXAMPLES = [path for path in sorted((ROOT / "examples").glob("*.py")) if path.stem not in ("__init__", "demo")]
GENERATED: dict[str, Callable[[], str]] = runpy.run_path(str(ROOT / "tools" / "generate_docs.py"))["PAGES"]


@pytest.fixture(autouse=True)
def surroundings(own_surroundings: None) -> Iterator[None]:
    """Logging is put back too."""
    yield
    structlog.reset_defaults()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.path)
def test_blocks_run(page: Page) -> None:
    """In order, in one program for the page. The compiler reads sources, so each block is given lines."""
    names = {"__name__": "__main__"}
    for number, code in enumerate(page.blocks("python")):
        file = f"<{page.path}, block {number}>"
        linecache.cache[file] = (len(code), None, code.splitlines(keepends=True), file)
        exec(compile(code, file, "exec"), names)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_examples_run(path: Path) -> None:
    """They compare with eager themselves."""
    runpy.run_path(str(path), run_name="__main__")


@pytest.mark.parametrize("name", GENERATED)
def test_generated_pages_are_current(name: str) -> None:
    """`python tools/generate_docs.py` would change nothing."""
    assert (ROOT / name).read_text() == GENERATED[name]()
