"""Links of the repository's pages, as the documentation site has them."""

from __future__ import annotations

import runpy

import pytest

from .pages import ROOT

LINKS = runpy.run_path(str(ROOT / "tools" / "site" / "links.py"))


@pytest.mark.parametrize(
    ("page", "text", "shown"),
    [
        ("README.md", "[a](../ARCHITECTURE.md)", "[a](repository/ARCHITECTURE.md)"),
        ("README.md", "[a](guide/training.md#x)", "[a](guide/training.md#x)"),
        ("guide/caching.md", "[a](../../examples/serving.py)", "[a](../repository/examples/serving.md)"),
        ("internals/runtime.md", "[a](../decisions)", "[a](../decisions/index.md)"),
        ("repository/README.md", "[a](packages/api)", "[a](packages/api/README.md)"),
        ("repository/README.md", "[a](docs/guide/surface.md)", "[a](../guide/surface.md)"),
        ("repository/README.md", "[the licence](LICENSE)", "the licence"),
        ("README.md", "[a](https://example.org/b.md)", "[a](https://example.org/b.md)"),
        ("README.md", "```\n[a](../LICENSE)\n```", "```\n[a](../LICENSE)\n```"),
    ],
)
def test_links(page: str, text: str, shown: str) -> None:
    """To another page of the site, or, for a file without one, no link."""
    assert LINKS["converted"](text, page) == shown
