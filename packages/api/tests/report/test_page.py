"""Pages: what is in them stays text, and they need nothing beside themselves."""

from __future__ import annotations

import json
import re

import pytest

from flambeau.report import Section, render_page
from flambeau.report.cells import LONG, shorter, table
from flambeau.report.page import colours, embedded
from flambeau.report.pictures import fusion, standalone


def test_a_page_is_one_file() -> None:
    page = render_page("t", [Section("a", "A", "<b>")], texts={"x": [1]})
    assert not re.search(r"(src|href)=\"(?!#|data:)", page)
    assert "&lt;b&gt;" in page and 'id="data-x"' in page


def test_embedded_json_cannot_end_its_element() -> None:
    text = "</script><!-- \u2028"
    assert "<" not in embedded(text) and json.loads(embedded(text)) == text


def luminance(colour: str) -> float:
    """As the Web Content Accessibility Guidelines define it."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("dark", [False, True])
def test_texts_can_be_read_on_their_grounds(dark: bool) -> None:
    """At least 4.5, as the guidelines ask of texts; names in coloured bars have the colour of the ground."""
    named = colours(dark=dark)
    assert len(named) == 20
    pairs = [
        (text, ground) for text in ("text", "faint", "accent", "good", "bad", "warn") for ground in ("ground", "raised")
    ]
    pairs += [("text", ground) for ground in ("accent-soft", "from", "became")]
    pairs += [("ground", f"c{number}") for number in range(8)]
    assert {
        pair: contrast(*(named[name] for name in pair))
        for pair in pairs
        if contrast(*(named[name] for name in pair)) < 4.5
    } == {}


def test_long_tables_can_be_filtered() -> None:
    rows = [(str(number),) for number in range(LONG)]
    assert "data-filters" in table(("a",), rows, name="rows")
    assert "data-filters" not in table(("a",), rows[1:], name="rows")


def test_words() -> None:
    assert shorter("assumed at /a/b/c.py:3 in f") == "assumed at b/c.py:3 in f"
    assert shorter("c.py:3 of size 1/2") == "c.py:3 of size 1/2"


def test_a_picture_of_what_was_fused_is_no_wider_than_the_page() -> None:
    """However many boxes depend on nothing in between."""
    steps = [
        {"name": f"k{at}", "kind": "kernel", "plan": 0, "origins": ["a"], "reads": ["x"], "writes": [f"b{at}"]}
        for at in range(23)
    ]
    picture = fusion(steps)
    (width,) = re.findall(r'<svg viewBox="0 0 (\d+) ', picture)
    assert int(width) <= 1000 and picture.count('class="item"') == 23
    assert "--c0:#" in standalone(picture) and "var(--ground)" in standalone(picture)
