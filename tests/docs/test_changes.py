"""Entries of the next release's changelogs have names that `nox -s changelog` takes: any other file would be left out of them."""

from __future__ import annotations

import re
import tomllib

from .pages import ROOT

_KINDS = [
    kind["directory"] for kind in tomllib.loads((ROOT / "towncrier.toml").read_text())["tool"]["towncrier"]["type"]
]
_NAME = re.compile(rf"\+[a-z0-9-]+\.({'|'.join(_KINDS)})\.md|README\.md")


def test_entries_have_names_that_are_read() -> None:
    folders = sorted((ROOT / "packages").glob("*/changes"))
    assert len(folders) == len(list((ROOT / "packages").glob("*/pyproject.toml")))
    entries = [path for folder in folders for path in folder.iterdir()]
    assert not [path for path in entries if not _NAME.fullmatch(path.name) or not path.read_text().strip()]


def test_changelogs_have_a_place_for_releases() -> None:
    for path in (ROOT / "packages").glob("*/CHANGELOG.md"):
        assert path.read_text().startswith("# Changelog\n\n<!-- releases -->\n\n## ")
