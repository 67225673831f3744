"""A process that examines seeds one after the other: a crash or a hang costs one program, not the sweep.

In: a sweep's name, seeds and settings, on the command line. Out: one line of JSON before and after each program.
"""

from __future__ import annotations

import faulthandler
import gc
import json
import os
import signal
import sys
import time
from typing import Any

from attrs import asdict

from .examine import examine
from .generators import GENERATORS
from .report import as_test, shrunk
from .run import run_plain


def main(arguments: str) -> None:
    """Work on the seeds named in a JSON text: `{"sweep", "seeds", "backend", "shrink", "limit"}`; with `"plain"` nothing is compiled."""
    wanted: dict[str, Any] = json.loads(arguments)
    os.environ.setdefault("FLAMBEAU_SUPPRESS_ERRORS", "0")
    faulthandler.enable()
    out = os.fdopen(os.dup(1), "w")
    generator = GENERATORS[wanted["sweep"]]
    signal.signal(signal.SIGALRM, _too_long)
    for number, seed in enumerate(wanted["seeds"]):
        _say(out, {"starts": seed})
        signal.alarm(wanted["limit"])
        start = time.monotonic()
        try:
            result = _one(generator, seed, wanted)
        except TooLongError:
            result = {"failure": {"kind": "too slow", "path": "", "plain": "", "ours": ""}}
        except Exception as error:
            result = {
                "failure": {"kind": "sweep failed", "path": "", "plain": "", "ours": f"{type(error).__name__}: {error}"}
            }
        signal.alarm(0)
        _say(out, {"ends": seed, "seconds": round(time.monotonic() - start, 3), **result})
        if number % 20 == 19:
            gc.collect()


def _one(generator: Any, seed: int, wanted: dict[str, Any]) -> dict[str, Any]:
    program = generator(seed, wanted["backend"])
    if wanted.get("plain"):
        return {"broken": run_plain(program.source).broken}
    verdict = examine(program)
    result: dict[str, Any] = {"backend": program.backend, "graphs": verdict.graphs, "breaks": verdict.breaks}
    result |= {"eager": verdict.eager, "broken": verdict.broken}
    if verdict.failure is not None:
        result["failure"] = asdict(verdict.failure)
        result["source"] = program.source
        if wanted["shrink"]:
            signal.alarm(wanted["limit"] + int(wanted["shrink"]))
            text = shrunk(program, verdict.failure, wanted["shrink"])
            result["small"], result["test"] = text, as_test(program, verdict.failure, text)
    return result


class TooLongError(BaseException):
    """The time of a program is over; no `except Exception` of it, nor of a compiler, can go on after that."""


def _too_long(number: int, frame: Any) -> None:
    raise TooLongError


def _say(out: Any, line: dict[str, Any]) -> None:
    out.write(json.dumps(line) + "\n")
    out.flush()


if __name__ == "__main__":
    main(sys.argv[1])
