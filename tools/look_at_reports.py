"""Makes what people look at, and pictures of it: reports of two trainings, what explains them, and how long a large report takes to open.

In: a folder, and a device. Out: in it, for a GPT-2 and for a mixture of experts, a trace, `report.html`, `explain.html`, what `explain` and `profile` print in a terminal, and pictures
of all, wide and narrow, light and dark; on standard output the seconds until a report of at least 10 MB of trace is shown. Pictures need playwright, and a
Chromium (`nox -s browser` finds the system's); a machine with a GPU that has neither makes the pages, and another takes the pictures of them::

    python tools/look_at_reports.py pictures --chromium /usr/bin/chromium
    python tools/look_at_reports.py pictures --device cuda --pages
    python tools/look_at_reports.py pictures --chromium /usr/bin/chromium --taken
"""

from __future__ import annotations

import argparse
import io
import json
import shutil
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from rich.console import Console
from torch import nn
from transformers import GPT2Config, GPT2LMHeadModel

import flambeau
from flambeau.report.report import report_html
from flambeau.trace import read_trace

if TYPE_CHECKING:
    from playwright.sync_api import Browser

#: What a program made here is looked at as.
PAGES = ("report.html", "explain.html", "explain-terminal.html", "profile-terminal.html")
LARGE = 10 << 20
SHOWN = "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(performance.now()))))"


class Expert(nn.Module):
    """Two layers."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(nn.functional.gelu(self.up(x)))


class Mixture(nn.Module):
    """Each token goes to two of four experts; how many went where is printed, which breaks the graph."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.router = nn.Linear(width, 4)
        self.experts = nn.ModuleList(Expert(width) for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        tokens = x.flatten(0, 1)
        weights, chosen = self.router(tokens).softmax(-1).topk(2)
        weights = weights / weights.sum(-1, keepdim=True)
        out = torch.zeros_like(tokens)
        for number, expert in enumerate(self.experts):
            rows, slot = torch.where(chosen == number)
            out = out.index_add(0, rows, expert(tokens[rows]) * weights[rows, slot, None])
        print("tokens by expert:", chosen.flatten().bincount(minlength=4).tolist())
        return out.reshape(x.shape)


def gpt2() -> tuple[nn.Module, list[dict[str, torch.Tensor]]]:
    """A small one, trained on two lengths: one recompile."""
    config = GPT2Config(n_layer=2, n_embd=64, n_head=4, vocab_size=500, n_positions=64, bos_token_id=0, eos_token_id=0)
    tokens = [torch.randint(0, 500, (2, length)) for length in (32, 48)]
    return GPT2LMHeadModel(config), [{"input_ids": found, "labels": found} for found in tokens]


def mixture() -> tuple[nn.Module, list[dict[str, torch.Tensor]]]:
    """One block, trained on two batch sizes."""
    inputs = [{"input": torch.randn(batch, 16, 64, requires_grad=True)} for batch in (2, 3)]
    return nn.Sequential(nn.LayerNorm(64), Mixture(), nn.LayerNorm(64)), inputs


def make(folder: Path, program: Callable[[], tuple[nn.Module, list[dict[str, torch.Tensor]]]], device: str) -> None:
    """Train for a step on each input, and write down everything that can be looked at."""
    torch.manual_seed(0)
    folder.mkdir(parents=True)
    with torch.device(device):
        model, inputs = program()
    compiled = flambeau.compile(model, options={"trace.enabled": True, "trace.debug_dir": str(folder)})
    optimizer = torch.optim.AdamW(model.parameters())
    for arguments in inputs:
        result = compiled(**arguments)
        (result.loss if hasattr(result, "loss") else result.square().mean()).backward()
        optimizer.step()
        optimizer.zero_grad()
    pages = [folder / name for name in PAGES]
    pages[0].write_text(report_html(read_trace(folder)))
    explained = flambeau.explain(model)(**inputs[0])
    explained.save_html(pages[1])
    for page, printed in ((pages[2], explained.rich()), (pages[3], flambeau.profile(model)(**inputs[0]).rich())):
        console = Console(record=True, width=110, file=io.StringIO())
        console.print(printed)
        console.save_html(str(page))


def take_pictures(browser: Browser, pages: list[Path]) -> None:
    """Whole pages, beside them."""
    for page in pages:
        for width, scheme in ((1280, "light"), (1280, "dark"), (390, "light"), (390, "dark")):
            shown: Any = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
            shown.goto(page.absolute().as_uri())
            for section in shown.locator("main > section").all():
                section.scroll_into_view_if_needed()
            # A window as high as the page: what is out of sight is not drawn, and navigation stays in it.
            height = shown.evaluate("document.documentElement.scrollHeight")
            shown.set_viewport_size({"width": width, "height": height})
            shown.evaluate("scrollTo(0, 0)")
            shown.screenshot(path=str(page.with_name(f"{page.stem}-{width}-{scheme}.png")), full_page=True)
            shown.close()


def opening_seconds(browser: Browser, trace: Path, folder: Path) -> tuple[int, float]:
    """Bytes of a trace of several processes that each did what `trace` says, and the median seconds from the request to the second frame on the screen."""
    folder.mkdir(parents=True, exist_ok=True)
    (file,) = trace.glob("*.jsonl")
    begin, rest = file.read_text().split("\n", 1)
    facts = json.loads(begin)
    for number in range(1 + LARGE // file.stat().st_size):
        (folder / f"flambeau-{number}.jsonl").write_text(json.dumps({**facts, "pid": number + 1}) + "\n" + rest)
    page = folder / "report.html"
    page.write_text(report_html(read_trace(folder)))
    seconds = []
    for _ in range(5):
        shown = browser.new_page()
        shown.goto(page.absolute().as_uri())
        seconds.append(shown.evaluate(SHOWN) / 1000)
        shown.close()
    return sum(found.stat().st_size for found in folder.glob("*.jsonl")), statistics.median(seconds)


def main() -> None:
    """The pages, anew, and the pictures of them."""
    parser = argparse.ArgumentParser(prog="python tools/look_at_reports.py", description="reports and pictures of them")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--device", default="cpu", help="where the programs are trained")
    parser.add_argument("--chromium", help="the browser that shows them")
    part = parser.add_mutually_exclusive_group()
    part.add_argument("--pages", action="store_true", help="take no pictures")
    part.add_argument("--taken", action="store_true", help="take pictures of pages that are there")
    chosen = parser.parse_args()
    if not (chosen.pages or chosen.chromium):
        parser.error("pictures need --chromium; --pages takes none")
    programs = {"gpt2": gpt2, "mixture": mixture}
    if not chosen.taken:
        shutil.rmtree(chosen.folder, ignore_errors=True)
        for name, program in programs.items():
            make(chosen.folder / name, program, chosen.device)
    if not chosen.pages:
        pages = [chosen.folder / name / page for name in programs for page in PAGES]
        pictures(chosen.folder, pages, chosen.chromium)


def pictures(folder: Path, pages: list[Path], chromium: str) -> None:
    """Of the pages, and how long a large report takes to open."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        take_pictures(browser, pages)
        size, seconds = opening_seconds(browser, folder / "gpt2", folder / "large")
        print(f"a report of {size / 1e6:.0f} MB of trace is shown after {seconds:.2f} s; pictures are in {folder}")
        browser.close()


if __name__ == "__main__":
    main()
