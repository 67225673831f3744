"""All of torch's databases beside eager: `python -m tests.conformance.full [--databases op,module] [--shard 0/4] [--results FILE]`.

In: which cases. Out: one line a fault on standard output, then totals by database; with `--results` a line of JSON per case, and cases that
stand there already are not run again. A crash is a fault of one case alone: on the CPU every case runs in a process of its own, forked, with
limits on memory and time; where there is a GPU, which does not survive a fork, a process takes cases until one breaks it. Exit status 1 when a
case differs that `exceptions.py` does not list, or does not differ though it is listed.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import resource
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator
from fnmatch import fnmatchcase
from functools import cache
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
from attrs import asdict

from .exceptions import KNOWN, KNOWN_ON_CUDA, NOT_RUN, reason
from .judge import Finding, judge
from .programs import DATABASES, Case, cases

#: Bytes of addresses that a case may take beside what its process has: libraries of CUDA alone are several GiB.
_MEMORY = 8 << 30
#: Cases of a process that is not forked, and costs its imports again.
_BATCH = 50


@cache
def every_case(databases: str, device: str) -> dict[str, Case]:
    """The cases of databases by their names, in order."""
    return {case.identity: case for name in databases.split(",") for case in cases(name, device)}


def chosen(arguments: argparse.Namespace) -> list[Case]:
    """The cases of this shard."""
    found = [
        case
        for name, case in every_case(arguments.databases, arguments.device).items()
        if fnmatchcase(name, arguments.only) and not reason(NOT_RUN, name)
    ]
    shard, _, count = arguments.shard.partition("/")
    return found[int(shard) :: int(count)][:: arguments.every]


def run_case(case: Case, backend: str, samples: int) -> list[Finding]:
    """Every program of a case; one that cannot be made is a fault too."""
    try:
        return [judge(program, backend) for program in case.programs(samples)]
    except Exception as error:
        return [Finding("making", f"{type(error).__name__}: {error}"[:300])]


def run_apart(waiting: list[Case], arguments: argparse.Namespace) -> Iterator[tuple[Case, list[dict[str, Any]]]]:
    """The cases in order, each with its findings, from other processes."""
    # Samples and optimizers of torch's use the devices that are there, whichever is asked for.
    forks = not torch.cuda.is_available()
    context = multiprocessing.get_context("fork" if forks else "spawn")
    waiting = list(waiting)
    while waiting:
        batch = [case.identity for case in waiting[: 1 if forks else _BATCH]]
        reading, writing = context.Pipe(duplex=False)
        child = context.Process(target=_run_batch, args=(batch, arguments, writing))
        child.start()
        writing.close()
        try:
            for _ in batch:
                found = reading.recv()
                yield waiting.pop(0), found
        except EOFError:
            child.join()
            if child.exitcode:
                late = child.exitcode == -signal.SIGALRM
                why = f"more than {arguments.limit} s" if late else f"the process ended with {child.exitcode}"
                yield waiting.pop(0), [asdict(Finding("process", why))]
        finally:
            child.terminate()
            child.join()


def _run_batch(batch: list[str], arguments: argparse.Namespace, writing: Connection) -> None:
    """In the other process: send the findings of each case; end early, with status 0, after one that broke the device."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    if arguments.device == "cpu":
        limit = _addresses() + _MEMORY
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    for name in batch:
        signal.alarm(arguments.limit)
        case = every_case(arguments.databases, arguments.device)[name]
        writing.send([asdict(finding) for finding in run_case(case, arguments.backend, arguments.samples)])
        if arguments.device == "cuda":
            try:
                torch.cuda.synchronize()
            except RuntimeError:
                return


def _addresses() -> int:
    """Bytes of addresses that this process has (proc(5), statm: the first number, in pages)."""
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


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
    wanted = chosen(arguments)
    for case in wanted:
        if case.identity in done:
            bad += _count(case, done[case.identity], totals, arguments.device)
    for case, found in run_apart([case for case in wanted if case.identity not in done], arguments):
        if arguments.results is not None:
            with arguments.results.open("a") as file:
                file.write(json.dumps({"case": case.identity, "findings": found}) + "\n")
        bad += _count(case, found, totals, arguments.device)
        if time.monotonic() - started > arguments.seconds:
            break
    for name, count in sorted(totals.items()):
        print(f"{name:40} {count}")
    return 1 if bad else 0


def _count(case: Case, findings: list[dict[str, Any]], totals: Counter[str], device: str) -> int:
    known = reason(KNOWN_ON_CUDA | KNOWN if device == "cuda" else KNOWN, case.identity)
    faults = [finding for finding in findings if finding["fault"]]
    totals[f"{case.database}: programs"] += len(findings)
    totals[f"{case.database}: faults"] += len(faults)
    totals[f"{case.database}: programs without a graph"] += sum(not f["graphs"] and not f["raised"] for f in findings)
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
