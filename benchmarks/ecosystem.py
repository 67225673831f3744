"""Libraries on top of PyTorch: the programs of `examples/ecosystem` under eager, torch.compile and flambeau, each in a process of its own.

In: names of examples, all by default. Out: a Markdown table: whether results are eager's, graphs, seconds of the first step, milliseconds of a later one.

`python -m benchmarks.ecosystem --out docs/ecosystem.md`; what these libraries need is installed by `nox -s ecosystem`.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from .engines import ENGINES, compiled

ROOT = Path(__file__).resolve().parent.parent
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
#: Rewritten sums round otherwise; training carries that on.
TOLERANCE = {"rtol": 2e-3, "atol": 2e-4}
_SECONDS = 900


def as_it_is(function: Callable[..., Any], **_: Any) -> Callable[..., Any]:
    """What eager is in the place of a compiler."""
    return function


def measured(name: str, engine: str) -> dict[str, Any]:
    """One example under one engine, in this process: `first` and `later` are seconds, `differs` what is not as in eager."""
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    example = importlib.import_module(f"examples.ecosystem.{name}")
    expected = example.make(as_it_is)
    step = example.make(partial(compiled, engine))
    seconds, differs = [], ""
    for _ in range(STEPS):
        wanted = expected()
        start = time.perf_counter()
        results = step()
        seconds.append(time.perf_counter() - start)
        differs = differs or difference(results, wanted)
    return {"first": seconds[0], "later": statistics.median(seconds[3:]), "differs": differs, "graphs": graphs(engine)}


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


def in_own_process(name: str, engine: str) -> dict[str, Any]:
    """`measured`, with empty caches; an engine that fails gives `failed`, the last line of its error."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "found.json"
        caches = {"TORCHINDUCTOR_CACHE_DIR": f"{folder}/torch", "FLAMBEAU_CACHE_DIR": f"{folder}/flambeau"}
        command = [sys.executable, "-m", "benchmarks.ecosystem", name, "--engine", engine, "--out", str(out)]
        done = subprocess.run(
            command,
            cwd=ROOT,
            env={**os.environ, **caches},
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
        )
        if done.returncode:
            return {"failed": (done.stderr.strip().splitlines() or ["no message"])[-1]}
        found: dict[str, Any] = json.loads(out.read_text())
        return found


def table(found: dict[str, dict[str, dict[str, Any]]]) -> str:
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


def _verdict(record: dict[str, Any]) -> str:
    return "fails" if "failed" in record else "**no**" if record["differs"] else "yes"


def _number(record: dict[str, Any], key: str, scale: float) -> str:
    return f"{record[key] * scale:.2f}" if key in record else "–"


def _version(library: str) -> str:
    try:
        return version(library)
    except PackageNotFoundError:
        return "(missing)"


def page(found: dict[str, dict[str, dict[str, Any]]]) -> str:
    """The table, and what failed or differed."""
    notes = [
        f"- {name}, {engine}: {record.get('failed') or record.get('differs')}"
        for name, by_engine in found.items()
        for engine, record in by_engine.items()
        if record.get("failed") or record.get("differs")
    ]
    return (
        "# Libraries on top of PyTorch\n\n"
        "Programs as users of these libraries write them, with tiny random weights, on a CPU: each under eager, torch.compile and flambeau, in processes of their\n"
        "own with empty caches. Steps are a training step, a call, or a whole `fit` or `generate`, as the example says; small sizes, so that what is measured is\n"
        f"mostly the cost of calls. Later steps: the median of {STEPS - 3}. torch {torch.__version__}, Python {sys.version.split()[0]}, one thread.\n\n"
        "`nox -s ecosystem` runs the examples as tests; `nox -s ecosystem -- table` writes this page.\n\n"
        f"{table(found)}\n" + ("\nWhat failed or differed:\n\n" + "\n".join(notes) + "\n" if notes else "")
    )


def main() -> None:
    """Measure, write."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ecosystem", description="examples/ecosystem, timed")
    parser.add_argument("names", nargs="*", choices=[*EXAMPLES, []], default=list(EXAMPLES))
    parser.add_argument("--engine", choices=ENGINES, help="measure one example in this process, and write JSON")
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    if args.engine:
        args.out.write_text(json.dumps(measured(args.names[0], args.engine)))
        return
    found = {}
    for name in args.names:
        found[name] = {}
        for engine in ENGINES:
            found[name][engine] = in_own_process(name, engine)
            print(name, engine, found[name][engine], flush=True)
    args.out.write_text(page(found))


if __name__ == "__main__":
    main()
