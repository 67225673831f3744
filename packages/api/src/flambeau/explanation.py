"""The result of `flambeau.explain`: everything about one call, for people (`print`, a terminal, a page) and for programs (`to_json`).

In: the records of a `Recorder`, what was measured. Out: `Explanation`, frozen.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from attrs import asdict, frozen

from .insight.facts import Facts

SCHEMA = 1
"""The version of what `to_json` writes: a field that is added leaves it, one that changes its meaning or goes raises it."""


@frozen
class Explanation(Facts):
    """What a call did, as `flambeau.explain(function)(*args)` found: the fields of `Facts`, as text, on a terminal, as JSON, as a page."""

    def __str__(self) -> str:
        return self.text()

    def text(self, *, verbose: bool = False) -> str:
        """As `print` shows it, in 80 columns; `verbose`: every guard and every kernel."""
        from .insight.parts import parts_of
        from .insight.plain import plain_text

        return plain_text(parts_of(self, verbose=verbose))

    def rich(self, *, verbose: bool = False) -> Any:
        """A renderable of the library rich, in colour and as wide as the terminal."""
        from .insight.parts import parts_of
        from .insight.terminal import renderable

        return renderable(parts_of(self, verbose=verbose))

    def __rich__(self) -> Any:
        return self.rich()

    def to_json(self) -> str:
        """JSON text of everything but the result and the programs themselves (docs/guide/reading-explain-and-logs.md has the fields)."""
        return json.dumps(self.to_dict(), indent=1)

    def to_dict(self) -> dict[str, Any]:
        """What `to_json` writes."""
        programs = [
            {
                "kind": program.kind,
                "kernels": program.kernels,
                "library_calls": dict(program.library_calls),
                "fused_operations": program.fused_operations,
                "cached": program.cached,
                "digest": program.artifact.digest,
                "host_waits": list(program.host_waits),
            }
            for program in self.programs
        ]
        return {
            "schema": SCHEMA,
            "name": self.name,
            "graph_count": self.graph_count,
            "graph_break_count": self.graph_break_count,
            "op_count": self.op_count,
            "not_captured": self.not_captured,
            "graphs": [asdict(graph) for graph in self.graphs],
            "breaks": [{**asdict(found), "excerpt": found.excerpt} for found in self.breaks],
            "frames": [asdict(frame) for frame in self.frames],
            "left": [asdict(frame) for frame in self.left],
            "guards": [asdict(guard) for guard in self.guards],
            "programs": programs,
            "eager_graphs": list(self.eager_graphs),
            "repeats": [asdict(repeat) for repeat in self.repeats],
            "cuda_graphs": [str(decision) for decision in self.cuda_graphs],
            "seconds": dict(self.seconds),
            "kernels": [{**asdict(step), "share_of_limit": step.share_of_limit} for step in self.kernels],
            "speeds": [{**asdict(speed), "factor": speed.factor} for speed in self.speeds],
            "memory": [asdict(peak) for peak in self.memory],
            "notes": list(self.notes),
        }

    def save_html(self, path: str | Path) -> None:
        """Write one page that needs nothing beside itself."""
        from .insight.page import page_of

        Path(path).write_text(page_of(self), encoding="utf-8")
