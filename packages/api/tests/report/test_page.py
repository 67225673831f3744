"""Pages: what is in them stays text, and they need nothing beside themselves."""

from __future__ import annotations

import json
import re

import pytest

from flambeau.report import Section, render_page
from flambeau.report.page import bytes_text, embedded, number_text, seconds_text


def test_a_page_is_one_file() -> None:
    page = render_page("t", [Section("a", "A", "<b>")], texts={"x": [1]})
    assert not re.search(r"(src|href)=\"(?!#|data:)", page)
    assert "&lt;b&gt;" in page and 'id="data-x"' in page


def test_embedded_json_cannot_end_its_element() -> None:
    text = "</script><!-- \u2028"
    assert "<" not in embedded(text) and json.loads(embedded(text)) == text


@pytest.mark.parametrize(
    ("function", "value", "text"),
    [
        (seconds_text, 1.5, "1.5 s"), (seconds_text, 0.0021, "2.1 ms"), (seconds_text, 3e-6, "3 µs"), (seconds_text, 4e-9, "4 ns"),
        (seconds_text, 0.0, "0 s"), (seconds_text, None, ""), (bytes_text, 12, "12 B"), (bytes_text, 3 << 20, "3 MiB"),
        (number_text, 2e9, "2 G"), (number_text, 7.0, "7"),
    ],
)  # fmt: skip
def test_numbers_have_three_digits_and_a_unit(function: object, value: object, text: str) -> None:
    assert function(value) == text  # type: ignore[operator]
