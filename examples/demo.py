"""Five transformers models, compiled, run and trained beside eager; two tables at the end, 100 columns wide.

Run `nox -s demo`, or `python examples/demo.py [MODEL ...]`. Every model runs twice in a process of its own, first with an empty
cache folder, then with the one that the first run filled, so that "first call" is shown cold and warm. Speeds are medians; where the
machine was busy, or the calls of one kind took too different times, there is a "-" instead.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402
from benchmarks.surroundings import MOST_LOAD, watched  # noqa: E402
from tests.comparison import gradient_errors, gradients, relative_error  # noqa: E402
from tests.models import zoo  # noqa: E402

STEPS = 20
#: The upper quartile of calls over the lower one, above which a median says little.
MOST_SPREAD = 1.25


def median_and_spread(samples: list[float]) -> tuple[float, float]:
    """The median in milliseconds, and the upper quartile over the lower one."""
    ordered = sorted(samples)
    low, high = ordered[len(ordered) // 4], ordered[3 * len(ordered) // 4]
    return statistics.median(ordered) * 1e3, high / low


def milliseconds(call: Callable[[], Any], budget: float = 0.6) -> tuple[float, float]:
    """Median and spread of repeated calls within a budget."""
    samples: list[float] = []
    deadline = time.perf_counter() + budget
    while time.perf_counter() < deadline or len(samples) < 4:
        samples.append(seconds(call))
    return median_and_spread(samples)


def speed_up(eager: tuple[float, float], ours: tuple[float, float], others: float) -> str:
    """How many times as fast, or "-" where it could not be measured: other processes took `others` cores, or times vary."""
    if others > MOST_LOAD or max(eager[1], ours[1]) > MOST_SPREAD:
        return "-"
    return f"{eager[0] / ours[0]:.2f}x"


def train(model: torch.nn.Module, call: Callable[..., Any], case: zoo.Case) -> tuple[float, float, tuple[float, float]]:
    """The first loss, the loss after `STEPS` AdamW steps in training mode, and median and spread of one step's milliseconds."""
    model.train()
    torch.manual_seed(0)  # for dropout
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    samples, losses = [], []
    for _ in range(STEPS):
        start = time.perf_counter()
        optimizer.zero_grad()
        loss = case.loss(call(**case.inputs))
        loss.backward()
        optimizer.step()
        samples.append(time.perf_counter() - start)
        losses.append(loss.detach())
    # The first steps compile, or fill the allocator's pools.
    return float(losses[0]), float(losses[-1]), median_and_spread(samples[STEPS // 4 :])


def seconds(call: Callable[[], Any]) -> float:
    """How long one call takes."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def with_empty_cache(name: str) -> dict[str, Any]:
    """First calls, results beside eager's and training of one model in this process."""
    import flambeau

    case = zoo.make(name, "small")
    expected = case.outputs(case.model(**case.inputs))
    case.loss(case.model(**case.inputs)).backward()
    expected_gradients = gradients(case.model)
    case.model.zero_grad()

    compiled = flambeau.compile(case.model, fullgraph=True)
    with torch.no_grad():
        first = seconds(lambda: compiled(**case.inputs))
        actual = case.outputs(compiled(**case.inputs))
    first_train = seconds(lambda: case.loss(compiled(**case.inputs)).backward())
    gradient_error = max(gradient_errors(gradients(case.model), expected_gradients).values())

    twin = copy.deepcopy(case.model)
    start_loss, eager_loss, eager_step = train(twin, twin, case)
    _, compiled_loss, compiled_step = train(case.model, compiled, case)

    explanation = flambeau.explain(twin)(**case.inputs)
    return {
        "model": name,
        "outputs": max(relative_error(a, e) for a, e in zip(actual, expected, strict=True)),
        "gradients": gradient_error,
        # Twenty steps drive a loss on one batch to almost nothing: it is compared at the scale it came down from.
        "loss": abs(compiled_loss - eager_loss) / abs(start_loss),
        "graphs": explanation.graph_count,
        "breaks": explanation.graph_break_count,
        "kernels": sum(p.kernels for p in explanation.programs),
        "fused": sum(p.fused_operations for p in explanation.programs),
        "first": first,
        "first_train": first_train,
        "step_ms": compiled_step,
        "eager_step_ms": eager_step,
    }


def with_filled_cache(name: str) -> dict[str, Any]:
    """First calls and the time of a call, of one model in this process."""
    import flambeau

    case = zoo.make(name, "small")
    compiled = flambeau.compile(case.model, fullgraph=True)
    with torch.no_grad():
        eager_ms = milliseconds(lambda: case.model(**case.inputs))
        first = seconds(lambda: compiled(**case.inputs))
        compiled_ms = milliseconds(lambda: compiled(**case.inputs))
    case.loss(case.model(**case.inputs)).backward()
    first_train = seconds(lambda: case.loss(compiled(**case.inputs)).backward())
    return {"first": first, "first_train": first_train, "ms": compiled_ms, "eager_ms": eager_ms}


def in_process(name: str, cache: str, *flags: str) -> dict[str, Any]:
    """One model in a fresh process with its cache in `cache`; `flags` are those of this program."""
    environment = {**os.environ, "FLAMBEAU_CACHE_DIR": cache}
    done = subprocess.run(
        [sys.executable, __file__, "--one", name, *flags], env=environment, capture_output=True, text=True, cwd=ROOT
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode or not lines:
        raise SystemExit(f"{name} failed:\n{done.stdout}\n{done.stderr}")
    result: dict[str, Any] = json.loads(lines[-1])
    return result


def show(rows: list[tuple[dict[str, Any], dict[str, Any]]]) -> None:
    """Print the tables."""
    from rich.console import Console
    from rich.table import Table

    console = Console(width=100)
    right = Table(title="Right? Largest errors relative to eager; what was made of each model")
    fast = Table(title="Fast? Seconds of first calls; medians in ms, and how many times as fast as eager")
    shown = (
        (right, ("model", "outputs", "gradients", f"loss@{STEPS}", "graphs", "breaks", "kernels", "ops fused")),
        (fast, ("model", "first cold", "warm", "train cold", "warm", "ms", "speed-up", "train ms", "speed-up")),
    )
    for table, headings in shown:
        for heading in headings:
            table.add_column(heading, justify="left" if heading == "model" else "right")
    for cold, warm in rows:
        right.add_row(
            cold["model"], f"{cold['outputs']:.1e}", f"{cold['gradients']:.1e}", f"{cold['loss']:.1e}",
            str(cold["graphs"]), str(cold["breaks"]), str(cold["kernels"]), str(cold["fused"]),
        )  # fmt: skip
        fast.add_row(
            cold["model"], f"{cold['first']:.2f}", f"{warm['first']:.2f}", f"{cold['first_train']:.2f}",
            f"{warm['first_train']:.2f}", f"{warm['ms'][0]:.2f}", speed_up(warm["eager_ms"], warm["ms"], warm["others"]),
            f"{cold['step_ms'][0]:.2f}", speed_up(cold["eager_step_ms"], cold["step_ms"], cold["others"]),
        )  # fmt: skip
    console.print(right)
    console.print(fast)
    others = max(process["others"] for row in rows for process in row)
    if others > MOST_LOAD:
        console.print(
            f"Other processes took up to {others:.1f} cores. Where they did no speed-up is shown, and seconds are too many."
        )
    console.print(
        "Next: python examples/quickstart.py; your own model: flambeau.compile(model);\n"
        "what was made of it: print(flambeau.explain(model)(inputs)); docs/guide/getting-started.md",
        highlight=False,
    )


def main() -> int:
    """Run the models; exit status 1 when one differs from eager."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", default=list(zoo.ONE_GRAPH), help="names; default: the five")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--warm", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        with watched() as surroundings:
            result = with_filled_cache(arguments.one) if arguments.warm else with_empty_cache(arguments.one)
        print(json.dumps(result | surroundings))
        return 0
    rows, started = [], time.perf_counter()
    for number, name in enumerate(arguments.models, 1):
        with tempfile.TemporaryDirectory() as cache:
            results = []
            for stage, flags in (("compiles, runs, trains", ()), ("starts again with a filled cache", ("--warm",))):
                spent = time.perf_counter() - started
                print(
                    f"[{number}/{len(arguments.models)}, {spent:3.0f} s] {name}: {stage} ...",
                    file=sys.stderr,
                    flush=True,
                )
                results.append(in_process(name, cache, *flags))
            rows.append((results[0], results[1]))
    show(rows)
    wrong = [c["model"] for c, _ in rows if not (c["outputs"] < 1e-4 and c["gradients"] < 1e-3 and c["loss"] < 1e-3)]
    if wrong:
        print(f"different from eager: {', '.join(wrong)}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
