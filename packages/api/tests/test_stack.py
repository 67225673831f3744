"""How many compilers a graph gets, and what a compiled graph leaves for its caller."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import fx

import flambeau_autograd as autograd
import flambeau_runtime as runtime
from flambeau import stack
from flambeau.options import Options
from flambeau.stages import resolve_stages
from flambeau_capture import make_region


@pytest.mark.parametrize(
    ("allowed", "graphs", "workers", "each"),
    [
        (1, 1, 1, 1),
        (1, 2, 1, 1),
        (2, 1, 1, 2),
        (2, 2, 2, 1),
        (3, 2, 2, 1),
        (4, 2, 2, 2),
        (5, 2, 2, 2),
        (8, 1, 1, 8),
        (8, 2, 2, 4),
    ],
)
def test_compilers_are_shared_among_graphs(allowed: int, graphs: int, workers: int, each: int) -> None:
    """Together no more than were asked for, and none is left idle that makes a whole share."""
    found, config = stack._compilers(resolve_stages(Options({"compile_threads": allowed})), graphs)
    assert (found, config.compile_threads) == (workers, each)


def test_no_limit_builds_all_graphs_at_once() -> None:
    """With the runtime's own number of compilers for each."""
    stages = resolve_stages(Options())
    assert stack._compilers(stages, 2) == (2, stages.runtime)


@pytest.mark.parametrize("compiler", [stack.compile_aot_eager, lambda *given: stack.compile_stack(*given, Options())])
def test_a_compiled_graph_says_what_answers_in_its_place(compiler: Any) -> None:
    """Where the program raises, the caller asks it; it gives what eager gives."""
    answers = []

    def backend(gm: fx.GraphModule, inputs: list[Any]) -> Any:
        compiled = compiler(gm, inputs)
        answers.append(gm.meta["rescue"])
        return compiled

    x = torch.randn(3)
    assert torch.equal(make_region(lambda x: torch.relu(x) + 1, backend=backend)(x), torch.relu(x) + 1)
    with pytest.warns(RuntimeWarning, match="repeated in eager: RuntimeError: of the program"):
        (found,) = answers[0](RuntimeError("of the program"), x)
    assert torch.equal(found, torch.relu(x) + 1)


SIGNATURE = autograd.Signature(1, 1, 0, ())
EMPTY = runtime.Artifact(runtime.artifact.Program([], 0, 0, [], []))


@pytest.mark.parametrize("backward", [None, EMPTY])
def test_a_cached_graph_holds_its_artifacts_as_they_are(backward: runtime.Artifact | None) -> None:
    graph = stack.CompiledGraph(SIGNATURE, EMPTY, backward, ("s0 > 1",))
    data = graph.to_bytes()
    assert data.count(EMPTY.to_bytes()) == (1 if backward is None else 2)
    assert stack.CompiledGraph.from_bytes(data) == graph


@pytest.mark.parametrize("end", [0, 8, 20, -40])
def test_half_a_cached_graph_is_refused(end: int) -> None:
    data = stack.CompiledGraph(SIGNATURE, EMPTY, EMPTY).to_bytes()
    with pytest.raises(ValueError):
        stack.CompiledGraph.from_bytes(data[:end])
