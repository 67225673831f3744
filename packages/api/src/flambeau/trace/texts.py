"""The records of one compile as the files of its debug folder: one rule a kind of record.

In: records, in order. Out: path below the folder -> text. What is about the forward or the backward lies in a folder of that name; a later record of the same
name takes the place of an earlier one, since a stage that refused runs again otherwise. Every record that is no text is a line of `log.txt`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from linecache import getline
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import Any

from attrs import frozen

Record = Mapping[str, Any]
Files = dict[str, str]
Positions = Mapping[str, list[list[Any]]]

#: Form of a stage's text -> its file; those of torch.compile's folder where it has one.
_FORMS: Mapping[str, str] = MappingProxyType(
    {"lowering": "ir_pre_fusion.txt", "combining": "ir_post_fusion.txt", "kernels": "ir_kernels.txt", "measuring": ""}
)
_SUFFIXES: Mapping[str, str] = MappingProxyType({"cpp": "cpp", "triton": "py"})
_ASSIGNED = re.compile(r"^(\s+)(\w+)(?:\s*:[^=]*)? = ")
_BEGINS_LINE = re.compile(r"^\s{0,6}(\d+)\s")


@frozen
class _Facts:
    """What the rules need of other records: whose frame it is, and positions of nodes by program."""

    file: str
    positions: Mapping[str, Positions]


Rule = Callable[[Files, Record, _Facts], None]
_NOT_TOLD = frozenset(("kind", "time", "thread", "compile", "nodes", "origins", "values", "stack"))


def files_of_records(records: Iterable[Record]) -> Files:
    """Everything that a compile's folder holds."""
    records = list(records)
    begin = next((record for record in records if record["kind"] == "frame_begin"), {})
    positions = {record["program"]: record["nodes"] for record in records if record["kind"] == "positions"}
    facts = _Facts(begin.get("file", ""), positions)
    files: Files = {}
    log: list[str] = []
    for record in records:
        rule = _RULES.get(record["kind"])
        if rule is not None:
            rule(files, record, facts)
        if line := log_line(record, begin.get("time")):
            log.append(line)
    files["compile.json"] = json.dumps(_summary(records, begin), indent=2, default=str) + "\n"
    files["log.txt"] = "".join(f"{line}\n" for line in log)
    return files


def log_line(record: Record, since: float | None = None) -> str:
    """A record as one line, its texts below it; nothing for one that is a file of its own. `since`: when the compile began."""
    kind = record["kind"]
    if kind in _RULES and kind != "break":
        return ""
    fields = {**record, **record.get("fields", {})}
    name = str(fields.get("event") or kind)
    shown = {key: fields[key] for key in fields.keys() - _NOT_TOLD - {"fields", "event"} if fields[key] not in ("", [])}
    words = {key: str(shown[key]) for key in sorted(shown, key=list(fields).index)}
    blocks = {key: text for key, text in words.items() if "\n" in text}
    pairs = " ".join(f"{key}={text}" for key, text in words.items() if key not in blocks)
    at = "later    " if since is None else f"{record['time'] - since:9.4f}"
    lines = [f"{at} {name} {pairs}".rstrip()]
    for key, text in blocks.items():
        lines += [f"          {key}:", *(f"            {line}" for line in text.rstrip().splitlines())]
    return "\n".join(lines)


def _summary(records: list[Record], begin: Record) -> dict[str, Any]:
    found = {name: begin.get(name) for name in ("function", "file", "line", "region", "entry", "misses")}
    for record in records:
        if record["kind"] == "frame":
            found |= {name: record[name] for name in ("operations", "skipped", "trace_seconds", "backend_seconds")}
        elif record["kind"] == "frame_end":
            found["error"] = record["error"]
            found["seconds"] = round(record["time"] - begin.get("time", record["time"]), 6)
    found["breaks"] = [record["reason"] for record in records if record["kind"] == "break"]
    return found


def _put(files: Files, record: Record, name: str, text: str) -> None:
    if text.strip():
        path = PurePosixPath(record.get("program") or "", name)
        files[str(path)] = text if text.endswith("\n") else f"{text}\n"


def _bytecode(files: Files, record: Record, facts: _Facts) -> None:
    for name in ("before", "after"):
        _put(files, record, f"bytecode_{name}.txt", _with_lines(record[name], facts.file))


def _with_lines(listing: str, file: str) -> str:
    """A listing of `dis` with the text of each line of the user above its instructions."""
    shown = []
    for row in listing.splitlines():
        found = _BEGINS_LINE.match(row)
        if found and (text := getline(file, int(found[1])).strip()):
            shown.append(f"# {found[1]}: {text}")
        shown.append(row)
    return "\n".join(shown)


def _graph(files: Files, record: Record, facts: _Facts) -> None:
    name, text = record["name"], record["text"]
    if name in (record.get("program"), "post_grad"):
        file = "graph.py" if name == record.get("program") else "graph_post_grad.py"
    else:
        file = f"graph_{name}.py" if text.lstrip().startswith(("def ", "class ")) else f"graph_{name}.txt"
    nodes = record["nodes"] or facts.positions.get(record.get("program") or "", {})
    _put(files, record, file, _with_positions(text, nodes))


def _with_positions(code: str, nodes: Positions) -> str:
    """A graph's code with the user's line above what it became."""
    shown: list[str] = []
    before = None
    for row in code.splitlines():
        found = _ASSIGNED.match(row)
        stack = nodes.get(found[2]) if found else None
        if found and stack and stack[-1] != before:
            before = file, line, function = stack[-1]
            shown.append(f"{found[1]}# {file}:{line} in {function}: {getline(file, line).strip()}".rstrip(": "))
        shown.append(row)
    return "\n".join(shown)


def _ir(files: Files, record: Record, facts: _Facts) -> None:
    if name := _FORMS.get(record["form"], f"ir_{record['form']}.txt"):
        _put(files, record, name, record["text"])


def _text(name: str) -> Rule:
    return lambda files, record, facts: _put(files, record, name, str(record["text"]))


def _schedule(files: Files, record: Record, facts: _Facts) -> None:
    rows = [
        f"{step['kind']:12} {step['name']}\n    computes {', '.join(map(str, step['origins']))}\n"
        f"    reads {', '.join(map(str, step['reads']))}\n    writes {', '.join(map(str, step['writes']))}"
        for step in record["steps"]
    ]
    _put(files, record, "schedule.txt", "\n".join(rows))


def _memory(files: Files, record: Record, facts: _Facts) -> None:
    rows = [f"{amount:14,}  {step}" for step, amount in record["planned"]]
    _put(files, record, "memory.txt", "\n".join(["bytes held behind each step", *rows]))


def _source(files: Files, record: Record, facts: _Facts) -> None:
    name = re.sub(r"[^\w.-]", "_", record["name"])
    _put(files, record, f"{name}.{_SUFFIXES.get(record['language'], 'txt')}", record["text"])


def _guards(files: Files, record: Record, facts: _Facts) -> None:
    rows = []
    for guard in record["guards"]:
        cost = "" if guard["seconds"] is None else f"{guard['seconds'] * 1e9:.0f} ns"
        place = "{}:{} in {}".format(*guard["position"]) if guard["position"] else ""
        rows.append(f"{cost:>10}  {guard['text']}" + (f"  # needed at {place}" if place else ""))
    _put(files, record, "guards.txt", "\n".join(rows))


def _break(files: Files, record: Record, facts: _Facts) -> None:
    """A line of the log as well, with all others that the compile had."""
    place = f"{record['file']}:{record['line']} in {record['function']}"
    words = f"[{record['code']}] {record['reason']}\n  {place}\n      {getline(record['file'], record['line']).strip()}\n  hint: {record['hint']}\n"
    files["breaks.txt"] = files.get("breaks.txt", "") + words


_RULES: Mapping[str, Rule] = MappingProxyType(
    {
        "bytecode": _bytecode,
        "graph": _graph,
        "ir": _ir,
        "fusion": _text("fusion.txt"),
        "schedule": _schedule,
        "program": _text("program.txt"),
        "source": _source,
        "memory": _memory,
        "guards": _guards,
        "script": _text("run.py"),
        "break": _break,
        "origins": lambda files, record, facts: None,
        "positions": lambda files, record, facts: None,
        "lifetimes": lambda files, record, facts: None,
        "kernels": lambda files, record, facts: None,
    }
)
