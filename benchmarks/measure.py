"""One measurement in this process: `python -m benchmarks.measure '{"experiment": ..., "engine": ..., ...}'`.

In: a request as JSON. Out: one line of JSON on standard output. The runner starts one process per measurement, so that no
engine warms another up, and passes cache folders of its own through the environment.
"""

from __future__ import annotations

import json
import resource
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import torch

from . import engines, workloads


def _seconds_per_call(call: Callable[[], Any], budget: float) -> dict[str, float]:
    """Seconds of one call: the median and the best of batches that together last `budget` seconds."""
    for _ in range(5):
        call()
    start = time.perf_counter()
    call()
    once = max(time.perf_counter() - start, 1e-7)
    batch = max(1, int(0.01 / once))
    samples = []
    deadline = time.perf_counter() + budget
    while time.perf_counter() < deadline or len(samples) < 5:
        start = time.perf_counter()
        for _ in range(batch):
            call()
        samples.append((time.perf_counter() - start) / batch)
    return {"median": statistics.median(samples), "best": min(samples), "samples": len(samples)}


def _step(workload: workloads.Workload, function: Callable[..., Any]) -> Callable[[], Any]:
    """One call, with its backward when the workload trains."""
    args, kwargs = workload.args, workload.kwargs
    if not workload.train:
        return lambda: function(*args, **kwargs)
    model = workload.function
    assert isinstance(model, torch.nn.Module)

    def step() -> None:
        model.zero_grad(set_to_none=True)
        function(*args, **kwargs).backward()

    return step


def steady_state(request: dict[str, Any]) -> dict[str, Any]:
    """Seconds per call once everything is compiled, and the seconds of the first call."""
    workload = workloads.make(request["workload"], train=request.get("train", False))
    function = engines.compiled(request["engine"], workload.function)
    step = _step(workload, function)
    with torch.set_grad_enabled(workload.train):
        start = time.perf_counter()
        step()
        first = time.perf_counter() - start
        return {"first": first, **_seconds_per_call(step, request.get("budget", 1.0))}


def compile_time(request: dict[str, Any]) -> dict[str, Any]:
    """Seconds of the first call in this process, beyond one call of eager; the runner decides whether the disk cache is warm."""
    if request["workload"] == "small_graph":
        x = torch.randn(64, 64)
        workload = workloads.Workload(lambda x: torch.relu(x @ x + 1).sum(), (x,))
    else:
        workload = workloads.make(request["workload"], train=request.get("train", False))
    eager = _step(workload, workload.function)
    with torch.set_grad_enabled(workload.train):
        eager()
        start = time.perf_counter()
        eager()
        base = time.perf_counter() - start
        start = time.perf_counter()
        step = _step(workload, engines.compiled(request["engine"], workload.function))
        step()
        return {"first": time.perf_counter() - start - base}


class _Layers(torch.nn.Module):
    """Fifty small layers: what many parameters cost per call."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(8, 8) for _ in range(50))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = torch.relu(layer(x))
        return x


def overhead(request: dict[str, Any]) -> dict[str, Any]:
    """Seconds per call of a graph so small that only the way to it counts."""
    kind = request["workload"]
    grad = kind.endswith("with_grad")
    if kind.startswith("layers"):
        model: Callable[..., Any] = _Layers()
        x = torch.randn(2, 8)
    else:
        x = torch.randn(4, requires_grad=grad)

        def model(x: torch.Tensor) -> torch.Tensor:
            return x * 2 + 1

    function = engines.compiled(request["engine"], model)
    with torch.set_grad_enabled(grad):
        return _seconds_per_call(lambda: function(x), request.get("budget", 1.0))


def memory(request: dict[str, Any]) -> dict[str, Any]:
    """Peak resident bytes that one step adds to what the process holds before it (steady state, after compilation)."""
    workload = workloads.make(request["workload"], train=request.get("train", False))
    step = _step(workload, engines.compiled(request["engine"], workload.function))
    with torch.set_grad_enabled(workload.train):
        step()
        step()
        with torch.profiler.profile(profile_memory=True, activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
            step()
    level = peak = 0
    events = [e for e in profile.profiler.kineto_results.events() if e.name() == "[memory]"]
    for event in sorted(events, key=lambda event: event.start_ns()):
        level += event.nbytes()
        peak = max(peak, level)
    return {"peak_bytes": peak, "rss_kib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss}


EXPERIMENTS = {"steady_state": steady_state, "compile_time": compile_time, "overhead": overhead, "memory": memory}


def main() -> None:
    """Run the request of the command line and print its result."""
    request = json.loads(sys.argv[1])
    torch.manual_seed(0)
    try:
        result = EXPERIMENTS[request["experiment"]](request)
    except Exception as error:
        result = {"error": f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"[:300]}
    print(json.dumps({**request, **result}))


if __name__ == "__main__":
    main()
