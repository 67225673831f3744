"""What was compiled during a test, seen from outside the test: no test can pass with a compiler that does nothing.

In: the stages, watched while a test runs (`watch`). Out: a `Witness` with every region, its graphs and everything that ran in eager
instead; `verdict` says what the test's markers do not allow. `conftest.py` asks it after every test:

    @pytest.mark.falls_back("part of the reason")   graphs or frames run in eager, each for one of these reasons, each of which occurs
    @pytest.mark.compiles(graphs=3)                 exactly so many graphs; 0 for a test that only makes regions
    @pytest.mark.judges_itself                      the test watches and judges each of many programs
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from attrs import Factory, define, field

import flambeau.stack
import flambeau_capture.hook
from flambeau_capture import CompileRecord

#: What a frame without a graph of its own says when nothing was lost.
_NOTHING_LOST = ("no tensor operation", "a loop is captured round by round")


@define(eq=False)
class RegionLog:
    """One region: how often it asked for code, how often the answer was an exception, its graphs and breaks."""

    name: str
    asked: int = 0
    raised: int = 0
    graphs: int = 0
    breaks: int = 0


@define
class Witness:
    """What happened while it watched.

    Attributes:
        regions: in the order they were made.
        in_eager: why each graph or frame that should have been compiled was not.
        installed: the names of what is watched, for the test of the witness itself.
    """

    regions: list[RegionLog] = Factory(list)
    in_eager: list[str] = Factory(list)
    installed: list[str] = field(factory=list, repr=False)

    @property
    def graphs(self) -> int:
        """Graphs that a backend was given."""
        return sum(region.graphs for region in self.regions)


def watch(patch: pytest.MonkeyPatch) -> Witness:
    """Watch capture's handler and both compiling backends until `patch` is undone."""
    witness = Witness()
    handler = _watched_handler(flambeau_capture.hook._Handler, witness)
    patch.setattr(flambeau_capture.hook, "_Handler", handler)
    for name in ("compile_stack", "compile_aot_eager"):
        patch.setattr(flambeau.stack, name, _watched_backend(getattr(flambeau.stack, name), witness))
        witness.installed.append(name)
    patch.setattr(flambeau.stack, "logger", _WatchedLogger(flambeau.stack.logger, witness))
    return witness


def _watched_handler(handler: type[Any], witness: Witness) -> type[Any]:
    class Watched(handler):  # type: ignore[misc]
        __slots__ = ("log",)

        def __init__(self, callback: Any, config: Any) -> None:
            super().__init__(callback, config)
            self.log = RegionLog(getattr(callback, "__qualname__", type(callback).__name__))
            witness.regions.append(self.log)
            if hasattr(callback, "observer"):
                callback.observer = _observed(callback.observer, self.log, witness)

        def __call__(self, code: Any, *rest: Any) -> Any:
            self.log.asked += 1
            if rest[-1]:
                witness.in_eager.append(f"the recompile limit was reached in {code.co_qualname}")
            try:
                answer = super().__call__(code, *rest)
            except BaseException:
                self.log.raised += 1
                raise
            self.log.raised += isinstance(answer, BaseException)
            return answer

    return Watched


def _observed(
    inner: Callable[[CompileRecord], None] | None, log: RegionLog, witness: Witness
) -> Callable[[CompileRecord], None]:
    def observe(record: CompileRecord) -> None:
        if record.graph is not None and not record.skipped:
            log.graphs += 1
        log.breaks += len(record.breaks)
        if record.skipped and record.skipped not in _NOTHING_LOST:
            witness.in_eager.append(f"{record.code.co_qualname} was left out: {record.skipped}")
        if inner is not None:
            inner(record)

    return observe


def _watched_backend(backend: Callable[..., Any], witness: Witness) -> Callable[..., Any]:
    def compile_watched(gm: Any, *args: Any, **kwargs: Any) -> Any:
        told = len(witness.in_eager)
        compiled = backend(gm, *args, **kwargs)
        if getattr(compiled, "__self__", None) is gm and len(witness.in_eager) == told:
            witness.in_eager.append("the backend answered with the graph as it is")
        return compiled

    return compile_watched


class _WatchedLogger:
    """The backend's logger, with an ear on the event that tells of a graph in eager."""

    def __init__(self, inner: Any, witness: Witness) -> None:
        self._inner, self._witness = inner, witness

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._inner, name)

        def log(event: str, *args: Any, **fields: Any) -> Any:
            if event == "graph_runs_in_eager":
                self._witness.in_eager.append(str(fields.get("reason", "no reason given")))
            return method(event, *args, **fields)

        return log


def verdict(witness: Witness, node: pytest.Item) -> list[str]:
    """What the test's markers do not allow, one sentence each; empty for a test that saw what it had to see."""
    if node.get_closest_marker("judges_itself") is not None:
        return []
    allowed = [reason for mark in node.iter_markers("falls_back") for reason in mark.args]
    wanted = next((mark.kwargs["graphs"] for mark in node.iter_markers("compiles")), None)
    faults = [f"ran in eager: {reason}" for reason in witness.in_eager if not any(part in reason for part in allowed)]
    if wanted is not None:
        if witness.graphs != wanted:
            faults.append(f"{witness.graphs} graphs were compiled, the test says {wanted}")
        return faults
    if allowed:
        # Only what every run of the test does can be held against it: parameters may differ.
        missing = [part for part in allowed if not any(part in reason for reason in witness.in_eager)]
        return faults + [f"nothing ran in eager for: {part}" for part in missing]
    if witness.regions and not any(region.asked for region in witness.regions):
        faults.append("a region was made and never asked for code; say compiles(graphs=0) where that is meant")
    silent = [region for region in witness.regions if region.asked and not region.graphs and not region.raised]
    faults += [f"a region asked {region.asked} times and got no graph" for region in silent]
    return faults
