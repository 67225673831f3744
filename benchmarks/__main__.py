"""`python -m benchmarks EXPERIMENT [--only NAME ...] [--json FILE]`: eager, torch.compile and flambeau side by side.

Experiments: overhead, compile_time, steady_state (ops), models, memory, all.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence

from . import runner, workloads

OVERHEAD = ("tiny", "tiny_with_grad", "layers50", "layers50_with_grad")


def _chosen(names: Sequence[str], only: Sequence[str] | None) -> list[str]:
    return [name for name in names if not only or name in only]


def overhead(args: argparse.Namespace) -> list[runner.Record]:
    """Microseconds per call where the graph itself costs next to nothing."""
    requests = [{"experiment": "overhead", "workload": name} for name in _chosen(OVERHEAD, args.only)]
    records = runner.side_by_side(requests)
    runner.table(records, "best", unit=1e6, title="per call, µs (best of batches)")
    return records


def compile_time(args: argparse.Namespace) -> list[runner.Record]:
    """Seconds of the first call, with an empty and with a filled disk cache."""
    names = _chosen(("small_graph", *workloads.MODELS), args.only)
    requests = [{"experiment": "compile_time", "workload": name, "train": args.train} for name in names]
    records = []
    for warm in (False, True):
        part = runner.side_by_side(requests, engines=("torch.compile", "flambeau"), warm=warm)
        runner.table(part, "first", title=f"first call, {'warm' if warm else 'cold'} cache, s")
        records += part
    return records


def steady_state(args: argparse.Namespace) -> list[runner.Record]:
    """Milliseconds per call of the op-level workloads."""
    requests = [{"experiment": "steady_state", "workload": name} for name in _chosen(workloads.OPS, args.only)]
    records = runner.side_by_side(requests)
    runner.table(records, "best", unit=1e3, title="op-level workloads, ms per call (best of batches)")
    return records


def models(args: argparse.Namespace) -> list[runner.Record]:
    """Milliseconds per call of the models; with --train, forward and backward."""
    names = _chosen(workloads.MODELS, args.only)
    requests = [{"experiment": "steady_state", "workload": name, "train": args.train} for name in names]
    records = runner.side_by_side(requests)
    runner.table(records, "best", unit=1e3, title="models, ms per call (best of batches)")
    return records


def memory(args: argparse.Namespace) -> list[runner.Record]:
    """Peak MiB that one call allocates."""
    names = _chosen((*workloads.OPS, *workloads.MODELS), args.only)
    requests = [{"experiment": "memory", "workload": name, "train": args.train} for name in names]
    records = runner.side_by_side(requests)
    runner.table(records, "peak_bytes", unit=2**-20, title="peak memory of one call, MiB")
    return records


EXPERIMENTS: dict[str, Callable[[argparse.Namespace], list[runner.Record]]] = {
    "overhead": overhead,
    "compile_time": compile_time,
    "steady_state": steady_state,
    "models": models,
    "memory": memory,
}


def main() -> None:
    """Parse the command line, run, print, save."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("experiment", nargs="?", default="all", choices=[*EXPERIMENTS, "all"])
    parser.add_argument("--only", nargs="*", help="names of workloads")
    parser.add_argument("--train", action="store_true", help="models: forward and backward")
    parser.add_argument("--json", help="write every record to this file")
    args = parser.parse_args()
    records: list[runner.Record] = []
    for name in EXPERIMENTS if args.experiment == "all" else [args.experiment]:
        records += EXPERIMENTS[name](args)
    runner.save(records, args.json)


if __name__ == "__main__":
    main()
