"""Five transformers models, compiled, run and trained beside eager; one table at the end.

Run `nox -s demo`, or `python examples/demo.py [MODEL ...]`. Every model runs twice in a process of its own, first with an empty
cache folder, then with the one that the first run filled, so that "first call" is shown cold and warm.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
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
from tests.comparison import gradient_errors, gradients, relative_error  # noqa: E402
from tests.models import zoo  # noqa: E402

STEPS = 20


def milliseconds(call: Callable[[], Any], budget: float = 0.6) -> float:
    """The best of repeated calls within a budget: the least disturbed one."""
    best, deadline = float("inf"), time.perf_counter() + budget
    while time.perf_counter() < deadline:
        start = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - start)
    return best * 1e3


def train(model: torch.nn.Module, call: Callable[..., Any], case: zoo.Case) -> tuple[float, float, float]:
    """The first loss, the loss after `STEPS` AdamW steps in training mode, and the best milliseconds of one step."""
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    best, losses = float("inf"), []
    for _ in range(STEPS):
        start = time.perf_counter()
        optimizer.zero_grad()
        loss = case.loss(call(**case.inputs))
        loss.backward()
        optimizer.step()
        best = min(best, time.perf_counter() - start)
        losses.append(loss.detach())
    return float(losses[0]), float(losses[-1]), best * 1e3


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
    """Print the table."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title="flambeau beside eager (max relative errors; seconds; ms)")
    headings = ("model", "outputs", "gradients", f"loss@{STEPS}", "graphs", "breaks", "kernels", "ops fused", "first cold",
                "warm", "first train cold", "warm", "ms", "speed-up", "train ms", "speed-up")  # fmt: skip
    for heading in headings:
        table.add_column(heading, justify="left" if heading == "model" else "right")
    for cold, warm in rows:
        table.add_row(
            cold["model"], f"{cold['outputs']:.1e}", f"{cold['gradients']:.1e}", f"{cold['loss']:.1e}",
            str(cold["graphs"]), str(cold["breaks"]), str(cold["kernels"]), str(cold["fused"]),
            f"{cold['first']:.2f}", f"{warm['first']:.2f}", f"{cold['first_train']:.2f}", f"{warm['first_train']:.2f}",
            f"{warm['ms']:.2f}", f"{warm['eager_ms'] / warm['ms']:.2f}x",
            f"{cold['step_ms']:.2f}", f"{cold['eager_step_ms'] / cold['step_ms']:.2f}x",
        )  # fmt: skip
    Console(width=200).print(table)


def main() -> int:
    """Run the models; exit status 1 when one differs from eager."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", default=list(zoo.ONE_GRAPH), help="names; default: the five")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--warm", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(with_filled_cache(arguments.one) if arguments.warm else with_empty_cache(arguments.one)))
        return 0
    rows = []
    for name in arguments.models:
        with tempfile.TemporaryDirectory() as cache:
            print(f"{name} …", file=sys.stderr, flush=True)
            rows.append((in_process(name, cache), in_process(name, cache, "--warm")))
    show(rows)
    wrong = [c["model"] for c, _ in rows if not (c["outputs"] < 1e-4 and c["gradients"] < 1e-3 and c["loss"] < 1e-3)]
    if wrong:
        print(f"different from eager: {', '.join(wrong)}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
