"""Libraries on top of PyTorch: the programs of `examples/ecosystem` under eager, torch.compile and flambeau, each in a process of its own.

In: names of examples, all by default. Out: a Markdown table: whether results are eager's, graphs, seconds of the first step, milliseconds of a later one.

`python -m benchmarks.ecosystem --out docs/ecosystem.md`; what these libraries need is installed by `nox -s ecosystem`.
"""

from __future__ import annotations

import argparse
import importlib
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from .engines import ENGINES, compiled
from .runner import Record, Runner

#: Example -> the libraries that it uses.
EXAMPLES = {
    "generation": ("transformers",),
    "trainer": ("transformers", "accelerate"),
    "diffusion": ("diffusers", "peft"),
    "vision_training": ("timm",),
    "lora_training": ("peft", "transformers"),
    "quantized": ("torchao",),
    "accelerated": ("accelerate",),
    "lightning_training": ("lightning",),
    "detection": ("torchvision",),
}
STEPS = 15
#: How many of them are not among the later ones.
WARM = 3
#: Rewritten sums round otherwise; training carries that on.
TOLERANCE = {"rtol": 2e-3, "atol": 2e-4}
#: Of one example under one engine.
_SECONDS = 900.0


def as_it_is(function: Callable[..., Any], **_: Any) -> Callable[..., Any]:
    """What eager is in the place of a compiler."""
    return function


def measured(request: Record, leave_to: Callable[[str], None]) -> Iterator[Record]:
    """One example under one engine, in this process: `first` and `later` are seconds, `differs` what is not as in eager."""
    torch.set_num_threads(1)
    example = importlib.import_module(f"examples.ecosystem.{request['workload']}")
    leave_to("compile")
    expected = example.make(as_it_is)
    step = example.make(partial(compiled, request["engine"]))
    seconds, differs = [], ""
    for number in range(STEPS):
        if number == WARM:
            leave_to("time")
        wanted = expected()
        start = time.perf_counter()
        results = step()
        seconds.append(time.perf_counter() - start)
        differs = differs or difference(results, wanted)
    later = statistics.median(seconds[WARM:])
    yield {"first": seconds[0], "later": later, "differs": differs, "graphs": graphs(request["engine"])}


def difference(results: Sequence[torch.Tensor], wanted: Sequence[torch.Tensor]) -> str:
    """What differs, in a sentence; empty where nothing does."""
    try:
        torch.testing.assert_close(list(results), list(wanted), equal_nan=True, **TOLERANCE)
    except AssertionError as error:
        return " ".join(str(error).split())
    return ""


def graphs(engine: str) -> int | None:
    """How many graphs the engine captured in this process."""
    if engine == "torch.compile":
        return int(torch._dynamo.utils.counters["stats"]["unique_graphs"])
    if engine == "flambeau":
        from flambeau.accounting import counters

        return int(counters["stats"]["unique_graphs"])
    return None


def table(found: dict[str, dict[str, Record]]) -> str:
    """Rows of the examples, in Markdown."""
    lines = [
        "| example | libraries | as in eager: torch.compile / flambeau | graphs | first step, s | later steps, ms: eager | torch.compile | flambeau |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, by_engine in found.items():
        theirs, ours = by_engine["torch.compile"], by_engine["flambeau"]
        cells = [
            f"[{name}](../examples/ecosystem/{name}.py)",
            ", ".join(f"{library} {_version(library)}" for library in EXAMPLES[name]),
            f"{_verdict(theirs)} / {_verdict(ours)}",
            f"{theirs.get('graphs', '–')} / {ours.get('graphs', '–')}",
            f"{_number(theirs, 'first', 1)} / {_number(ours, 'first', 1)}",
            *(_number(by_engine[engine], "later", 1e3) for engine in ENGINES),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _verdict(record: Record) -> str:
    return "fails" if "error" in record else "**no**" if record["differs"] else "yes"


def _number(record: Record, key: str, scale: float) -> str:
    return f"{record[key] * scale:.2f}" if key in record else "–"


def _version(library: str) -> str:
    try:
        return version(library)
    except PackageNotFoundError:
        return "(missing)"


def page(records: Sequence[Record]) -> str:
    """The table, and what failed or differed."""
    found: dict[str, dict[str, Record]] = {}
    for record in records:
        found.setdefault(record["workload"], {})[record["engine"]] = record
    notes = [
        f"- {record['workload']}, {record['engine']}: {record.get('error') or record['differs']}"
        for record in records
        if record.get("error") or record.get("differs")
    ]
    return (
        "# Libraries on top of PyTorch\n\n"
        "Programs as users of these libraries write them, with tiny random weights, on a CPU: each under eager, torch.compile and flambeau, in processes of their\n"
        "own with empty caches. Steps are a training step, a call, or a whole `fit` or `generate`, as the example says; small sizes, so that what is measured is\n"
        f"mostly the cost of calls. Later steps: the median of {STEPS - WARM}. torch {torch.__version__}, Python {sys.version.split()[0]}, one thread. `Trainer` collects\n"
        "garbage before each training, which is most of its step: compilers leave more objects to look at.\n\n"
        "`nox -s ecosystem` runs the examples as tests; `nox -s ecosystem -- table` writes this page.\n\n"
        f"{table(found)}\n" + ("\nWhat failed or differed:\n\n" + "\n".join(notes) + "\n" if notes else "")
    )


def main() -> None:
    """Measure, write."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ecosystem", description="examples/ecosystem, timed")
    # argparse takes the empty list, which stands for all, for a choice too.
    parser.add_argument("names", nargs="*", choices=[*EXAMPLES, []], default=[], help="all by default")
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    requests = [{"experiment": "ecosystem", "workload": name} for name in args.names or EXAMPLES]
    args.out.write_text(page(Runner(timeout=_SECONDS).run(requests, cache="new")))


if __name__ == "__main__":
    main()
