"""Things with names, each looked at in a process that may not survive it.

In: names, and how a process is started that looks at them one after the other. Out: a record of plain data for each. The process writes lines of
JSON to a file (`write_records`): `{"begins": name}`, then `{"name": name, **record}`; what has only begun when the process ends has ended it: it is
recorded as crashed, and those behind it are looked at in a new process (`read_records`).
"""

from __future__ import annotations

import json
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

Record = dict[str, Any]
Start = Callable[[Sequence[str], Path], "subprocess.Popen[bytes]"]


class TimedOut(BaseException):
    """Something took too long; no `except Exception` of it or of a compiler holds this."""


def _ring(number: int, frame: FrameType | None) -> None:
    raise TimedOut


def write_records(names: Sequence[str], look: Callable[[str], Record], out: Path, seconds: int) -> None:
    """Look at each and append its record as soon as it is there; one that takes longer than `seconds` is given up."""
    signal.signal(signal.SIGALRM, _ring)
    with out.open("a") as lines:
        for name in names:
            print(json.dumps({"begins": name}), file=lines, flush=True)
            start = time.monotonic()
            record = _limited(name, look, seconds)
            record["seconds"] = round(time.monotonic() - start, 2)
            print(json.dumps({"name": name, **record}), file=lines, flush=True)


def _limited(name: str, look: Callable[[str], Record], seconds: int) -> Record:
    signal.alarm(seconds)
    try:
        return look(name)
    except TimedOut:
        return {"status": "timed out"}
    except Exception as error:
        return {"status": "not run", "why": f"{type(error).__qualname__}: {str(error)[:300]}"}
    finally:
        signal.alarm(0)


def read_records(names: Sequence[str], start: Start, silence: float) -> Iterator[tuple[str, Record]]:
    """Each name and its record, in the order in which they come. A process that writes nothing for `silence` seconds is killed."""
    left = list(names)
    while left:
        with tempfile.TemporaryDirectory() as folder:
            lines = Path(folder) / "lines"
            lines.touch()
            code = _wait(start(left, lines), lines, silence)
            begun = ""
            for line in lines.read_text().splitlines():
                record = json.loads(line)
                begun = record.get("begins", begun)
                if "name" in record:
                    begun = ""
                    left.remove(record["name"])
                    yield record.pop("name"), record
        if left:
            crashed = begun or left[0]
            left.remove(crashed)
            yield crashed, {"status": "crashed", "why": f"the process ended with {code}"}


def _wait(process: subprocess.Popen[bytes], lines: Path, silence: float) -> int | str:
    size, heard = 0, time.monotonic()
    while True:
        try:
            return process.wait(timeout=1)
        except subprocess.TimeoutExpired:
            if lines.stat().st_size != size:
                size, heard = lines.stat().st_size, time.monotonic()
            if time.monotonic() - heard > silence:
                process.kill()
                process.wait()
                return "a kill, as it heard no alarm"
