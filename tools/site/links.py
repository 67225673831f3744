"""Links between files of the repository as links between pages of the documentation site: a hook of mkdocs.

In: the Markdown of a page whose relative links are those that work in the repository. Out: the same with links to pages of the site; a file that has no page
there is named without a link, so that the same text serves both readers and mkdocs can treat every broken link as an error.
"""

from __future__ import annotations

import os
import posixpath
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = tuple(f"examples/{path.name}" for path in (ROOT / "examples").glob("*.py") if path.stem != "__init__")
#: Markdown outside of `docs` that is part of the site.
REPOSITORY_PAGES = (
    "README.md",
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "benchmarks/README.md",
    "benchmarks/RESULTS.md",
    *sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "packages").glob("*/README.md")),
    *sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "packages").glob("*/CHANGELOG.md")),
)
_LINK = re.compile(r"(?<!!)\[([^\]\n]*)\]\(([^)\s#]*)(#[^)\s]*)?\)")
_FENCE = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)


def page_of(path: str) -> str | None:
    """The page of a file or folder of the repository; None for one that has none."""
    if path.startswith("docs/"):
        rest = path.removeprefix("docs/")
        if rest in ("decisions", "decisions/"):
            return "decisions/index.md"
        return rest if rest.endswith((".md", ".svg", ".png")) else None
    if path.rstrip("/") == "examples":
        return "repository/examples/index.md"
    if path in EXAMPLES:
        return f"repository/{path.removesuffix('.py')}.md"
    for candidate in (path, f"{path.rstrip('/')}/README.md"):
        if candidate in REPOSITORY_PAGES:
            return f"repository/{candidate}"
    return None


def file_of(page: str) -> str:
    """The file of the repository that a page was made of."""
    return page.removeprefix("repository/") if page.startswith("repository/") else f"docs/{page}"


def converted(markdown: str, page: str) -> str:
    """The text of ``page`` with its links as the site has them."""
    folder = posixpath.dirname(file_of(page))

    def link(found: re.Match[str]) -> str:
        words, target, anchor = found[1], found[2], found[3] or ""
        if not target or "://" in target or target.startswith("mailto:"):
            return found[0]
        there = page_of(posixpath.normpath(posixpath.join(folder, target)))
        if there is None:
            return words
        return f"[{words}]({os.path.relpath(there, posixpath.dirname(page) or '.')}{anchor})"

    parts = _FENCE.split(markdown)
    return "".join(part if part.startswith("```") else _LINK.sub(link, part) for part in parts)


def on_page_markdown(markdown: str, /, *, page: Any, **_: Any) -> str:
    """Called by mkdocs for each page before it is rendered."""
    where = page.file.src_uri
    if where.startswith(("reference/", "repository/examples/")):
        return markdown
    return converted(markdown, where)
