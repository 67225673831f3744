"""One measurement in this process: `python -m benchmarks.measure '{"experiment": ..., "engine": ..., ...}'`.

In: a request as JSON. Out: one line of JSON on standard output for each record. The runner starts one process per measurement,
so that no engine warms another up, and passes cache folders of its own through the environment. With `--gated`, a line that
starts with "@" asks the runner for leave to compile or to be timed, and a line on standard input grants it.
"""

from __future__ import annotations

import functools
import json
import os
import resource
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from tests.comparison import gradient_errors, relative_error
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from . import attention_grid, clock, ecosystem, engines, workloads
from .surroundings import watched

Request = dict[str, Any]
GATED = "--gated" in sys.argv
#: Where lines for the runner go: standard output, until what a workload prints is sent elsewhere.
_lines = sys.stdout
#: How often each engine is timed where they take turns on a core.
_TURNS = 7


def leave_to(stage: str) -> None:
    """Wait until the runner lets this process `compile` (which uses the device a little) or be timed (alone)."""
    if GATED:
        print(f"@{stage}", file=_lines, flush=True)
        sys.stdin.readline()


def _workload(request: Request) -> workloads.Workload:
    device = request.get("device", "cpu")
    return workloads.make(
        request["workload"],
        train=request.get("train", False),
        scale=request.get("scale") or workloads.scale_for(device),
        device=device,
        dtype=request.get("dtype", ""),
        factor=request.get("factor", 1),
    )


def _step(workload: workloads.Workload, function: Callable[..., Any]) -> Callable[[], Any]:
    """One call, with its backward when the workload trains."""
    args, kwargs = workload.args, workload.kwargs
    if not workload.train:
        return lambda: function(*args, **kwargs)
    model = workload.function
    assert isinstance(model, nn.Module)

    def step() -> Tensor:
        model.zero_grad(set_to_none=True)
        loss: Tensor = function(*args, **kwargs)
        loss.backward()
        return loss.detach()

    return step


def _snapshot(workload: workloads.Workload, result: Any) -> tuple[list[Tensor], dict[str, Tensor | None]]:
    """A result's floating tensors and the gradients it left, on the CPU."""
    leaves = [leaf for leaf in pytree.tree_leaves(result) if isinstance(leaf, Tensor) and leaf.is_floating_point()]
    grads: dict[str, Tensor | None] = {}
    if workload.train and isinstance(workload.function, nn.Module):
        grads = {name: None if p.grad is None else p.grad.cpu() for name, p in workload.function.named_parameters()}
    return [leaf.detach().cpu().clone() for leaf in leaves], grads


def _buffers(workload: workloads.Workload) -> dict[str, Tensor]:
    model = workload.function
    return {name: b.clone() for name, b in model.named_buffers()} if isinstance(model, nn.Module) else {}


def _restore(workload: workloads.Workload, buffers: dict[str, Tensor]) -> None:
    if isinstance(workload.function, nn.Module):
        with torch.no_grad():
            for name, buffer in workload.function.named_buffers():
                buffer.copy_(buffers[name])


def _errors(actual: Any, expected: Any) -> dict[str, float]:
    """Largest relative errors of outputs and, in training, of gradients."""
    (ours, our_grads), (theirs, their_grads) = actual, expected
    if len(ours) != len(theirs):
        return {"output_error": float("inf")}
    found = {"output_error": max((relative_error(a, e) for a, e in zip(ours, theirs, strict=True)), default=0.0)}
    if their_grads:
        found["gradient_error"] = max(gradient_errors(our_grads, their_grads).values())
    return found


def steady_state(request: Request) -> Iterator[Request]:
    """First call, errors beside eager, peak memory and seconds per call once everything is compiled."""
    device = request.get("device", "cpu")
    if request.get("tf32"):
        torch.backends.cuda.matmul.allow_tf32 = True
    _workload({**request, "device": "cpu", "scale": "tiny"})  # what it imports is not waited for under the gate
    leave_to("compile")
    workload = _workload(request)
    with torch.set_grad_enabled(workload.train):
        buffers = _buffers(workload)
        torch.manual_seed(0)
        expected = _snapshot(workload, _step(workload, workload.function)())
        _restore(workload, buffers)
        del buffers
        torch.manual_seed(0)
        with watched() as surroundings:
            start = time.perf_counter()
            step = _step(workload, engines.compiled(request["engine"], workload.function))
            result = step()
            clock.wait(device)
            first = time.perf_counter() - start
        found = _errors(_snapshot(workload, result), expected)
        del result, expected
        for _ in range(2):
            step()
        clock.wait(device)
        clock.give_back(device)  # others compile meanwhile
        leave_to("time")
        rounds = 1
        if "core" in request:  # engines take turns on it
            os.sched_setaffinity(0, {request["core"]})
            rounds = _TURNS
        memory = clock.peak_bytes(step, device)
        turn = functools.partial(leave_to, "time")
        yield {
            "first": first,
            "first_others": surroundings["others"],
            **found,
            **memory,
            **clock.seconds_per_call(step, device, request.get("budget", 1.0), rounds, turn),
            **(clock.kernels(step, device) if request.get("profile") else {}),
        }


#: The smallest program of the table of first calls, and what is compiled before one for which the caches are cold, not new.
_GRAPHS: dict[str, Callable[..., Any]] = {
    "small_graph": lambda x: torch.relu(x @ x + 1).sum(),
    "another_graph": lambda x: torch.tanh(x - 1).mean(0),
}


def compile_time(request: Request) -> Iterator[Request]:
    """Seconds of the first call in this process, beyond one call of eager; the runner decides what is in the caches."""
    device = request.get("device", "cpu")
    leave_to("compile")
    if request["workload"] in _GRAPHS:
        x = torch.randn(64, 64, device=device)
        workload = workloads.Workload(_GRAPHS[request["workload"]], (x,))
    else:
        workload = _workload(request)
    eager = _step(workload, workload.function)
    with torch.set_grad_enabled(workload.train):
        eager()
        base = clock.seconds_of(eager, device)
        with watched() as surroundings:
            start = time.perf_counter()
            step = _step(workload, engines.compiled(request["engine"], workload.function))
            step()
            clock.wait(device)
            first = time.perf_counter() - start - base
        yield {"first": first, **surroundings}


class _Layers(nn.Module):
    """Fifty small layers: what many parameters cost per call."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(50))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = torch.relu(layer(x))
        return x


def overhead(request: Request) -> Iterator[Request]:
    """Seconds per call of a graph so small that only the way to it counts; two inputs take turns, so that a CUDA graph copies."""
    kind, device = request["workload"], request.get("device", "cpu")
    grad = kind.endswith("with_grad")
    leave_to("compile")
    with torch.device(device):
        if kind.startswith("layers"):
            model: Callable[..., Any] = _Layers()
            first, second = torch.randn(2, 8), torch.randn(2, 8)
        else:
            first, second = torch.randn(4, requires_grad=grad), torch.randn(4, requires_grad=grad)

            def model(x: Tensor) -> Tensor:
                return x * 2 + 1

    function = engines.compiled(request["engine"], model)

    def both() -> None:
        function(first)
        function(second)

    with torch.set_grad_enabled(grad):
        for _ in range(5):
            both()
        leave_to("time")
        figures = clock.seconds_per_call(both, device, request.get("budget", 1.0))
        yield {key: value if key == "samples" else value / 2 for key, value in figures.items()}


def memory(request: Request) -> Iterator[Request]:
    """Peak bytes of one step (steady state, after compilation)."""
    device = request.get("device", "cpu")
    leave_to("compile")
    workload = _workload(request)
    step = _step(workload, engines.compiled(request["engine"], workload.function))
    with torch.set_grad_enabled(workload.train):
        step()
        step()
        leave_to("time")
        peak = clock.peak_bytes(step, device)
        yield {**peak, "rss_kib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss}


def _copy_rate(device: str, factor: int) -> float:
    """Bytes per second of a device-to-device copy, reading and writing counted: what this device can do."""
    source = torch.randn(4096 * factor, 2048, device=device)
    target = torch.empty_like(source)
    return 2 * source.nbytes / clock.device_seconds(lambda: target.copy_(source), device)


def bandwidth(request: Request) -> Iterator[Request]:
    """Bytes, device time and share of the copy bandwidth of every memory-bound op-level workload, one record each."""
    device, factor = request.get("device", "cpu"), request.get("factor", 1)
    for name in request["workloads"]:
        leave_to("compile")
        engines.reset(request["engine"])
        record: Request = {"workload": name}
        try:
            workload = workloads.make(name, device=device, factor=factor)
            assert workload.program is not None
            with torch.no_grad():
                expected = _snapshot(workload, workload.function(*workload.args))
                step = _step(workload, engines.compiled(request["engine"], workload.function))
                result = step()
                record |= _errors(_snapshot(workload, result), expected)
                record["bytes"] = workload.program.bytes_moved(result)
                del result, expected
                leave_to("time")
                record["copy_rate"] = _copy_rate(device, factor)
                record["device_seconds"] = clock.device_seconds(step, device)
                record["share"] = record["bytes"] / record["device_seconds"] / record["copy_rate"]
                if request.get("profile"):
                    record |= clock.kernels(step, device)
        except Exception as error:
            record["error"] = _short(error)
        yield record
        workload = step = None
        if device == "cuda":
            torch.cuda.empty_cache()


def _varied(workload: workloads.Workload, number: int) -> workloads.Workload:
    """The same call with other values in its floating inputs."""
    generator = torch.Generator().manual_seed(number)

    def other(value: Tensor) -> Tensor:
        if not value.is_floating_point():
            return value.roll(number, -1)
        return torch.randn(value.shape, generator=generator).to(value)

    args, kwargs = pytree.tree_map_only(Tensor, other, (workload.args, workload.kwargs))
    return workloads.Workload(workload.function, args, kwargs, workload.train)


def varied(request: Request) -> Iterator[Request]:
    """The largest error over calls whose inputs vary, with every earlier output kept alive and looked at only at the end."""
    leave_to("compile")
    workload = _workload(request)
    function = engines.compiled(request["engine"], workload.function)
    kept, expected = [], []
    with torch.set_grad_enabled(workload.train):
        for number in range(request.get("calls", 100)):
            one = _varied(workload, number)
            buffers = _buffers(one)
            torch.manual_seed(number)
            expected.append(_snapshot(one, _step(one, one.function)()))
            _restore(one, buffers)
            torch.manual_seed(number)
            result = _step(one, function)()
            kept.append((result, _snapshot(one, ())[1]))
        worst: dict[str, float] = {}
        for (result, grads), right in zip(kept, expected, strict=True):
            found = _errors((_snapshot(workload, result)[0], grads), right)
            worst = {key: max(value, worst.get(key, 0.0)) for key, value in found.items()}
    yield {**worst, "calls": len(kept)}


def attention(request: Request) -> Iterator[Request]:
    """Device seconds of the grid of attention, one record for each case."""
    yield from attention_grid.measured(request, leave_to)


def libraries(request: Request) -> Iterator[Request]:
    """A program of `examples/ecosystem`."""
    yield from ecosystem.measured(request, leave_to)


EXPERIMENTS = {
    "attention": attention,
    "ecosystem": libraries,
    "steady_state": steady_state,
    "compile_time": compile_time,
    "overhead": overhead,
    "memory": memory,
    "bandwidth": bandwidth,
    "varied": varied,
}


def _short(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else ''}"[:300]


def main() -> None:
    """Run the request of the command line and print its records."""
    global _lines
    request = json.loads(sys.argv[1])
    # A workload may print dicts, as `Trainer` does, which read like records.
    _lines = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    torch.manual_seed(0)
    try:
        for record in EXPERIMENTS[request["experiment"]](request):
            print(json.dumps({**request, **record}), file=_lines, flush=True)
    except Exception as error:
        print(json.dumps({**request, "error": _short(error)}), file=_lines, flush=True)


if __name__ == "__main__":
    main()
