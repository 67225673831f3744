"""`python -m tests.sweeps SWEEP --seed N --count N --seconds S`: draw, run, shrink, sum up by class.

In: a sweep's name (or `all`) and budgets. Out: a test for each failure, a table of classes, and an exit status that is 1 where something failed.
"""

from __future__ import annotations

import argparse
import collections
import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .generators import GENERATORS
from .program import BACKENDS

_BATCH = 200


def main() -> int:
    """Run the sweeps that are asked for."""
    options = _options()
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
    start, done = time.monotonic(), 0
    for result in _results(name, first, options, until):
        done += 1
        counts["broken programs"] += bool(result.get("broken"))
        counts["without a graph"] += not result.get("graphs")
        refusals.update(reason[:100] for reason in result.get("eager", ()))
        breaks.update(result.get("breaks", ()))
        if "failure" in result:
            counts[f"! {result['failure']['kind']}"] += 1
            _tell(result, options)
    print(f"\n{name}: {done} programs from seed {first} in {time.monotonic() - start:.0f} s")
    for kind, number in sorted(counts.items()):
        print(f"{number:7d}  {kind}")
    for title, counter in (("left to eager", refusals), ("breaks", breaks)):
        print(f"{sum(counter.values()):7d}  {title}")
        for reason, number in counter.most_common(12):
            print(f"         {number:6d}  {reason}")
    return int(any(kind.startswith("!") for kind in counts))


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

    What runs when the time is over is waited for.
    """
    seed, last = first, first + options.count
    while seed < last and time.monotonic() < until:
        wanted = {"sweep": name, "seeds": list(range(seed, min(seed + _BATCH, last))), "backend": options.backend}
        wanted |= {"shrink": options.shrink, "limit": options.limit}
        running = found = None
        with subprocess.Popen(
            _command(options, wanted), stdout=subprocess.PIPE, text=True, errors="replace"
        ) as process:
            for told in _told(process, options):
                running, found = told.get("starts", running), told if "found" in told else found
                if "ends" in told:
                    seed, running, found = told["ends"] + 1, None, None
                    yield {**told, "seed": told["ends"]}
                    if time.monotonic() > until:
                        process.kill()
                        break
        if running is not None:
            crash = found or _crash({**wanted, "seeds": [running]}, process.returncode, options)
            yield {**crash, "seed": running}
            seed = running + 1
        elif process.returncode and time.monotonic() < until:
            raise RuntimeError(f"the sweep's process ended with status {process.returncode}")


def _told(process: subprocess.Popen[str], options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """What a process says, until it ends. One that says nothing for longer than it gives any program hangs, outside of Python, and is killed."""
    assert process.stdout is not None
    line = ""
    while True:
        drawing = line.startswith('{"starts"')
        watch = threading.Timer(2 * options.limit if drawing else 12 * (options.limit + options.shrink), process.kill)
        watch.start()
        line = process.stdout.readline()
        watch.cancel()
        if not line:
            return
        if line.startswith("{"):
            yield json.loads(line)


def _command(options: argparse.Namespace, wanted: dict[str, Any]) -> list[str]:
    return [options.python, "-m", "tests.sweeps.worker", json.dumps(wanted)]


def _crash(wanted: dict[str, Any], status: int, options: argparse.Namespace) -> dict[str, Any]:
    """What a process that died says of its program: it is a broken one if the plain run, alone in a process, dies of the same."""
    command = _command(options, {**wanted, "plain": True})
    try:
        alone = subprocess.run(command, stdout=subprocess.DEVNULL, check=False, timeout=2 * options.limit)
    except subprocess.TimeoutExpired:
        return {"broken": "neither drawn nor run in plain Python in time"}
    if alone.returncode == status:
        return {"broken": f"eager dies: exit status {status}"}
    return {"failure": {"kind": "crash", "path": "", "plain": "", "ours": f"exit status {status}"}}


if __name__ == "__main__":
    sys.exit(main())
