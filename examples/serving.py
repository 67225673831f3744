"""Serving without a compiler in the process: compile once, save the artifact, load it elsewhere, call it from many threads.

Run it with `python examples/serving.py`. Only flambeau-inductor (to make the artifact) and flambeau-runtime (to run it) are used.
"""

from __future__ import annotations

import logging
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import structlog
import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.fx.experimental.proxy_tensor import make_fx

import flambeau_inductor
import flambeau_runtime

# The packages log through structlog and leave its configuration to the program; `import flambeau` would configure it.
structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))

BATCH, WIDTH = 8, 32


def build(model: nn.Module, file: Path) -> None:
    """Trace the model to ATen, compile it and write one file: program, kernel sources and their binaries.

    Weights are inputs of the program, so the file stays small and one program serves many checkpoints.
    """
    names = [name for name, _ in model.named_parameters()]

    def call(x: Tensor, *weights: Tensor) -> tuple[Tensor]:
        return (functional_call(model, dict(zip(names, weights, strict=True)), (x,)),)

    inputs = [torch.randn(BATCH, WIDTH), *model.parameters()]
    with torch.no_grad():
        gm = make_fx(call, tracing_mode="fake", decomposition_table=_decompositions())(*inputs)
    fakes = [node.meta["val"] for node in gm.graph.nodes if node.op == "placeholder"]
    artifact = flambeau_inductor.compile_graph(gm, fakes)
    flambeau_runtime.build_libraries(artifact).save(file)


def _decompositions() -> dict[Any, Any]:
    return {op: rule for op, rule in flambeau_inductor.decompositions().items() if rule is not None}


def serve(file: Path, weights: list[Tensor], requests: list[Tensor]) -> list[Tensor]:
    """Answer the requests from four threads with one loaded program; it has no state between calls."""
    run = flambeau_runtime.load(flambeau_runtime.Artifact.load(file))
    with torch.no_grad(), ThreadPoolExecutor(max_workers=4) as pool:
        return list(pool.map(lambda x: run(x, *weights)[0], requests))


def main() -> None:
    """Build, serve and compare with eager."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(WIDTH, 64), nn.GELU(), nn.LayerNorm(64), nn.Linear(64, 4), nn.Softmax(dim=-1)
    ).eval()
    requests = [torch.randn(BATCH, WIDTH) for _ in range(100)]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "model.flambeau"
        build(model, file)
        answers = serve(file, [p.detach() for p in model.parameters()], requests)
        print(f"{file.stat().st_size / 1024:.0f} KiB artifact, {len(answers)} answers")
    for x, answer in zip(requests, answers, strict=True):
        torch.testing.assert_close(answer, model(x).detach())


if __name__ == "__main__":
    main()
