"""The page that sets eager, torch.compile and flambeau side by side, and the file of what flambeau is held to.

In: the files that `run.py` wrote for the three. Out: Markdown: a row for each section, what flambeau gets wrong, what only torch.compile
takes as one graph, and every program; and `expected.json`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from attrs import frozen

from .observe import Record, one_graph, verdict
from .registry import Program, all_programs

_LOST = {"status": "not run", "why": "there is no record"}


@frozen
class Row:
    """One program under both compilers.

    Attributes:
        graphs: for torch.compile and flambeau, graphs of the first call; None where it was not run.
        whole: for both, whether the first call is one graph.
        verdicts: for both, the verdict and what differs.
        reason: why flambeau's graph ended, or why it ran in eager.
    """

    program: Program
    graphs: tuple[int | None, int | None]
    whole: tuple[bool, bool]
    verdicts: tuple[tuple[str, str], tuple[str, str]]
    reason: str
    in_eager: str


def rows(eager: Path, torch: Path, flambeau: Path) -> list[Row]:
    """The programs in the order of their sections."""
    runs = [json.loads(path.read_text())["programs"] for path in (eager, torch, flambeau)]
    found = [_row(each, *(run.get(each.name, _LOST) for run in runs)) for each in all_programs().values()]
    return sorted(found, key=lambda row: row.program.section.lower())


def _row(program: Program, eager: Record, torch: Record, flambeau: Record) -> Row:
    both = (torch, flambeau)
    return Row(
        program,
        (torch.get("graphs"), flambeau.get("graphs")),
        (one_graph(torch, eager), one_graph(flambeau, eager)),
        (verdict(torch, eager), verdict(flambeau, eager)),
        "; ".join(dict.fromkeys(flambeau.get("breaks", ()))) or str(both[1].get("fullgraph", "")),
        "; ".join(dict.fromkeys(flambeau.get("in_eager", ()))),
    )


def write(eager: Path, torch: Path, flambeau: Path, out: Path, expected: Path | None) -> None:
    """Write the page, and the expectations where a file is named."""
    found = rows(eager, torch, flambeau)
    versions = json.loads(flambeau.read_text())
    out.write_text(page(found, versions))
    if expected is not None:
        expected.write_text(_by_line(expectations(found, versions)))


def expectations(found: Iterable[Row], versions: dict[str, Any]) -> dict[str, Any]:
    """What `test_programs.py` holds flambeau to: graphs of both, whether it is one graph, and the verdict where it is not `equal`."""
    programs = {}
    for row in sorted(found, key=lambda each: each.program.name):
        held: dict[str, Any] = {"torch.compile": row.graphs[0], "flambeau": row.graphs[1], "one graph": row.whole[1]}
        if row.verdicts[1][0] not in ("equal", "not run"):
            held["verdict"] = row.verdicts[1][0]
        programs[row.program.name] = held
    return {"torch": versions["torch"], "python": versions["python"], "programs": programs}


def _by_line(held: dict[str, Any]) -> str:
    """JSON with a line for each program, so that a change of one is a change of one line."""
    lines = [f"  {json.dumps(name)}: {json.dumps(each)}" for name, each in held["programs"].items()]
    head = "".join(f"  {json.dumps(key)}: {json.dumps(held[key])},\n" for key in ("torch", "python"))
    return f'{{\n{head}  "programs": {{\n' + ",\n".join(lines) + "\n  }\n}\n"


def page(found: list[Row], versions: dict[str, Any]) -> str:
    """The whole page."""
    parts = [_HEAD.format(programs=len(found), torch=versions["torch"], python=versions["python"]), *_summary(found)]
    faults = [row for row in found if row.verdicts[1][0] not in ("equal", "not run")]
    parts += [
        "",
        "## Not as in eager",
        "",
        "| program | section | flambeau | what differs |",
        "| --- | --- | --- | --- |",
    ]
    parts += [
        f"| `{r.program.name}` | {r.program.section} | {r.verdicts[1][0]} | {_cell(r.verdicts[1][1])} |" for r in faults
    ]
    lost = [row for row in found if row.whole == (True, False)]
    parts += [
        "",
        "## One graph for torch.compile only",
        "",
        "| program | section | graphs | why |",
        "| --- | --- | ---: | --- |",
    ]
    parts += [f"| `{r.program.name}` | {r.program.section} | {_count(r.graphs[1])} | {_cell(r.reason)} |" for r in lost]
    won = [row for row in found if row.whole == (False, True)]
    parts += ["", "## One graph for flambeau only", "", "| program | section | torch.compile |", "| --- | --- | --- |"]
    parts += [f"| `{r.program.name}` | {r.program.section} | {_result(r, 0)} |" for r in won]
    eager = [row for row in found if row.in_eager]
    parts += ["", "## Captured, but run in eager", "", "| program | section | why |", "| --- | --- | --- |"]
    parts += [f"| `{r.program.name}` | {r.program.section} | {_cell(r.in_eager)} |" for r in eager]
    parts += [
        "",
        "## Every program",
        "",
        "| section | program | torch.compile | flambeau |",
        "| --- | --- | --- | --- |",
    ]
    parts += [f"| {r.program.section} | `{r.program.name}` | {_result(r, 0)} | {_result(r, 1)} |" for r in found]
    return "\n".join(parts) + "\n"


_HEAD = """# User programs, captured

{programs} small programs (`tests/programs`) as users write them, under torch.compile and flambeau, each beside eager: how many are captured as
one graph, and whether results, gradients, changed arguments and objects outside, exceptions and output are eager's.
torch {torch}, Python {python}, CPU. torch.compile runs without its code generator (`aot_eager`); flambeau runs its default backend.
*One graph*: the first call needs no second graph, and `fullgraph=True` accepts it. Generated by `python -m tests.programs table`.

## Summary
"""


def _summary(found: list[Row]) -> list[str]:
    lines = [
        "| section | programs | one graph: torch.compile | flambeau | wrong: torch.compile | flambeau | raises: torch.compile | flambeau |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    sections = dict.fromkeys(row.program.section for row in found)
    lines += [_section(name, [row for row in found if row.program.section == name]) for name in sections]
    return [*lines, _section("**all**", found)]


def _section(name: str, found: list[Row]) -> str:
    ran = [row for row in found if "not run" not in (row.verdicts[0][0], row.verdicts[1][0])]
    cells: list[Any] = [name, len(ran)]
    cells += [sum(row.whole[side] for row in ran) for side in (0, 1)]
    cells += [sum(row.verdicts[side][0] == "wrong" for row in ran) for side in (0, 1)]
    cells += [sum(row.verdicts[side][0] not in ("equal", "wrong") for row in ran) for side in (0, 1)]
    return "| " + " | ".join(map(str, cells)) + " |"


def _result(row: Row, side: int) -> str:
    kind = row.verdicts[side][0]
    if kind == "not run":
        return kind
    count = _count(row.graphs[side])
    graphs = "one graph" if row.whole[side] else f"{count} graph and a break" if count == "1" else f"{count} graphs"
    return graphs if kind == "equal" else f"{graphs}, **{kind}**"


def _count(graphs: int | None) -> str:
    return "?" if graphs is None else str(graphs)


def _cell(text: str) -> str:
    flat = " ".join(text.split()).replace("|", "\\|")
    return flat if len(flat) <= 200 else f"{flat[:197]}..."
