"""The written pages of the repository, taken apart: code spans, links, blocks of code.

In: the tree of files as it lies there. Out: `Page`s. What a program wrote (`docs/errors`, `surface.md`, `options.md`) has its own check.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from attrs import frozen

ROOT = Path(__file__).resolve().parents[2]
#: Where files are named from: the folders of the repository that hold what people wrote.
FOLDERS = ("packages", "native", "tests", "tools", "benchmarks", "examples", "docs", ".ci")
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@frozen
class Page:
    """One Markdown file. `path` is relative to the repository."""

    path: str
    text: str

    @property
    def prose(self) -> str:
        """The text without its blocks of code."""
        return _FENCE.sub("", self.text)

    def spans(self) -> list[str]:
        """What stands between single backticks."""
        return re.findall(r"`([^`\n]+)`", self.prose)

    def links(self) -> list[str]:
        """Targets of links to other files, without their anchors."""
        found = re.findall(r"\]\(([^)\s#]+)[^)]*\)", self.prose)
        return [target for target in found if "://" not in target]

    def blocks(self, language: str) -> list[str]:
        """The blocks of code in one language, in order."""
        return [code for kind, code in _FENCE.findall(self.text) if kind == language]


def tree() -> Iterator[str]:
    """Every file of the repository that is not built, as a path relative to its root."""
    yield from (path.name for path in ROOT.iterdir() if path.is_file())
    for folder in FOLDERS:
        for path in (ROOT / folder).rglob("*"):
            if path.is_file() and "__pycache__" not in path.parts:
                yield path.relative_to(ROOT).as_posix()


def pages(*globs: str) -> list[Page]:
    """The pages that match any of the patterns, by name."""
    found = sorted({path for glob in globs for path in ROOT.glob(glob)})
    return [Page(path.relative_to(ROOT).as_posix(), path.read_text()) for path in found]
