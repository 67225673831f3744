"""From the packages' log events to records of a trace: one rule an event.

In: an event as a logger is given it, texts not yet made. Out: records. An event without a rule becomes a `log` record; a few are left out because capture's or
the stack's own records say the same.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from ..log import Deferred

Event = Mapping[str, Any]


class Sink(Protocol):
    """Where records go: the trace of one compile (`session.py`, which imports this module). `pictures`: the folder for drawings, if there are any."""

    compile_id: str
    pictures: Path | None

    def write(self, kind: str, **fields: Any) -> None:
        """Append one record of the compile."""


Rule = Callable[["Sink", str, Event], None]

_LEFT_OUT = frozenset(
    {
        "aot_graph",
        "captured",
        "graph_break",
        "graph",
        "guards",
        "pass_done",
        "lowered",
        "recompile",
        "recompile_failures",
        "masks_dropped",
        "pre_grad_graph",
    }
)
"""What other records have."""
_STAGES_SHOWN = frozenset({"lowering", "combining", "kernels", "launches", "measuring"})
"""Forms of stages that are kept: the others differ little from the one before, and sources stand in `source`."""


def plain(value: Any) -> Any:
    """A value of an event as what JSON has a form for; deferred texts are made."""
    make = getattr(value, "make", None)
    if isinstance(value, Deferred) or callable(make):
        return value.make()
    if isinstance(value, (str, int, float, bool, type(None), list, dict)):
        return value
    return str(value)


def _stage_begin(session: Sink, program: str, event: Event) -> None:
    session.write("stage_begin", stage=event["stage"], program=program)


def _stage_end(session: Sink, program: str, event: Event) -> None:
    session.write("stage_end", stage=event["stage"], program=program, seconds=event["seconds"])


def _compiled(session: Sink, program: str, event: Event) -> None:
    session.write("stage_end", stage=f"compile {event['library']}", program=program, seconds=event["seconds"])


def _stage_text(session: Sink, program: str, event: Event) -> None:
    if event.get("artifact") == "post_grad_graphs":
        session.write("graph", name="post_grad", program=program, text=plain(event["text"]), nodes={})
    elif event["form"] in _STAGES_SHOWN:
        session.write("ir", stage=event["stage"], form=event["form"], program=program, text=plain(event["text"]))


def _field(kind: str, name: str) -> Rule:
    def rule(session: Sink, program: str, event: Event) -> None:
        session.write(kind, program=program, **{name: plain(event[name])})

    return rule


def _schedule(session: Sink, program: str, event: Event) -> None:
    steps = plain(event["steps"])
    session.write("schedule", program=program, steps=steps)
    if session.pictures is not None:
        # Not at the top: most traces have no pictures.
        from ..report import pictures

        name = f"fusion-{os.getpid()}-{session.compile_id.replace('/', '_')}-{program}.svg"
        (session.pictures / name).write_text(pictures.standalone(pictures.fusion(steps)), encoding="utf-8")


def _joint(session: Sink, program: str, event: Event) -> None:
    session.write("graph", name="joint", program=program, text=plain(event["graph"]), nodes={})


def _bytecode(session: Sink, program: str, event: Event) -> None:
    session.write(
        "bytecode",
        function=event["function"],
        before=plain(event.get("original", "")),
        after=plain(event.get("rewritten") or event.get("code", "")),
        runs=event.get("runs", "rewritten code"),
    )


def _store(session: Sink, program: str, event: Event) -> None:
    session.write("cache", event=event["event"].removeprefix("cache "), entry=event["kind"], key=event["key"], why="")


def _miss(session: Sink, program: str, event: Event) -> None:
    session.write("cache", event="why", entry="graph", key="", why=plain(event["why"]))


def _bypass(session: Sink, program: str, event: Event) -> None:
    session.write("cache", event="not kept", entry="graph", key="", why=event["reason"])


def _program(session: Sink, program: str, event: Event) -> None:
    session.write("program", program=event["kind"], cached=event["cached"], text=plain(event["text"]))


def _library(session: Sink, program: str, event: Event) -> None:
    session.write(
        "source", program=program, name=event["name"], language=event.get("language", ""), text=event["source"]
    )


def _eager(session: Sink, program: str, event: Event) -> None:
    session.write("eager", reason=event["reason"])


_RULES: Mapping[str, Rule] = {
    "stage_begun": _stage_begin,
    "stage_ended": _stage_end,
    "stage_done": _stage_end,
    "stage": _stage_end,
    "compiled a library": _compiled,
    "stage_text": _stage_text,
    "origins": _field("origins", "origins"),
    "positions": _field("positions", "nodes"),
    "schedule": _schedule,
    "fusion": _field("fusion", "text"),
    "lifetimes": _field("lifetimes", "values"),
    "joint_graph": _joint,
    "bytecode": _bytecode,
    "cache hit": _store,
    "cache miss": _store,
    "graph_miss": _miss,
    "graph_not_cached": _bypass,
    "program": _program,
    "library": _library,
    "graph_runs_in_eager": _eager,
}


def take(session: Sink, program: str, method: str, event: Event) -> None:
    """Write what an event says, if anything."""
    name = str(event.get("event", ""))
    if name in _LEFT_OUT:
        return
    rule = _RULES.get(name)
    if rule is not None:
        rule(session, program, event)
        return
    fields = {key: plain(value) for key, value in event.items() if key not in ("event", "artifact", "level")}
    session.write("log", event=name, level=method, artifact=event.get("artifact") or "", program=program, fields=fields)
