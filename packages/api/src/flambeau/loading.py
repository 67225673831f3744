"""From the artifact of one half of a graph to the callable that runs it, under the options of the region.

In: an artifact, its constants, the options. Out: a callable `(*inputs) -> results`: the executor's, with CUDA graphs where those are asked for, and
with what the options want to see of each call around it. Options that are off leave nothing around it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch

import flambeau_runtime as runtime
from flambeau_runtime.artifact import InputSpec
from flambeau_runtime.cache import Store

from .errors import NotFinite, NotRecorded
from .log import logger
from .options import Options
from .records import Recorder
from .stages import Stages
from .trace.hooks import reporting

Run = Callable[..., Any]


def load_program(
    artifact: runtime.Artifact,
    constants: list[torch.Tensor],
    kind: str,
    options: Options,
    stages: Stages,
    recorder: Recorder,
    store: Store,
) -> Run:
    """The program as a callable. `kind`: forward, backward or folding.

    Raises:
        NotRecorded: under `triton.cudagraph_or_error`, where a part of the program cannot be a CUDA graph.
    """
    how: dict[str, Any] = {
        "constants": constants,
        "executor": stages.runtime.executor,
        "config": stages.runtime,
        "store": store,
        "threads": None if options["cpp.threads"] == -1 else options["cpp.threads"],
    }
    _show(artifact, kind, options, stages)
    # What folding gives stays for many calls; what is recorded lies in memory that each call uses.
    if kind == "folding" or not stages.is_recorded(kind, options["triton.cudagraphs"]):
        run: Run = runtime.load(artifact, **how)
    else:
        run = _load_graphed(artifact, kind, options, stages, recorder, how)
    if options["nan_asserts"]:
        run = _held_to_numbers(run, kind)
    return run


def _show(artifact: runtime.Artifact, kind: str, options: Options, stages: Stages) -> None:
    """What the options want to see of a program's kernels."""
    pattern = options["profile_bandwidth_regex"]
    if not (options["benchmark_kernel"] or options["profile_bandwidth"] or pattern):
        return
    # Not at the top: most programs are not measured.
    from .insight import kernel_benchmark

    if options["benchmark_kernel"]:
        path = kernel_benchmark.keep(artifact, kind, stages.runtime.folder() / "programs")
        logger.info("program_kept", artifact="benchmarking", program=kind, path=str(path))
    if options["profile_bandwidth"] or pattern:
        times = kernel_benchmark.benchmark(artifact, "" if pattern == "1" else pattern)
        if times:
            sys.stderr.write(f"{kind} {artifact.digest[:16]}\n{kernel_benchmark.table(times)}\n")


def _load_graphed(
    artifact: runtime.Artifact, kind: str, options: Options, stages: Stages, recorder: Recorder, how: dict[str, Any]
) -> Run:
    # Not at the top: most regions use no CUDA graphs.
    from flambeau_runtime import graphs

    strict = options["triton.cudagraph_or_error"]

    def report(decision: graphs.GraphDecision) -> None:
        recorder.cuda_graphs.append(decision)
        if strict and decision.kind in ("plain", "failed"):
            raise NotRecorded(f"{decision}")

    reason = _left_alone(artifact, options)
    if reason:
        report(graphs.GraphDecision("plain", reason, kind))
        return runtime.load(artifact, **how)
    sizes = options["triton.cudagraph_capture_sizes"]
    settings = graphs.GraphSettings(
        warmups=0 if options["triton.skip_cudagraph_warmup"] else 1,
        sizes_warned=options["triton.cudagraph_dynamic_shape_warn_limit"],
        capture_sizes=None if sizes is None else frozenset(sizes),
        splits=options["graph_partition"],
        collects=stages.runtime.force_cudagraph_gc,
    )
    return graphs.load_graphed(artifact, name=kind, report=reporting(report), settings=settings, **how)


def _left_alone(artifact: runtime.Artifact, options: Options) -> str:
    """Why the options want no CUDA graph of the program, or nothing."""
    if options["triton.cudagraph_skip_dynamic_graphs"] and any(map(_changes, artifact.program.inputs)):
        return "sizes change, and triton.cudagraph_skip_dynamic_graphs is on"
    if not options["triton.cudagraph_support_input_mutation"] and any(spec.mutated for spec in artifact.program.inputs):
        return "it writes to an input, and triton.cudagraph_support_input_mutation is off"
    return ""


def _changes(spec: InputSpec) -> bool:
    """Whether an input is a number, or has a size that was not known when the program was compiled."""
    return spec.kind == "scalar" or any(type(size) is not int for size in spec.sizes or ())


def _held_to_numbers(run: Run, kind: str) -> Run:
    def checked(*inputs: Any) -> Any:
        results = run(*inputs)
        for place, value in enumerate(results):
            if isinstance(value, torch.Tensor) and (value.is_floating_point() or value.is_complex()):
                if not bool(torch.isfinite(value).all()):
                    raise NotFinite(f"result {place} of the {kind} program has nan or infinity")
        return results

    return checked
