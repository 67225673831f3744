"""A process that examines seeds one after the other: a crash or a hang costs one program, not the sweep.

In: a sweep's name, seeds and settings, on the command line. Out: one line of JSON before and after each program, and one for a failure before it is made small.
"""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from typing import Any

from attrs import asdict

from .compare import Failure
from .examine import examine
from .generators import GENERATORS
from .program import Program
from .report import as_test, shrunk
from .run import run_plain


def main(arguments: str) -> None:
    """Work on the seeds named in a JSON text: `{"sweep", "seeds", "backend", "shrink", "limit"}`; with `"plain"` nothing is compiled."""
    wanted: dict[str, Any] = json.loads(arguments)
    os.environ.setdefault("FLAMBEAU_SUPPRESS_ERRORS", "0")
    faulthandler.enable()
    out = os.fdopen(os.dup(1), "w")  # children do not inherit it
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    generator = GENERATORS[wanted["sweep"]]
    for number, seed in enumerate(wanted["seeds"]):
        _say(out, {"starts": seed})
        start = time.monotonic()
        try:
            program = _drawn(generator, seed, wanted)
            _say(out, {"drawn": seed})
            result = _one(program, wanted) if program is not None else {"broken": "too slow to draw", "stopped": True}
            if "failure" in result and wanted["shrink"]:
                _say(out, {"found": seed, **result})
                result |= _shrunk(program, Failure(**result["failure"]), wanted)
        except Exception as error:
            result = {
                "failure": {"kind": "sweep failed", "path": "", "plain": "", "ours": f"{type(error).__name__}: {error}"}
            }
        _say(out, {"ends": seed, "seconds": round(time.monotonic() - start, 3), **result})
        if result.get("stopped"):
            os._exit(0)  # what was stopped anywhere may have left anything behind, threads that never end among it
        if number % 20 == 19:
            gc.collect()


def _drawn(generator: Any, seed: int, wanted: dict[str, Any]) -> Program | None:
    """The seed's program; what a generator tries may not end."""
    with contextlib.suppress(TooLongError), _within(wanted["limit"]):
        return generator(seed, wanted["backend"])
    return None


def _one(program: Program, wanted: dict[str, Any]) -> dict[str, Any]:
    if wanted.get("plain"):
        return {"broken": run_plain(program.source).broken}
    result: dict[str, Any] = {"backend": program.backend}
    try:
        with _within(wanted["limit"]):
            verdict = examine(program)
    except TooLongError:
        return result | _stopped(program, wanted["limit"])
    result |= {"graphs": verdict.graphs, "breaks": verdict.breaks, "eager": verdict.eager, "broken": verdict.broken}
    if verdict.known:
        result |= {"known": verdict.known}
    if verdict.failure is not None:
        result |= {"failure": asdict(verdict.failure), "source": program.source}
    return result


def _stopped(program: Program, limit: float) -> dict[str, Any]:
    """What is said of a program that took too long: nothing, where it does so in plain Python."""
    try:
        with _within(limit / 4):
            broken = run_plain(program.source).broken
    except TooLongError:
        broken = "too slow in plain Python"
    if broken:
        return {"broken": broken, "stopped": True}
    failure = {"kind": "too slow", "path": "", "plain": "", "ours": ""}
    return {"failure": failure, "source": program.source, "stopped": True}


def _shrunk(program: Program, failure: Failure, wanted: dict[str, Any]) -> dict[str, Any]:
    """The small text and its test; nothing, where a text on the way to it takes too long."""
    if failure.kind == "too slow":
        return {}
    try:
        with _within(wanted["limit"] + wanted["shrink"]):
            text = shrunk(program, failure, wanted["shrink"])
    except TooLongError:
        return {"stopped": True}
    return {"small": text, "test": as_test(program, failure, text)}


class TooLongError(BaseException):
    """The time of a program is over; no `except Exception` of it, nor of a compiler, can go on after that."""


@contextlib.contextmanager
def _within(limit: float) -> Iterator[None]:
    """Raise after that many seconds of the processor, which no other process on the machine makes longer, or in four times as many for one that
    waits for something. Again every second: in a callback of the collector the error is only printed; and once more at the end, since a manager of
    the program may have swallowed it."""
    over = False

    def too_long(number: int, frame: Any) -> None:
        nonlocal over
        over = True
        raise TooLongError

    for number, clock, seconds in (
        (signal.SIGPROF, signal.ITIMER_PROF, limit),
        (signal.SIGALRM, signal.ITIMER_REAL, 4 * limit),
    ):
        signal.signal(number, too_long)
        signal.setitimer(clock, seconds, 1)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
    if over:
        raise TooLongError


def _say(out: Any, line: dict[str, Any]) -> None:
    out.write(json.dumps(line) + "\n")
    out.flush()


if __name__ == "__main__":
    main(sys.argv[1])
