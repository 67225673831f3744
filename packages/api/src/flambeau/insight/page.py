"""An explanation as a page (`report/page.py` is the frame)."""

from __future__ import annotations

from ..report.cells import LONG
from ..report.page import Section, render, render_page
from ..units import counted
from .facts import Facts
from .parts import Part, parts_of


def page_of(found: Facts) -> str:
    """The whole page: everything, and the texts of graphs and programs."""
    parts = parts_of(found, verbose=True)
    sections = [_section(part) for part in parts]
    texts = [(f"graph {number}", graph.code) for number, graph in enumerate(found.graphs)]
    texts += [(f"program {number}, {p.kind}", p.artifact.text()) for number, p in enumerate(found.programs)]
    if texts:
        note = "The captured graphs as Python, and the programs that were made of them."
        sections.append(
            Section("texts", "Graphs and programs", render("explain_texts.html", texts=texts), str(len(texts)), note)
        )
    return render_page(f"flambeau.explain: {found.name}", sections, subtitle=_subtitle(found))


def _subtitle(found: Facts) -> str:
    parts = (
        counted(found.graph_count, "graph"),
        counted(found.graph_break_count, "break"),
        counted(found.op_count, "operation"),
        counted(len(found.kernels), "kernel or library call", "kernels and library calls"),
    )
    return ", ".join(parts)


def _section(part: Part) -> Section:
    title = "Summary" if part.id == "summary" else part.title
    count = "" if part.id in ("summary", "seconds", "notes") else str(len(part.rows))
    return Section(
        part.id, title, render("explain_part.html", part=part, filters=len(part.rows) >= LONG), count, part.note
    )
