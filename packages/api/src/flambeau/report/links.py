"""Lines of every stage side by side, and which of them belong together.

In: one compile and one of its programs. Out: panes: lines of text, and for each the numbers of the graph nodes that it is about. Lines of two panes that have a
node in common came from each other: the nodes of the graph that is lowered are what a loop says that it computes, a kernel is made of loops, a program
launches kernels, and a node knows the user's lines.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from attrs import define, field

from .model import Compile

Keys = Iterable[str]
CONTEXT = 6
"""Lines of a source that are shown around one that is meant."""
_NODE = re.compile(r"\s*%?(\w+)(?: : .*?| *:[^=]*)? = ")
_LINE = re.compile(r" {0,6}(\d+) ")
_BUFFER = re.compile(r"\s*(?:outer |inner )?%?(\w+)[\[: ]")


@define
class Panes:
    """Panes in the making; `nodes` numbers node names."""

    made: list[dict[str, Any]] = field(factory=list)
    nodes: dict[str, int] = field(factory=dict)

    def add(self, name: str, title: str, lines: list[tuple[str, Keys]]) -> None:
        """One pane, left out where it is empty."""
        if lines:
            keys = [[self.nodes.setdefault(key, len(self.nodes)) for key in dict.fromkeys(about)] for _, about in lines]
            self.made.append({"name": name, "title": title, "lines": [text for text, _ in lines], "keys": keys})


def panes_of(compile: Compile, program: str) -> list[dict[str, Any]]:
    """The panes of a program, from the source to the program's text; without a program those of capture."""
    nodes = _positions(compile, program)
    origins = {name: found for record in compile.all("origins", program) for name, found in record["origins"].items()}
    by_line: dict[tuple[str, int], list[str]] = defaultdict(list)
    by_stack: dict[tuple[tuple[Any, ...], ...], list[str]] = defaultdict(list)
    for name, stack in nodes.items():
        by_stack[tuple(map(tuple, stack))].append(name)
        for file, line, _ in stack:
            by_line[file, line].append(name)
    kernels = _kernels(compile, program)
    panes = Panes()
    panes.add("source", "source", _source(compile, by_line))
    panes.add("bytecode", "bytecode", _bytecode(compile, by_line))
    captured = compile.last("graph", "", name="captured")
    if captured is not None:
        stacks = {name: tuple(map(tuple, stack)) for name, stack in captured["nodes"].items()}
        panes.add(
            "captured", "captured graph", _named(captured["text"], lambda name: by_stack.get(stacks.get(name, ()), ()))
        )
    lowered = compile.last("graph", program, name="post_grad") or compile.last("graph", program, name=program)
    if lowered is not None:
        panes.add("graph", "ATen graph", _named(lowered["text"], lambda name: (name,) if name in nodes else ()))
    panes.add("loops", "loop IR", _named(_text(compile, program, "lowering"), lambda name: origins.get(name, ())))
    steps = {step["name"]: step["origins"] for record in compile.all("schedule", program) for step in record["steps"]}
    panes.add("kernels", "kernels", _blocks(_text(compile, program, "combining"), steps, origins))
    panes.add("kernel_ir", "kernel IR", _blocks(_text(compile, program, "kernels"), kernels, {}))
    sources = "\n".join(record["text"] for record in compile.all("source") if _is_of(compile, record, program))
    panes.add("sources", "kernel source", _blocks(sources, kernels, {}))
    text = compile.last("program", program)
    if text is not None:
        panes.add("program", "program", _program(text["text"], kernels, compile.last("kernels", program)))
    return panes.made


def _positions(compile: Compile, program: str) -> dict[str, list[list[Any]]]:
    """Positions of the nodes of a program's graphs."""
    found: dict[str, list[list[Any]]] = {}
    for record in (*compile.all("graph", program), *compile.all("positions", program)):
        found.update(record["nodes"])
    return found


def _kernels(compile: Compile, program: str) -> dict[str, list[str]]:
    record = compile.last("kernels", program)
    rows = record["kernels"] if record is not None else ()
    return {row["name"]: row["origins"] or [] for row in rows if row["kind"] == "kernel"}


def _is_of(compile: Compile, source: Mapping[str, Any], program: str) -> bool:
    """A program's sources come behind it, before the next program."""
    at = compile.records.index(source)
    before = [record["program"] for record in compile.records[:at] if record["kind"] == "program"]
    return bool(before) and before[-1] == program


def _text(compile: Compile, program: str, form: str) -> str:
    record = compile.last("ir", program, form=form)
    return record["text"] if record is not None else ""


def _named(text: str, about: Any) -> list[tuple[str, Keys]]:
    """Lines that define something: what that is about."""
    found: list[tuple[str, Keys]] = []
    for line in text.splitlines():
        match = _NODE.match(line)
        found.append((line, about(match.group(1)) if match else ()))
    return found


def _blocks(text: str, kernels: Mapping[str, Keys], loops: Mapping[str, Keys]) -> list[tuple[str, Keys]]:
    """Lines of kernels: each is about its loop where that is known, else about its kernel."""
    now: Keys = ()
    found: list[tuple[str, Keys]] = []
    for line in text.splitlines():
        words = re.findall(r"[A-Za-z_]\w*", line)
        if ("kernel" in words[:1] or "def" in words[:1] or "extern" in words[:1]) and (
            named := next((w for w in words if w in kernels), None)
        ):
            now = kernels[named]
        match = _BUFFER.match(line)
        own = loops.get(match.group(1)) if match else None
        found.append((line, (own or now) if line.strip() else ()))
    return found


def _program(text: str, kernels: Mapping[str, Keys], record: Mapping[str, Any] | None) -> list[tuple[str, Keys]]:
    lines = text.splitlines()
    first = max((at for at, line in enumerate(lines) if line.startswith("input ")), default=len(lines)) + 1
    calls = {
        row["position"][0]: row["origins"] or ()
        for row in (record or {"kernels": ()})["kernels"]
        if len(row["position"]) == 1
    }
    has_nested = any(line.startswith("  ") for line in lines[first:])
    found: list[tuple[str, Keys]] = []
    for at, line in enumerate(lines):
        launched = re.match(r"\s*(?:launch|kernel) (\w+)", line)
        own: Keys = kernels.get(launched.group(1), ()) if launched else ()
        if not launched and not has_nested and at >= first:
            own = calls.get(at - first, ())
        found.append((line, own))
    return found


def _bytecode(compile: Compile, by_line: Mapping[tuple[str, int], Keys]) -> list[tuple[str, Keys]]:
    record = compile.last("bytecode")
    if record is None:
        return []
    now: Keys = ()
    found: list[tuple[str, Keys]] = [("# before", ())]
    for line in record["before"].splitlines():
        if match := _LINE.match(line):
            now = by_line.get((compile.begin["file"], int(match.group(1))), ())
        found.append((line, now if line.startswith(" ") else ()))
    if record["runs"] == "graph":
        found.append(("# after: the entry calls the graph itself", ()))
        return found
    found.append(("# after", ()))
    return found + [(line, ()) for line in record["after"].splitlines()]


def _source(compile: Compile, by_line: Mapping[tuple[str, int], Keys]) -> list[tuple[str, Keys]]:
    """The lines that nodes name, with some around them, the file with most of them first."""
    texts = {record["path"]: record["text"].splitlines() for record in compile.process.of("file")}
    meant: dict[str, set[int]] = defaultdict(set)
    for file, line in by_line:
        meant[file].add(line)
    meant[compile.begin["file"]].add(int(compile.begin["line"]))
    found: list[tuple[str, Keys]] = []
    # Wrappers and loops over modules are above all operations at one line of theirs: what has most lines of its own is the program.
    for file, lines in sorted(meant.items(), key=lambda item: -len(item[1])):
        text = texts.get(file)
        if text is None:
            continue
        found.append((f"# {file}", ()))
        last = 0
        for number in sorted(
            {at for line in lines for at in range(line - CONTEXT, line + CONTEXT + 1) if 1 <= at <= len(text)}
        ):
            if number > last + 1 and last:
                found.append(("      ⋮", ()))
            found.append((f"{number:5}  {text[number - 1]}", by_line.get((file, number), ())))
            last = number
    return found
