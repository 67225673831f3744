"""The documents name files, folders, functions and classes that exist, and the map names every folder of sources."""

from __future__ import annotations

import fnmatch
import importlib
import re
from functools import cache
from pathlib import PurePosixPath

import pytest

from flambeau.cli.group import COMMANDS

from .pages import FOLDERS, ROOT, Page, pages, tree

PAGES = pages("*.md", "docs/*.md", "docs/*/*.md", "packages/*/*.md", "benchmarks/*.md")
#: A file that a rule forbids, and a logger, which reads like a module.
NO_NAMES = {"utils.py", "flambeau.capture"}
_FILE = re.compile(r"([\w./*-]+\.(?:py|pyi|cpp|hpp|md|toml|txt))(?::([A-Za-z_][\w.]*))?")
_FOLDER = re.compile(r"[\w.-]+(?:/[\w.-]+)*/")
_DOTTED = re.compile(r"(flambeau(?:_\w+)?(?:\.[A-Za-z]\w*)+)")


@cache
def files() -> tuple[str, ...]:
    return tuple(tree())


@cache
def folders() -> frozenset[str]:
    return frozenset(parent.as_posix() for file in files() for parent in PurePosixPath(file).parents)


def matching(path: str, pool: tuple[str, ...] | frozenset[str]) -> list[str]:
    """The paths that `path` may stand for: a document may leave out where its package lies."""
    return [known for known in pool if fnmatch.fnmatch(known, path) or fnmatch.fnmatch(known, f"*/{path}")]


def missing_file(span: str) -> str | None:
    found = _FILE.fullmatch(span)
    if found is None or found[1] in NO_NAMES or span.startswith("*."):
        return None
    candidates = matching(found[1], files())
    if not candidates:
        return f"no file {found[1]}"
    if found[2] is not None:
        name = re.compile(rf"\b{found[2].rsplit('.')[-1]}\b")
        if not any(name.search((ROOT / candidate).read_text()) for candidate in candidates):
            return f"no {found[2]} in {found[1]}"
    return None


def missing_folder(span: str) -> str | None:
    """Spelt with a slash at the end, or from the root with nothing behind (`tests/conformance`), also inside of a command."""
    if _FOLDER.fullmatch(span):
        return None if matching(span.rstrip("/"), folders()) else f"no folder {span}"
    for word in span.split():
        if word.startswith(tuple(f"{folder}/" for folder in FOLDERS)) and not re.search(r"[<>X{(:]|\.\w+$", word):
            if not matching(word.rstrip("/"), folders()) and not matching(word, files()):
                return f"no folder {word}"
    return None


def missing_name(span: str) -> str | None:
    """`flambeau_runtime.graphs.load_graphed`: a module, then what is in it."""
    found = _DOTTED.match(span)
    if found is None or span in NO_NAMES or _FILE.fullmatch(span):
        return None
    parts = found[1].split(".")
    value = importlib.import_module(parts[0])
    for done, part in enumerate(parts[1:], 1):
        if not hasattr(value, part):
            try:
                importlib.import_module(".".join(parts[: done + 1]))
            except ModuleNotFoundError:
                return f"no {found[1]}"
        value = getattr(value, part)
    return None


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.path)
def test_what_a_page_names_exists(page: Page) -> None:
    """Files, folders, functions in files, dotted names of the packages, and links."""
    problems = [check(span) for span in page.spans() for check in (missing_file, missing_folder, missing_name)]
    problems += [f"no {link}" for link in page.links() if not (ROOT / page.path).parent.joinpath(link).exists()]
    assert sorted({problem for problem in problems if problem}) == []


def test_the_map_names_every_folder_of_sources() -> None:
    """Each folder below `src/<module>` of a package and below `tests` has its line in ARCHITECTURE.md."""
    [page] = pages("ARCHITECTURE.md")
    spans = {span.rstrip("/") for span in page.spans()}
    known = {PurePosixPath(file).parent for file in files() if file.endswith((".py", ".cpp"))}
    sources = {"/".join(path.parts[4:]) for path in known if len(path.parts) > 4 and path.parts[2] == "src"}
    tests = {path.as_posix() for path in known if path.parts[:1] == ("tests",) and len(path.parts) == 2}
    assert sorted((sources | tests) - spans) == []


def test_the_index_names_every_page_on_a_concept() -> None:
    """docs/README.md leads to each page of the guide and of the internals, and each decision has its number in its title."""
    [index] = pages("docs/README.md")
    written = {page.path.removeprefix("docs/") for page in pages("docs/guide/*.md", "docs/internals/*.md")}
    assert sorted(written - set(index.links())) == []
    for page in pages("docs/decisions/*.md"):
        assert page.text.startswith(f"# {int(PurePosixPath(page.path).name[:4])}. "), page.path


def test_every_command_has_a_row() -> None:
    rows = [line for line in (ROOT / "docs/guide/commands.md").read_text().splitlines() if line.startswith("| ")]
    missing = [name for name in COMMANDS if not any(re.search(rf"`flambeau {name}\b", row) for row in rows)]
    assert not missing
