"""The page of the sweep: how many architectures are as in eager, how many are one graph, and a line for each that is not.

In: the files that `run.py` wrote, for flambeau, and for torch.compile of those that flambeau takes in several graphs. Out: Markdown.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from tests.processes import Record

_NOT_RUN = ("not made", "not run")

_HEAD = """# Captured architectures

Every kind of configuration of `transformers` and every family of `timm` that can be made small with random weights, two calls in inference and two in
training with their gradients, compared with eager in the same process. Written by `python -m tools.capture_sweep table`; backend `{backend}`,
torch {torch}, Python {python}, transformers {transformers}, timm {timm}.

torch.compile was asked about those alone that flambeau takes in more than one graph, or not as eager.
"""


def is_broken(record: Record) -> bool:
    """Whether an architecture ran, and was not taken as one graph, or not as in eager."""
    return bool(record) and record["status"] not in _NOT_RUN and not (is_equal(record) and is_one_graph(record))


def is_equal(record: Record) -> bool:
    """Whether all calls were as in eager."""
    return record.get("verdict") == "equal"


def is_one_graph(record: Record) -> bool:
    """Whether the first call was one graph."""
    return record.get("graphs", 2) == 1 and not record.get("breaks")


def write(flambeau: Sequence[Path], torch: Sequence[Path], out: Path) -> None:
    """Write the page."""
    ours, versions = _merged(flambeau)
    theirs, _ = _merged(torch)
    out.write_text(page(ours, theirs, versions))


def _merged(files: Iterable[Path]) -> tuple[dict[str, Record], dict[str, Any]]:
    runs = [json.loads(file.read_text()) for file in files]
    found = {name: record for each in runs for name, record in each["architectures"].items()}
    return dict(sorted(found.items())), runs[0]


def page(ours: dict[str, Record], theirs: dict[str, Record], versions: dict[str, Any]) -> str:
    """The whole page."""
    ran = {name: record for name, record in ours.items() if record["status"] not in _NOT_RUN}
    parts = [_HEAD.format(**versions), *_summary(ran)]
    parts += ["", "## Not as in eager", "", "| architecture | flambeau | torch.compile |", "| --- | --- | --- |"]
    parts += [
        f"| `{name}` | {_cell(_fault(record))} | {_cell(_fault(theirs.get(name, {})))} |"
        for name, record in ran.items()
        if not is_equal(record)
    ]
    parts += [
        "",
        "## More than one graph",
        "",
        "| architecture | graphs | torch.compile | why |",
        "| --- | ---: | ---: | --- |",
    ]
    parts += [
        f"| `{name}` | {_graphs(record)} | {_graphs(theirs.get(name, {}))} | {_cell('; '.join(record.get('breaks', ())))} |"
        for name, record in ran.items()
        if not is_one_graph(record)
    ]
    parts += ["", "## As eager is otherwise", "", "| architecture | as | plainly |", "| --- | --- | --- |"]
    parts += [f"| `{name}` | {r['as']} | {_cell(r['what'])} |" for name, r in ran.items() if "as" in r]
    left = {name: record for name, record in ours.items() if name not in ran}
    parts += [
        "",
        "## Not run",
        "",
        "No small model of these could be made or called in eager, or eager is not the same twice.",
        "",
    ]
    parts += [", ".join(f"`{name}`" for name in left)]
    return "\n".join(parts) + "\n"


def _summary(ran: dict[str, Record]) -> list[str]:
    rows = ["| library | mode | run | as in eager | one graph |", "| --- | --- | ---: | ---: | ---: |"]
    kinds = sorted({(name.partition("/")[0], name.rpartition(" ")[2]) for name in ran})
    for library, mode in kinds:
        rows.append(
            _row(
                library,
                mode,
                [each for name, each in ran.items() if name.startswith(f"{library}/") and name.endswith(f" {mode}")],
            )
        )
    return [*rows, _row("all", "", list(ran.values()))]


def _row(library: str, mode: str, records: Sequence[Record]) -> str:
    equal, whole = sum(map(is_equal, records)), sum(map(is_one_graph, records))
    return f"| {library} | {mode} | {len(records)} | {_share(equal, len(records))} | {_share(whole, len(records))} |"


def _share(part: int, whole: int) -> str:
    return f"{part} ({100 * part / max(whole, 1):.1f} %)"


def _fault(record: Record) -> str:
    if not record:
        return "not asked"
    return " ".join(
        str(each)
        for each in (record.get("verdict", record["status"]), record.get("what", record.get("why", "")))
        if each
    )


def _graphs(record: Record) -> str:
    if not record:
        return "not asked"
    return str(record.get("graphs", record.get("verdict", record["status"])))


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())[:200]
