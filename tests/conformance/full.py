"""All of torch's databases beside eager: `python -m tests.conformance.full [--databases op,module] [--shard 0/4] [--results FILE]`.

In: which cases. Out: one line a fault on standard output, then totals by database; with `--results` a line of JSON per case, and cases that
stand there already are not run again. Every case runs in a process of its own, forked, with limits on memory and time: a crash is a fault
of that case alone. Exit status 1 when a case differs that `exceptions.py` does not list, or does not differ though it is listed.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import signal
import sys
import time
from collections import Counter
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from attrs import asdict

from .exceptions import KNOWN, NOT_RUN, reason
from .judge import Finding, judge
from .programs import DATABASES, Case, cases

_MEMORY = 12 << 30


def chosen(arguments: argparse.Namespace) -> list[Case]:
    """The cases of this shard."""
    names = arguments.databases.split(",")
    found = [case for name in names for case in cases(name, arguments.device)]
    found = [
        case for case in found if fnmatchcase(case.identity, arguments.only) and not reason(NOT_RUN, case.identity)
    ]
    shard, _, count = arguments.shard.partition("/")
    found = found[int(shard) :: int(count)]
    return found[:: arguments.every]


def run_case(case: Case, backend: str, samples: int) -> list[Finding]:
    """Every program of a case; one that cannot be made is a fault too."""
    try:
        return [judge(program, backend) for program in case.programs(samples)]
    except Exception as error:
        return [Finding("making", f"{type(error).__name__}: {error}"[:300])]


def run_apart(case: Case, arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """The findings of a case, from a forked process."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
        signal.alarm(arguments.limit)
        silence = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silence, 2)
        found = json.dumps([asdict(finding) for finding in run_case(case, arguments.backend, arguments.samples)])
        with os.fdopen(writing, "w") as pipe:
            pipe.write(found)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        text = pipe.read()
    _, status = os.waitpid(child, 0)
    if not text:
        number = os.waitstatus_to_exitcode(status)
        why = f"more than {arguments.limit} s" if number == -signal.SIGALRM else f"the process ended with {number}"
        return [asdict(Finding("process", why))]
    answer: list[dict[str, Any]] = json.loads(text)
    return answer


def main() -> int:
    """Run, print, count."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--databases", default=",".join(DATABASES))
    parser.add_argument("--only", default="*", help="a pattern of database:name:dtype")
    parser.add_argument("--shard", default="0/1", help="i/n: every n-th case, from the i-th")
    parser.add_argument("--every", type=int, default=1, help="of the shard, one case in so many")
    parser.add_argument("--samples", type=int, default=1000, help="of each case, the first so many")
    parser.add_argument("--backend", default="inductor", choices=["inductor", "aot_eager", "eager"])
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--limit", type=int, default=600, help="seconds for one case")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="no new case after so long")
    parser.add_argument("--results", type=Path)
    arguments = parser.parse_args()
    done: dict[str, list[dict[str, Any]]] = {}
    if arguments.results is not None and arguments.results.exists():
        done = {row["case"]: row["findings"] for row in map(json.loads, arguments.results.read_text().splitlines())}
    started, totals, bad = time.monotonic(), Counter[str](), 0
    for case in chosen(arguments):
        if time.monotonic() - started > arguments.seconds:
            break
        if case.identity not in done:
            done[case.identity] = run_apart(case, arguments)
            if arguments.results is not None:
                with arguments.results.open("a") as file:
                    file.write(json.dumps({"case": case.identity, "findings": done[case.identity]}) + "\n")
        bad += _count(case, done[case.identity], totals)
    for name, count in sorted(totals.items()):
        print(f"{name:40} {count}")
    return 1 if bad else 0


def _count(case: Case, findings: list[dict[str, Any]], totals: Counter[str]) -> int:
    known = reason(KNOWN, case.identity)
    faults = [finding for finding in findings if finding["fault"]]
    totals[f"{case.database}: programs"] += len(findings)
    totals[f"{case.database}: faults"] += len(faults)
    totals[f"{case.database}: programs with a graph in eager"] += sum(bool(finding["eager"]) for finding in findings)
    if known is not None and faults:
        totals[f"{case.database}: faults that are listed"] += len(faults)
        return 0
    if known is not None:
        print(f"{case.identity}: does not differ, though it is listed: {known}", flush=True)
        return 1
    for finding in faults:
        print(f"{case.identity}:{finding['label']}: {finding['fault']}", flush=True)
    return len(faults)


if __name__ == "__main__":
    sys.exit(main())
