"""Products that take less time than calling the library are loops; all others are its calls."""

from __future__ import annotations

import pytest
import torch
from tracing import lowered, traced, traced_on_cuda

from flambeau_inductor import compile_graph
from flambeau_inductor.ir.evaluate import run_graph
from flambeau_inductor.ir.graph import Graph
from flambeau_inductor.ir.loops import Extern
from flambeau_runtime import load
from flambeau_runtime.artifact import Call


@pytest.fixture(autouse=True)
def products_are_calls():
    """Not in this file."""


def is_called(graph: Graph) -> bool:
    return any(isinstance(operation, Extern) for operation in graph.operations)


def operands(*shapes, dtype=torch.float32):
    return [torch.randn(shape).to(dtype) for shape in shapes]


def linear(x, w, b):
    return torch.addmm(b, x, w.t())


#: Few and many rows, registers that are not full, one of everything, weights in both layouts, several matrices.
SMALL = {
    "rows": (torch.mm, [(8, 8), (8, 8)]),
    "odd": (torch.mm, [(3, 5), (5, 7)]),
    "one": (torch.mm, [(1, 1), (1, 1)]),
    "one column": (torch.mm, [(6, 400), (400, 1)]),
    "transposed left": (lambda x, w: torch.mm(x.t(), w), [(9, 6), (9, 16)]),
    "linear": (linear, [(4, 24), (16, 24), (16,)]),
    "a matrix as bias": (torch.addmm, [(4, 6), (4, 5), (5, 6)]),
    "several": (torch.bmm, [(3, 4, 8), (3, 8, 5)]),
    "many": (torch.bmm, [(32, 8, 8), (32, 8, 8)]),
    "several with a bias": (torch.baddbmm, [(3, 1, 5), (3, 4, 8), (3, 8, 5)]),
}


@pytest.mark.parametrize("name", SMALL)
def test_small_products_are_loops(name):
    function, shapes = SMALL[name]
    inputs = operands(*shapes)
    graph = lowered(traced(function, *inputs))
    assert not is_called(graph)
    torch.testing.assert_close(run_graph(graph, inputs)[0], function(*inputs))
    assert is_called(lowered(traced_on_cuda(function, *inputs)))


STAY = {
    "much work": (torch.mm, [(64, 512), (512, 64)]),
    "many rows of partly used registers": (torch.mm, [(64, 64), (64, 33)]),
    "long rows of both": (lambda x, w: torch.mm(x, w.t()), [(32, 256), (64, 256)]),
    "terms side by side nowhere": (lambda x, w: torch.mm(x.t(), w.t()), [(8, 4), (4, 8)]),
    "a column of many": (lambda x, w: torch.mm(x, w[:, :1]), [(8, 64), (64, 3)]),
    "factors": (lambda x, w, b: torch.addmm(b, x, w, beta=0.5), [(4, 4), (4, 4), (4,)]),
    "no terms": (torch.mm, [(3, 0), (0, 4)]),
    "integers": (lambda x, w: torch.mm(x.to(torch.int32), w.to(torch.int32)), [(4, 4), (4, 4)]),
}


@pytest.mark.parametrize("name", STAY)
def test_others_are_calls(name):
    function, shapes = STAY[name]
    assert is_called(lowered(traced(function, *operands(*shapes))))


def test_sizes_known_at_run_time_are_calls():
    assert is_called(lowered(traced(torch.mm, *operands((4, 8), (8, 8)), mode="symbolic")))


def layers(x, w, b, v):
    return torch.relu(torch.addmm(b, x, w.t())) @ v


@pytest.mark.parametrize(
    ("dtype", "tolerance"),
    [(torch.float32, 1e-5), (torch.float64, 1e-12), (torch.bfloat16, 2e-2), (torch.float16, 2e-3)],
)
def test_kernels_give_what_eager_gives(dtype, tolerance):
    """Also where terms are no numbers: they reach the results that they are terms of, and no others."""
    inputs = operands((5, 24), (19, 24), (19,), (19, 21), dtype=dtype)
    artifact = compile_graph(traced(layers, *inputs), inputs, {"verify": True})
    assert not any(isinstance(instruction, Call) for instruction in artifact.program.instructions)
    assert len(artifact.kernels) == 2
    run = load(artifact)
    for change in (None, float("nan"), float("inf")):
        if change is not None:
            inputs[0][2, 3] = change
        wide = [value.double() for value in inputs]
        torch.testing.assert_close(
            run(*inputs)[0].double(), layers(*wide), rtol=tolerance, atol=10 * tolerance, equal_nan=True
        )
