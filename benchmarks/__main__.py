"""`python -m benchmarks EXPERIMENT [options]`: eager, torch.compile and flambeau side by side.

Experiments: overhead, compile_time, steady_state (ops), models (steady state, first call, memory and errors in one run),
memory, bandwidth (device time of memory-bound ops), cudagraphs, max_autotune (each compiler's default mode and its tuned one), grid
(device time of one kind of kernel in many cases), all (of those for the CPU). On a GPU: `--device cuda`.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from . import attention_grid, ops, patches, tables, vision, workloads
from .engines import ENGINES, REDUCE_OVERHEAD, TUNED
from .runner import CACHES, Record, Runner, load
from .surroundings import objections

OVERHEAD = ("tiny", "tiny_with_grad", "layers50", "layers50_with_grad")
CUDA_GRAPHS = (
    ("lstm_cell", False),
    ("moe", False),
    ("bert", False),
    ("resnet50", False),
    ("gpt2", True),
    ("mlp", True),
)
Experiment = Callable[[argparse.Namespace, Runner], None]


def _chosen(names: Sequence[str], only: Sequence[str] | None) -> list[str]:
    return [name for name in names if not only or name in only]


def _common(args: argparse.Namespace, experiment: str) -> Record:
    request: Record = {"experiment": experiment, "device": args.device, "budget": args.budget}
    for name in ("dtype", "tf32", "profile", "scale"):
        if getattr(args, name):
            request[name] = getattr(args, name)
    return request


def _model(args: argparse.Namespace, experiment: str, name: str, train: bool, suite: str) -> Record:
    """A request for a model or op-level workload in steady state; `format` says in which number format it ran."""
    written = workloads.format_of(name, args.scale or workloads.scale_for(args.device), args.dtype)
    request = {"workload": name, "train": train, "suite": suite, "format": written}
    return {**_common(args, experiment), **request}


def _factor(args: argparse.Namespace, on_gpu: int) -> int:
    return args.factor or (on_gpu if args.device == "cuda" else 1)


def overhead(args: argparse.Namespace, runner: Runner) -> None:
    """Microseconds per call where the graph itself costs next to nothing."""
    requests = [{**_common(args, "overhead"), "workload": name} for name in _chosen(OVERHEAD, args.only)]
    records = runner.run(requests, engines=args.engines or _with_graphs(args, ENGINES))
    tables.table(records, args.figure, unit=1e6, title=f"per call, µs ({args.figure} of batches)")


def _with_graphs(args: argparse.Namespace, engines: Sequence[str]) -> Sequence[str]:
    return (*engines, *REDUCE_OVERHEAD[1:]) if args.device == "cuda" else engines


def compile_time(args: argparse.Namespace, runner: Runner) -> None:
    """Seconds of the first call: on a new machine (the smallest graph), where other programs ran before, with a filled disk cache."""
    names = _chosen(
        ("small_graph", *workloads.MODELS, *patches.NETWORKS, *vision.NETWORKS),
        args.only or ("small_graph", *workloads.MODELS),
    )
    requests = [{**_common(args, "compile_time"), "workload": name, "train": args.train} for name in names]
    for cache in args.cache:
        smallest = [request for request in requests if request["workload"] == "small_graph"]
        chosen = smallest if cache == "new" and not args.only else requests
        _show_first_calls(runner.run(chosen, engines=args.engines or ENGINES[1:], cache=cache), cache)


def _show_first_calls(records: Sequence[Record], cache: str) -> None:
    tables.table(records, "first", title=f"first call, {cache} cache, s")
    tables.arithmetic_means(records, "first", f"{cache} cache: mean first call, s")


def steady_state(args: argparse.Namespace, runner: Runner) -> None:
    """Milliseconds per call of the op-level workloads."""
    common = {**_common(args, "steady_state"), "factor": _factor(args, workloads.GPU_FACTOR)}
    requests = [{**common, "workload": name} for name in _chosen(workloads.OPS, args.only)]
    records = runner.run(requests, engines=args.engines or ENGINES)
    tables.table(records, args.figure, unit=1e3, title=f"op-level workloads, ms per call ({args.figure} of batches)")


def _suites(args: argparse.Namespace) -> dict[str, Sequence[str]]:
    """Suite -> names: what a run of models measures."""
    if args.train:
        suites: dict[str, Sequence[str]] = {"transformers": workloads.TRAINABLE}
        if args.device == "cuda" or args.suite:
            suites["attention"] = workloads.SUITES["attention"]
    elif args.device == "cuda" or args.suite:
        suites = dict(workloads.SUITES)
    else:
        suites = {"transformers": workloads.MODELS}
    if not vision.available() and suites.pop("vision", None):
        print("torchvision is not installed: its networks are left out")
    return {name: _chosen(names, args.only) for name, names in suites.items() if not args.suite or name in args.suite}


def models(args: argparse.Namespace, runner: Runner) -> None:
    """Steady state, first call, peak memory and errors of whole models and op-level workloads; `--train`: with backward."""
    requests = []
    for suite, names in _suites(args).items():
        for name in names:
            request = _model(args, "steady_state", name, args.train, suite)
            if suite == "ops":
                request |= {"factor": _factor(args, workloads.GPU_FACTOR)}
            requests.append(request)
    # Where all compile at once, nobody asks for first calls.
    cache = "new" if runner.cores else "cold"
    tables.summary(runner.run(requests, engines=args.engines or ENGINES, cache=cache), args.figure)


def memory(args: argparse.Namespace, runner: Runner) -> None:
    """Peak MiB of one call."""
    names = _chosen((*workloads.OPS, *workloads.MODELS), args.only)
    requests = [{**_common(args, "memory"), "workload": name, "train": args.train} for name in names]
    records = runner.run(requests, engines=args.engines or ENGINES)
    tables.table(records, "peak_bytes", unit=2**-20, title="peak memory of one call, MiB")


def bandwidth(args: argparse.Namespace, runner: Runner) -> None:
    """Share of the copy bandwidth of every memory-bound op, one process per engine."""
    names = _chosen([name for name in workloads.OPS if name not in ops.NOT_MEMORY_BOUND], args.only)
    factor = _factor(args, workloads.BANDWIDTH_FACTOR)
    request = {**_common(args, "bandwidth"), "workload": "memory-bound ops", "workloads": names, "factor": factor}
    tables.bandwidth(runner.run([request], engines=args.engines or ENGINES))


def cudagraphs(args: argparse.Namespace, runner: Runner) -> None:
    """What mode="reduce-overhead" is for; then equality over varied calls whose outputs stay alive."""
    chosen = [(name, train) for name, train in CUDA_GRAPHS if not args.only or name in args.only]
    engines = args.engines or REDUCE_OVERHEAD
    for experiment in ("steady_state", "varied"):
        requests = [_model(args, experiment, name, train, "cuda graphs") for name, train in chosen]
        records = runner.run(requests, engines=engines)
        if experiment == "steady_state":
            tables.summary(records, args.figure)
        else:
            tables.errors(records, "100 varied calls, outputs kept alive: largest relative error beside eager")


def grid(args: argparse.Namespace, runner: Runner) -> None:
    """Many cases of one kind of kernel, with the device's own time of each: `attention`."""
    common = {**_common(args, "attention"), "deadline": args.deadline}
    requests = attention_grid.requests(args.only, common)
    records = runner.run(requests, engines=args.engines or attention_grid.ENGINES)
    print("\n".join(attention_grid.table(records)))


def max_autotune(args: argparse.Namespace, runner: Runner) -> None:
    """Models under each compiler's default and its tuned mode: steady state, first calls, and each mode beside the better of torch.compile's."""
    requests = []
    for suite, names in workloads.TUNED.items():
        for dtype in ("float32", "bfloat16") if suite == "transformers" else ("float32",):
            if not args.dtype or dtype == args.dtype:
                chosen = [_model(args, "steady_state", name, False, suite) for name in _chosen(names, args.only)]
                requests += [{**request, "dtype": dtype, "format": dtype, "tf32": True} for request in chosen]
    tables.tuned(runner.run(requests, engines=args.engines or TUNED), args.figure)


EXPERIMENTS: dict[str, Experiment] = {
    "grid": grid,
    "overhead": overhead,
    "compile_time": compile_time,
    "steady_state": steady_state,
    "models": models,
    "memory": memory,
    "bandwidth": bandwidth,
    "cudagraphs": cudagraphs,
    "max_autotune": max_autotune,
}
CPU = ("overhead", "compile_time", "steady_state", "models", "memory")


def show(records: Sequence[Record], figure: str) -> None:
    """The tables of the records of a file, experiment by experiment."""
    by_experiment: dict[str, list[Record]] = {}
    for record in records:
        by_experiment.setdefault(record["experiment"], []).append(record)
    for experiment, part in by_experiment.items():
        if experiment == "steady_state":
            tuned = any("/max-autotune" in record["engine"] for record in part)
            (tables.tuned if tuned else tables.summary)(part, figure)
        elif experiment == "bandwidth":
            tables.bandwidth(part)
        elif experiment == "attention":
            print("\n".join(attention_grid.table(part)))
        elif experiment == "varied":
            tables.errors(part, "100 varied calls, outputs kept alive: largest relative error beside eager")
        elif experiment == "compile_time":
            for cache in CACHES:
                _show_first_calls([record for record in part if record["cache"] == cache], cache)
        else:
            unit, key = (1e6, figure) if experiment == "overhead" else (2**-20, "peak_bytes")
            tables.table(part, key, unit=unit, title=experiment)


def _split(text: str) -> list[str]:
    return [part for part in text.split(",") if part]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("experiment", nargs="?", default="all", choices=[*EXPERIMENTS, "all"])
    parser.add_argument("subject", nargs="?", default="attention", choices=["attention"], help="grid: of which kernels")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--only", nargs="*", type=_split, action="extend", help="names of workloads, by space or comma")
    parser.add_argument("--suite", nargs="*", choices=list(workloads.SUITES), help="models: which groups of workloads")
    parser.add_argument("--train", action="store_true", help="models: forward and backward")
    parser.add_argument("--dtype", default="", choices=["", *workloads.FORMATS], help="default: each model's own")
    parser.add_argument("--tf32", action="store_true", help="allow TF32 in matrix products")
    parser.add_argument(
        "--scale", default="", choices=["", "tiny", "small", "real", "single"], help="default: by the device"
    )
    parser.add_argument(
        "--factor", type=int, default=0, help="growth of the op-level workloads; default: by the device"
    )
    parser.add_argument(
        "--engines", nargs="*", type=_split, action="extend", help="NAME or NAME/MODE, e.g. flambeau/lite"
    )
    parser.add_argument("--cache", nargs="*", choices=CACHES, default=CACHES, help="compile_time")
    parser.add_argument(
        "--pin", nargs="*", type=int, metavar="CORE",
        help="models: each workload on a core of its own (of these, or of all), one thread, the engines in turn; all compile at once before",
    )  # fmt: skip
    parser.add_argument("--jobs", type=int, default=1, help="processes that compile at once; timing is always alone")
    parser.add_argument("--budget", type=float, default=1.0, help="seconds of timing per workload and engine")
    parser.add_argument("--deadline", type=float, help="start no process after this many seconds")
    parser.add_argument("--timeout", type=float, default=600.0, help="seconds of one process at most")
    parser.add_argument("--profile", action="store_true", help="add each workload's longest kernels to the records")
    parser.add_argument("--figure", default="median", choices=["median", "best", "host", "device_us", "kernels"])
    parser.add_argument("--json", type=Path, help="append every record to this file, one line each, as it comes")
    parser.add_argument("--resume", action="store_true", help="keep what --json has and run only what is missing")
    parser.add_argument("--table", type=Path, metavar="FILE", help="run nothing: print the tables of a --json file")
    return parser


def main() -> None:
    """Parse the command line, run, print, save."""
    args = _parser().parse_args()
    for name in ("only", "engines"):
        groups = getattr(args, name)
        setattr(args, name, [item for group in groups for item in group] if groups else None)
    if args.table:
        show(load(args.table), args.figure)
        return
    deadline = None if args.deadline is None else time.monotonic() + args.deadline
    cores = () if args.pin is None else args.pin or sorted(os.sched_getaffinity(0))
    runner = Runner(args.jobs, cores, args.json, args.resume, args.timeout, deadline)
    for name in CPU if args.experiment == "all" else [args.experiment]:
        EXPERIMENTS[name](args, runner)
    if objections(runner.records):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
