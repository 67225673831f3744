"""One engine on one program, in this process: `python -m flambeau.cli.contestant JSON`, as `flambeau bench` starts it.

In: a request: `target`, `engine` (`NAME` or `NAME/MODE`), `train`, `seconds`, and `expected`, a file with eager's results. One without an engine writes that file. Out: one line of JSON on
standard output: what was measured, `bad` for what is wrong with the target, or `error` for what the engine raised. What the program prints goes to standard error.

The program is made once in a process, whose memory and time may not allow for two; the same for each, as random numbers begin alike. So eager's results, which a second program
gives (a call may change a model and its arguments), are those of a process of their own.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import random
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from flambeau_runtime.bench import measure, wait

from ..debugging.compare import distances, magnitudes
from .failures import BadInput, one_line, raised
from .programs import function_named, made_by

Call = Callable[[], Any]
_SEED = 0


def compiled(engine: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """A function or module under an engine."""
    name, _, mode = engine.partition("/")
    arguments: dict[str, Any] = {"mode": mode} if mode else {}
    if name == "eager":
        return function
    if name == "flambeau":
        import flambeau

        return flambeau.compile(function, **arguments)
    return torch.compile(function, **arguments)  # noqa: TID251 (what flambeau is timed beside)


def kept(target: str, train: bool, expected: str) -> dict[str, Any]:
    """Make the program, run it in eager and write its results to the file `expected`; what eager raises is the program's fault."""
    with torch.set_grad_enabled(train):
        function, args, kwargs = _made(target)
        step = _step(function, function, args, kwargs, train)
        _seed()
        try:
            results = _results(step())
        except BadInput:
            raise
        except Exception as error:
            raise raised(f"what {target}() returned", error) from error
    torch.save(results, expected)
    return {}


def measured(target: str, engine: str, train: bool, seconds: float, expected: str) -> dict[str, Any]:
    """Make the program and run it under the engine; its first results beside those in the file `expected`."""
    with torch.set_grad_enabled(train):
        function, args, kwargs = _made(target)
        device = _device(function, args, kwargs)
        start = time.perf_counter()
        step = _step(function, compiled(engine, function), args, kwargs, train)
        _seed()
        actual = _results(step())
        wait(device)
        first = time.perf_counter() - start
        step()
        times = measure(step, seconds=seconds, device=device)
        peak = _peak_bytes(step, device)
    # Our own file; results may be of classes of the program's.
    difference = _difference(actual, torch.load(expected, weights_only=False))
    return {
        "device": device,
        "first_seconds": first,
        "median": times.median,
        "low": times.low,
        "high": times.high,
        "samples": times.samples,
        "peak_bytes": peak,
        # JSON has no infinity.
        "difference": difference if math.isfinite(difference) else None,
    }


def _made(target: str) -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]:
    """The program, the same each time."""
    _seed()
    return made_by(function_named(target), target)


def _seed() -> None:
    torch.manual_seed(_SEED)
    random.seed(_SEED)
    with contextlib.suppress(ImportError):
        import numpy as np

        np.random.seed(_SEED)


def _step(owner: Any, function: Callable[..., Any], args: Any, kwargs: Any, train: bool) -> Call:
    if not train:
        return lambda: function(*args, **kwargs)

    def step() -> Any:
        if isinstance(owner, nn.Module):
            owner.zero_grad(set_to_none=True)
        results = function(*args, **kwargs)
        differentiable = [
            value for value in pytree.tree_leaves(results) if isinstance(value, Tensor) and value.requires_grad
        ]
        if not differentiable:
            raise BadInput("--train: no result has a gradient")
        torch.stack([value.float().sum() for value in differentiable]).sum().backward()
        return results

    return step


def _device(function: Any, args: Any, kwargs: Any) -> str:
    state = list(function.parameters()) if isinstance(function, nn.Module) else []
    tensors = [value for value in (*state, *pytree.tree_leaves((args, kwargs))) if isinstance(value, Tensor)]
    return next((value.device.type for value in tensors if value.device.type != "cpu"), "cpu")


def _results(results: Any) -> list[Tensor]:
    return [value.detach().cpu().clone() for value in pytree.tree_leaves(results) if isinstance(value, Tensor)]


def _difference(actual: list[Tensor], expected: list[Tensor]) -> float:
    """The largest difference of any result, relative to the largest number in it; infinite where one of both alone is nan or infinite."""
    if [value.shape for value in actual] != [value.shape for value in expected]:
        return float("inf")
    found = 0.0
    for ours, theirs in zip(actual, expected, strict=True):
        if theirs.numel():
            scale = float(magnitudes(theirs).max()) or 1.0
            found = max(found, float(distances(ours, theirs).max()) / scale)
    return found


def _peak_bytes(step: Call, device: str) -> int:
    """Of one call: on a GPU all live tensors, parameters among them; on a CPU what the call allocates."""
    if device == "cuda":
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        step()
        torch.cuda.synchronize()
        return torch.cuda.max_memory_allocated()
    with torch.profiler.profile(profile_memory=True, activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        step()
    level = peak = 0
    events = [event for event in profile.profiler.kineto_results.events() if event.name() == "[memory]"]
    for event in sorted(events, key=lambda event: event.start_ns()):
        level += event.nbytes()
        peak = max(peak, level)
    return peak


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """What was measured, or what went wrong."""
    try:
        return measured(**request) if "engine" in request else kept(**request)
    except BadInput as error:
        return {"bad": error.message}
    except Exception as error:
        return {"error": f"{type(error).__name__}: {one_line(error)}"}


def main() -> None:
    """Answer the request on the command line."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    print(json.dumps(answer(json.loads(sys.argv[1]))), file=answers, flush=True)


if __name__ == "__main__":
    main()
