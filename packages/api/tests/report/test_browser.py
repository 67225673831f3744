"""Pages in a browser: nothing fails in their scripts, they are used without a mouse, on narrow screens and in the dark, and lines light up what they became.

Needs playwright and a Chromium, which `FLAMBEAU_TEST_CHROMIUM` names (`nox -s browser` finds the system's); without one of them the tests are skipped.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import flambeau
from flambeau.report.report import report_html
from flambeau.trace import read_trace

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: nox -s browser installs it")
CHROMIUM = os.environ.get("FLAMBEAU_TEST_CHROMIUM")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="FLAMBEAU_TEST_CHROMIUM is not set: nox -s browser sets it")

WIDE, NARROW = 1280, 390


def step(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    y = torch.tanh(x @ w)
    print("half")
    return (y * y).sum()


def traced(folder: Path, sizes: tuple[int, ...]) -> Path:
    options = {"trace.enabled": True, "trace.debug_dir": str(folder), "force_disable_caches": True}
    compiled = flambeau.compile(step, options=options)
    for rows in sizes:
        compiled(torch.randn(rows, 8), torch.randn(8, 8, requires_grad=True)).backward()
    return folder


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A report of two processes with a break and a recompile, one that compares it with another trace, and an explanation."""
    first, second = (tmp_path_factory.mktemp(name) for name in ("before", "after"))
    traced(first, (4, 5))
    (file,) = first.glob("*.jsonl")
    begin, _, rest = file.read_text().partition("\n")
    pid = read_trace(file).processes[0].facts["pid"]
    (first / "flambeau-other.jsonl").write_text(begin.replace(f'"pid":{pid}', '"pid":7') + "\n" + rest)
    traced(second, (4,))
    made = {name: first / f"{name}.html" for name in ("report", "comparison", "explanation")}
    made["report"].write_text(report_html(read_trace(first)))
    made["comparison"].write_text(report_html(read_trace(first), read_trace(second)))
    flambeau.explain(step)(torch.randn(4, 8), torch.randn(8, 8)).save_html(made["explanation"])
    return made


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with sync_api.sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield found
        found.close()


class Opener:
    """Opens pages and keeps what their scripts complain of."""

    def __init__(self, browser: Any, pages: dict[str, Path]) -> None:
        self.browser, self.pages, self.said = browser, pages, list[str]()

    def __call__(self, name: str, *, width: int = WIDE, scheme: str = "light") -> Any:
        page = self.browser.new_page(viewport={"width": width, "height": 800}, color_scheme=scheme)
        page.on("console", lambda message: self.said.append(message.text))
        page.on("pageerror", lambda error: self.said.append(str(error)))
        page.on("requestfailed", lambda request: self.said.append(request.url))
        page.goto(self.pages[name].as_uri())
        return page


@pytest.fixture
def opened(browser: Any, pages: dict[str, Path]) -> Iterator[Opener]:
    """Pages; none of them may have said anything to the console."""
    opener = Opener(browser, pages)
    yield opener
    for context in browser.contexts:
        context.close()
    assert not opener.said


def panes(page: Any) -> Any:
    page.locator("#code").scroll_into_view_if_needed()
    page.wait_for_selector(".pane .row")
    return page.locator(".pane")


def marked(page: Any, kind: str) -> dict[str, int]:
    """Lines with a mark, by pane."""
    return page.evaluate(
        "kind => Object.fromEntries([...document.querySelectorAll('.pane')].map(p => [p.querySelector('h4').firstChild.textContent, p.querySelectorAll(`.row.${kind}`).length]))",
        kind,
    )


@pytest.mark.parametrize("name", ["report", "comparison", "explanation"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_narrow_screen_has_nothing_to_scroll_sideways(opened: Opener, name: str, scheme: str) -> None:
    page = opened(name, width=NARROW, scheme=scheme)
    for section in page.locator("main > section").all():
        section.scroll_into_view_if_needed()
    assert page.evaluate("document.documentElement.scrollWidth") == NARROW


def test_a_dark_system_has_a_dark_page(opened: Opener) -> None:
    grounds = [
        page.evaluate("getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)")
        for page in (opened("report"), opened("report", scheme="dark"))
    ]
    assert min(grounds[0]) > 200 and max(grounds[1]) < 60


def test_tab_goes_through_the_page_and_shows_where_it_is(opened: Opener) -> None:
    page = opened("report")
    seen = []
    for _ in range(60):
        page.keyboard.press("Tab")
        seen.append(
            page.evaluate(
                "(() => { const e = document.activeElement, s = getComputedStyle(e); return [e.tagName.toLowerCase(), e.className.baseVal ?? e.className, s.outlineStyle, e.matches(':focus-visible')] })()"
            )
        )
    assert seen[0][:2] == ["a", "skip"]
    tags = [tag for tag, *_ in seen]
    assert tags.index("a", 1) < tags.index("input") and "g" in tags
    # A picture is one stop, however many parts it has.
    assert sum(1 for tag, name, *_ in seen if name == "item") <= 3
    for tag, name, outline, is_visible in seen:
        assert is_visible, (tag, name)
        assert outline != "none" or name == "item", (tag, name)
    picture = page.locator("#timeline svg")
    item = picture.locator(".item").first
    item.focus()
    assert item.locator("rect").evaluate("rect => getComputedStyle(rect).stroke") != "none"


def test_a_link_leads_to_its_section(opened: Opener) -> None:
    page = opened("report")
    page.locator('nav a[href="#guards"]').press("Enter")
    page.wait_for_function("Math.abs(document.querySelector('#guards').getBoundingClientRect().top) < 60")
    page.wait_for_selector('nav a[href="#guards"][aria-current]')


def test_arrow_keys_walk_through_a_picture_and_say_what_is_there(opened: Opener) -> None:
    page = opened("report")
    picture = page.locator("#timeline svg")
    picture.locator(".item").first.focus()
    told = page.locator("#timeline .told")
    first = told.text_content()
    assert "compile 0/0" in first
    page.keyboard.press("ArrowRight")
    assert told.text_content() != first
    page.keyboard.press("End")
    assert page.evaluate("document.activeElement.matches('.item:last-of-type')")
    assert picture.locator(".item[tabindex='0']").count() == 1


def test_a_line_shows_what_it_came_from_and_what_became_of_it(opened: Opener) -> None:
    page = opened("report")
    panes(page)
    for box in page.locator("#code input[type=checkbox]").all():
        box.check()
    page.locator(".pane .row", has_text="torch.tanh(x @ w)").first.click()
    became = marked(page, "became")
    assert set(became) == {
        "source", "bytecode", "captured graph", "ATen graph", "loop IR", "kernels", "kernel IR", "kernel source", "program",
    }  # fmt: skip
    assert all(count for name, count in became.items() if name != "source"), became
    page.locator(".pane", has_text="kernel source").locator(".row.became").first.click()
    came = marked(page, "from")
    assert came["source"] and came["ATen graph"] and came["loop IR"] and marked(page, "became")["program"]
    page.keyboard.press("Escape")
    assert not any((*marked(page, "from").values(), *marked(page, "became").values()))


def test_lines_are_chosen_with_keys(opened: Opener) -> None:
    page = opened("report")
    panes(page).first.locator(".body").focus()
    page.keyboard.press("ArrowDown")
    assert marked(page, "here")["source"] == 1
    for _ in range(40):
        if marked(page, "became")["ATen graph"]:
            break
        page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowRight")
    assert marked(page, "here")["source"] == 0 and marked(page, "here")["captured graph"] == 1
    assert "came" not in (said := page.locator("#code .told").text_content()) and " in source" in said


def test_a_text_is_found_in_all_stages(opened: Opener) -> None:
    page = opened("report")
    panes(page)
    page.locator("#code input[type=search]").fill("tanh")
    hits = marked(page, "hit")
    assert hits["source"] and hits["captured graph"] and hits["ATen graph"]
    assert "in ATen graph" in page.locator("#code .told").text_content()


def test_rows_are_filtered(opened: Opener) -> None:
    page = opened("report")
    section = page.locator("#guards")
    section.scroll_into_view_if_needed()
    rows = section.locator("tbody tr")
    before = rows.count()
    section.locator("input[type=search]").fill("float32")
    shown = section.locator("tbody tr:visible").all_text_contents()
    assert 0 < len(shown) < before and all("float32" in row for row in shown)
    assert section.locator("[aria-live]").text_content() == f"{len(shown)} of {before}"


def test_a_column_sorts_its_rows(opened: Opener) -> None:
    page = opened("report")
    head = page.locator("#timeline th", has_text="seconds")
    for wanted in (True, False):
        head.locator("button").press("Enter")
        values = [
            float(v)
            for v in page.locator("#timeline tbody td:nth-child(2)").evaluate_all(
                "cells => cells.map(c => c.dataset.v)"
            )
        ]
        assert values == sorted(values, reverse=wanted)
        assert head.get_attribute("aria-sort") == ("descending" if wanted else "ascending")


def test_one_program_is_shown_at_a_time(opened: Opener) -> None:
    page = opened("report")
    for section in ("#fusion", "#memory"):
        choice = page.locator(f"{section} select")
        for value in choice.locator("option").evaluate_all("options => options.map(o => o.value)"):
            choice.select_option(value)
            assert page.locator(f"{section} [data-part]:visible").count() == 1


def test_a_box_of_the_fusion_graph_lights_its_arrows(opened: Opener) -> None:
    page = opened("report")
    page.locator("#fusion").scroll_into_view_if_needed()
    arrows = page.locator("#fusion [data-part]:visible path[data-from]")
    source = arrows.first.get_attribute("data-from")
    page.locator(f"#fusion [data-part]:visible [data-box='{source}']").focus()
    assert page.locator("#fusion path.lit").count() >= 1


def test_two_traces_stand_beside_each_other(opened: Opener) -> None:
    page = opened("comparison")
    assert page.locator("main > section").first.get_attribute("id") == "comparison"
    texts = page.locator("#comparison h3").all_text_contents()
    assert texts == ["Graph breaks", "Frames", "Stages", "Kernels and calls"]
    row = page.locator("#comparison tr", has_text="recompiles").first.locator("td").all_text_contents()
    assert row[:3] == ["recompiles", "4", "0"]


def test_processes_are_told_apart(opened: Opener) -> None:
    page = opened("report")
    titles = page.locator("#frames summary b").all_text_contents()
    assert len(titles) == len(set(titles))
    assert any(title.startswith("process 7 [") for title in titles)


def test_without_scripts_everything_can_be_read(browser: Any, pages: dict[str, Path]) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(pages["report"].as_uri())
    assert page.locator("#fusion [data-part]").count() == page.locator("#fusion [data-part]:visible").count() > 1
    context.close()
