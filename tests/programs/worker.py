"""A process that runs programs under one compiler, one after the other.

In: a compiler, a variant and names. Out: lines of JSON on the file that is asked for: `{"begins": name}`, then `{"name": name, **record}`; what has
only begun when the process ends has ended it. `run.py` starts it.
"""

from __future__ import annotations

import json
import signal
import sys
import time
from pathlib import Path
from types import FrameType

from .observe import Record, observe
from .registry import Program, chosen

SECONDS = 60


class TimedOut(BaseException):
    """A program took too long; no `except Exception` of a program or compiler holds it."""


def _ring(number: int, frame: FrameType | None) -> None:
    raise TimedOut


def main(compiler: str, variant: str, names: list[str], out: Path) -> None:
    """Run the programs and write a record of each as soon as it is there."""
    signal.signal(signal.SIGALRM, _ring)
    with out.open("a") as lines:
        for program in chosen(names=names):
            lines.write(json.dumps({"begins": program.name}) + "\n")
            lines.flush()
            start = time.monotonic()
            record = _limited(program, compiler, variant)
            record["seconds"] = round(time.monotonic() - start, 2)
            lines.write(json.dumps({"name": program.name, **record}) + "\n")
            lines.flush()


def _limited(program: Program, compiler: str, variant: str) -> Record:
    signal.alarm(SECONDS)
    try:
        return observe(program, compiler, variant=variant)
    except TimedOut:
        return {"status": "timed out"}
    except Exception as error:
        return {"status": "not run", "why": f"{type(error).__qualname__}: {str(error)[:300]}"}
    finally:
        signal.alarm(0)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], json.loads(sys.argv[3]), Path(sys.argv[4]))
