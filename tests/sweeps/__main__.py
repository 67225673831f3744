"""`python -m tests.sweeps SWEEP --seed N --count N --seconds S`: draw, run, shrink, sum up by class.

In: a sweep's name (or `all`) and budgets. Out: a test for each failure, a table of classes, and an exit status that is 1 where something failed.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .generators import GENERATORS
from .program import BACKENDS

_BATCH = 200
#: Seconds after the end of the time in which what still runs may finish.
_GRACE = 30.0


def main() -> int:
    """Run the sweeps that are asked for; one that is told to end sums up what it has seen."""
    options = _options()
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    names = list(GENERATORS) if options.sweep == "all" else [options.sweep]
    return max(_sweep(name, options) for name in names)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.sweeps", description=__doc__)
    parser.add_argument("sweep", choices=[*GENERATORS, "all"])
    parser.add_argument("--seed", type=int, default=None, help="the first seed; by default the time of day")
    parser.add_argument("--count", type=int, default=1_000_000, help="programs at most")
    parser.add_argument("--seconds", type=float, default=600.0, help="time at most, for each sweep")
    parser.add_argument(
        "--backend", choices=BACKENDS, default=None, help="one backend for all, instead of the generator's mix"
    )
    parser.add_argument(
        "--shrink", type=float, default=20.0, help="seconds for making one failure small; 0: leave it as it is"
    )
    parser.add_argument("--limit", type=int, default=60, help="seconds of the processor for one program")
    parser.add_argument("--python", default=sys.executable, help="the interpreter that runs the programs")
    parser.add_argument("--out", type=Path, default=None, help="a file that gets one line of JSON for each failure")
    parser.add_argument("--quiet", action="store_true", help="no tests, only the table")
    return parser.parse_args()


def _sweep(name: str, options: argparse.Namespace) -> int:
    first = int(time.time()) % 100_000 * 1000 if options.seed is None else options.seed
    until = time.monotonic() + options.seconds
    counts: collections.Counter[str] = collections.Counter()
    refusals: collections.Counter[str] = collections.Counter()
    breaks: collections.Counter[str] = collections.Counter()
    start = time.monotonic()
    try:
        for result in _results(name, first, options, until):
            if result.get("unfinished"):
                counts[f"not finished when the time was over: seed {result['seed']}"] += 1
                continue
            counts["programs"] += 1
            counts["broken programs"] += bool(result.get("broken"))
            if "known" in result:
                counts[f"known limit: {result['known']}"] += 1
            counts["without a graph"] += not result.get("graphs")
            refusals.update(reason[:100] for reason in result.get("eager", ()))
            breaks.update(result.get("breaks", ()))
            if "failure" in result:
                counts[f"! {result['failure']['kind']}"] += 1
                _tell(result, options)
    finally:
        print(f"\n{name}: {counts.pop('programs', 0)} programs from seed {first} in {time.monotonic() - start:.0f} s")
        _sum_up(counts, refusals, breaks)
    return int(any(kind.startswith("!") for kind in counts))


def _sum_up(
    counts: collections.Counter[str], refusals: collections.Counter[str], breaks: collections.Counter[str]
) -> None:
    for kind, number in sorted(counts.items()):
        print(f"{number:7d}  {kind}")
    for title, counter in (("left to eager", refusals), ("breaks", breaks)):
        print(f"{sum(counter.values()):7d}  {title}")
        for reason, number in counter.most_common(12):
            print(f"         {number:6d}  {reason}")
    sys.stdout.flush()


def _tell(result: dict[str, Any], options: argparse.Namespace) -> None:
    if options.out is not None:
        with options.out.open("a") as file:
            file.write(json.dumps(result) + "\n")
    if not options.quiet:
        failure = result["failure"]
        print(f"# seed {result['seed']}, {result.get('backend')}: {failure['kind']} at {failure['path']}")
        print(f"#   plain {failure['plain']}\n#   ours  {failure['ours']}")
        print(result.get("test") or result.get("source", ""), flush=True)


def _results(name: str, first: int, options: argparse.Namespace, until: float) -> Iterator[dict[str, Any]]:
    """The verdicts of seeds in order; a process that dies gives `crash` for the seed it was at, or what it had found, and another goes on.

    What runs when the time is over is waited for a little, and then told as not finished.
    """
    seed, last, latest = first, first + options.count, until + _GRACE
    while seed < last and time.monotonic() < until:
        wanted = {"sweep": name, "seeds": list(range(seed, min(seed + _BATCH, last))), "backend": options.backend}
        wanted |= {"shrink": options.shrink, "limit": options.limit}
        running = found = None
        hangs = False
        with _process(options, wanted) as process:
            for told in _told(process, options, latest):
                running, found = told.get("starts", running), told if "found" in told else found
                hangs = "hangs" in told
                if "ends" in told:
                    seed, running, found = told["ends"] + 1, None, None
                    yield {**told, "seed": told["ends"]}
                    if time.monotonic() > until:
                        return
        kind, status = "hangs" if hangs else "crash", process.returncode
        if running is not None:
            over = {"unfinished": True} if time.monotonic() > latest else None
            yield {**(found or over or _lost({**wanted, "seeds": [running]}, kind, status, options)), "seed": running}
            seed = running + 1
        elif status and seed == wanted["seeds"][0]:
            raise RuntimeError(f"the sweep's process ended with status {status} before its first program")
        elif status:
            yield {"failure": _failure(kind, status, "after the program"), "seed": seed - 1}


@contextlib.contextmanager
def _process(options: argparse.Namespace, wanted: dict[str, Any]) -> Iterator[subprocess.Popen[bytes]]:
    """A process that works on seeds, in a group of its own: with it end the children that its programs and compilers have left."""
    process = subprocess.Popen(_command(options, wanted), stdout=subprocess.PIPE, start_new_session=True)
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def _told(process: subprocess.Popen[bytes], options: argparse.Namespace, latest: float) -> Iterator[dict[str, Any]]:
    """What a process says, until it ends or the time is over. One that says nothing for longer than it gives any program `hangs`, outside of
    Python: it is told to show where. The end of the pipe is not waited for: a child may hold it open."""
    assert process.stdout is not None
    pipe, begun, heard, longest = process.stdout.fileno(), b"", time.monotonic(), 5 * (options.limit + options.shrink)
    patience = longest
    while time.monotonic() < min(heard + patience, latest):
        ended = process.poll() is not None
        if select.select([pipe], [], [], 0 if ended else 0.5)[0]:
            heard, read = time.monotonic(), os.read(pipe, 1 << 16)
            *lines, begun = (begun + read).split(b"\n")
            for told in [json.loads(line) for line in lines if line.startswith(b"{")]:
                patience = longest if "drawn" in told or "found" in told else 2 * options.limit
                yield told
            if not read:
                _ends(process, min(2 * options.limit, latest - heard))
                return
        elif ended:
            return
    if time.monotonic() < latest:
        process.send_signal(signal.SIGABRT)
        _ends(process, 10)
        yield {"hangs": True}


def _ends(process: subprocess.Popen[bytes], seconds: float) -> bool:
    """Whether a process ends in that time."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(max(seconds, 0))
    return process.returncode is not None


def _command(options: argparse.Namespace, wanted: dict[str, Any]) -> list[str]:
    return [options.python, "-m", "tests.sweeps.worker", json.dumps(wanted)]


def _lost(wanted: dict[str, Any], kind: str, status: int, options: argparse.Namespace) -> dict[str, Any]:
    """What a process that died or hung says of its program: it is a broken one if the plain run, alone in a process, does the same."""
    with _process(options, {**wanted, "plain": True}) as alone:
        if not _ends(alone, 2 * options.limit):
            return {"broken": "neither drawn nor run in plain Python in time"}
    if kind == "crash" and alone.returncode == status:
        return {"broken": f"eager dies: exit status {status}"}
    return {"failure": _failure(kind, status)}


def _failure(kind: str, status: int, where: str = "") -> dict[str, str]:
    return {"kind": kind, "path": where, "plain": "", "ours": f"exit status {status}"}


if __name__ == "__main__":
    sys.exit(main())
