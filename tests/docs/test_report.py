"""The guide to reports and the page name the same sections."""

from __future__ import annotations

import re
from pathlib import Path

from flambeau.report.report import report_html
from flambeau.trace import read_trace
from flambeau.trace.writer import Writer

from .pages import ROOT


def titles(page: str) -> list[str]:
    return re.findall(r'<h2 id="[^"]*">([^<]*)</h2>', page)


def test_the_guide_has_a_row_for_each_section(tmp_path: Path) -> None:
    """In the order of the page; the section of two traces stands below the table."""
    Writer(tmp_path).write("log", event="a")
    trace = read_trace(tmp_path)
    guide = (ROOT / "docs" / "guide" / "report.md").read_text()
    rows = re.findall(r"^\| ([^|]*?) \|", guide, re.MULTILINE)
    assert rows[:2] == ["section", "---"]
    assert rows[2:] == titles(report_html(trace))
    (more,) = set(titles(report_html(trace, trace))) - set(rows)
    assert f"the section {more}" in guide
