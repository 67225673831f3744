"""The parts of the site's navigation that follow from folders: a hook of mkdocs.

In: the configuration, whose `nav` lists the guide and the reference. Out: the same with a section each for internals, decisions, and what lies outside of `docs`,
so that a new page there needs no line in `mkdocs.yml`. A page of the guide that `nav` forgets is a warning, which is an error here.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))
from links import EXAMPLES, REPOSITORY_PAGES, ROOT, page_of

DOCS = ROOT / "docs"


def _pages(folder: str) -> list[str]:
    return sorted(path.relative_to(DOCS).as_posix() for path in (DOCS / folder).glob("*.md"))


def on_config(config: Any) -> Any:
    """Called by mkdocs once, before files are collected."""
    repository: list[Any] = [{Path(path).stem.title(): page_of(path)} for path in REPOSITORY_PAGES if "/" not in path]
    repository += [{path.removesuffix(".md"): page_of(path)} for path in REPOSITORY_PAGES if "/" in path]
    config.nav += [
        {"Internals": _pages("internals")},
        {"Decisions": ["decisions/index.md", *_pages("decisions")]},
        {"Captured programs": ["captured-programs.md", "captured-architectures.md", "ecosystem.md"]},
        {"Seeded faults": ["seeded-faults.md"]},
        {"Repository": [*repository, {"Examples": [page_of(path) for path in sorted(EXAMPLES)]}]},
    ]
    return config
