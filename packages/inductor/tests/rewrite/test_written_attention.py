"""Attention written out becomes one template where it is attention, and equals eager; what only looks like it stays as it is."""

from __future__ import annotations

import math

import pytest
import torch
from tracing import traced, traced_on_cuda

pytest.importorskip("triton")

from attending import (
    TRITON,
    additive,
    band,
    capped,
    causal,
    distances,
    documents,
    einsum,
    empty_rows,
    grouped,
    operands,
    padded,
    plain,
    sliding,
    slopes,
)
from nesting import lowered

from flambeau_inductor.devices import H200
from flambeau_inductor.ir.evaluate import run_graph
from flambeau_inductor.ir.loops import Template
from flambeau_inductor.pipeline import compile_graph
from flambeau_runtime import load
from flambeau_runtime.artifact import Launch
from flambeau_runtime.triton_kernels import CompileRequest, compile_kernels

CASES = {
    "plain": (plain, operands(1, 2, 40, 24), (None, None)),
    "causal": (causal, operands(2, 2, 70, 16), (None, 0)),
    "additive": (additive, operands(2, 2, 70, 16, dtype=torch.bfloat16), (None, 0)),
    "sliding": (sliding, operands(1, 2, 200, 16), (-19, 0)),
    "more keys": (sliding, operands(1, 2, 30, 16, keys=64), (-19, 0)),
    "band": (band, operands(1, 2, 150, 16, dtype=torch.bfloat16), (-8, 8)),
    "einsum": (einsum, operands(2, 2, 33, 16), (None, None)),
    "slopes": (slopes, operands(1, 4, 130, 16), (None, 0)),
    "documents": (documents, operands(1, 2, 64, 16), (None, 0)),
    "one head of keys": (grouped, operands(2, 2, 40, 16, heads=1), (None, None)),
    "groups": (grouped, operands(2, 4, 40, 16, heads=2), (None, None)),
    "empty rows": (empty_rows, operands(1, 2, 80, 16), (None, -5)),
    "padded": (padded, operands(1, 2, 80, 16), (None, None)),
    "capped": (capped, operands(1, 2, 130, 16), (None, 0)),
    "single": (causal, operands(1, 2, 130, 16, dtype=torch.float32), (None, 0)),
}  # fmt: skip


def templates(gm, **options):
    graph = lowered(gm, rewritten=True, **{**TRITON, **options})
    return [operation for operation in graph.operations if isinstance(operation, Template)]


@pytest.mark.parametrize("name", CASES)
def test_results(name):
    function, inputs, window = CASES[name]
    gm = traced(function, *inputs)
    artifact = compile_graph(gm, inputs, TRITON)
    (got,) = load(artifact, executor="python")(*inputs)
    (template,) = templates(gm)
    assert template.facts["window"] == window
    # No buffer of scores, and no call of a product.
    most = max(x.numel() for x in (*inputs, torch.empty(0)))
    assert all(isinstance(step, Launch) or "bmm" not in repr(step) for step in artifact.program.instructions)
    assert all(math.prod(map(int, out.layout.sizes)) <= most for out in template.outs.values())
    wanted = function(*inputs)
    tolerance = {torch.float16: 4e-3, torch.bfloat16: 3e-2, torch.float32: 1e-5}[wanted.dtype]
    for result in (got, *run_graph(lowered(gm, rewritten=True, **TRITON), inputs)):
        assert result.shape == wanted.shape and result.stride() == wanted.stride() and result.dtype is wanted.dtype
        torch.testing.assert_close(result, wanted, rtol=0, atol=tolerance, equal_nan=True)


def over_queries(q, k, v):
    return torch.softmax(q @ k.mT, -2) @ v


def over_heads(q, k, v):
    return torch.softmax(q @ k.mT, 1) @ v


def shares_returned(q, k, v):
    shares = torch.softmax(q @ k.mT, -1)
    return shares @ v, shares


def scores_returned(q, k, v):
    scores = q @ k.mT
    return torch.softmax(scores, -1) @ v, scores * 2


def changed_shares(q, k, v):
    return (torch.softmax(q @ k.mT, -1) * 0.5) @ v


def dropped(q, k, v):
    return torch.ops.aten.native_dropout(torch.softmax(q @ k.mT, -1), 0.5, True)[0] @ v


def turned_shares(q, k, v):
    return torch.softmax(q @ k.mT, -1).mT @ v


def two_products(q, k, v):
    return torch.softmax(q @ k.mT + k @ q.mT, -1) @ v


def normalised(q, k, v):
    scores = q @ k.mT
    return torch.softmax(scores / scores.amax(-1, keepdim=True), -1) @ v


def mixed(q, k, v):
    return torch.softmax((q @ k.mT).float(), -1) @ v.float()


def rough(q, k, v):
    scores = 4 * torch.erf(q @ k.mT / 4)
    return torch.softmax(torch.where(distances(q, k) <= 0, scores, -math.inf), -1) @ v


SQUARE = operands(1, 2, 32, 32)


@pytest.mark.parametrize(
    "function",
    [over_queries, over_heads, shares_returned, scores_returned, changed_shares, dropped, turned_shares, two_products, normalised, mixed, rough],
    ids=lambda f: f.__name__,
)  # fmt: skip
def test_what_only_looks_like_it(function):
    assert not templates(traced(function, *SQUARE))
    assert templates(traced(plain, *SQUARE))


@pytest.mark.parametrize(
    "inputs",
    [operands(1, 1, 4, 16, keys=64), operands(1, 1, 32, 320), operands(1, 1, 32, 16, dtype=torch.float64)],
    ids=["few queries", "wide heads", "float64"],
)
def test_what_no_template_takes(inputs):
    assert not templates(traced(plain, *inputs))


def test_a_processor_without_templates_and_sizes_known_at_run_time():
    assert not templates(traced(plain, *SQUARE), cpu_backend="cpp")
    assert not templates(traced(plain, *SQUARE, mode="symbolic"))


def biased(q, k, v, bias):
    return torch.softmax(q @ k.mT + bias, -1) @ v


@pytest.mark.parametrize("shape", [(1, 2, 40, 40), (40, 40), (2, 1, 1), (1, 1, 1, 40)])
def test_what_is_no_function_of_positions_is_read(shape):
    """Numbers of any size, also such that leave a whole row next to nothing."""
    inputs = [*operands(1, 2, 40, 16, dtype=torch.bfloat16), torch.randn(shape).bfloat16()]
    inputs[3].view(-1)[::2] = torch.finfo(torch.bfloat16).min
    gm = traced(biased, *inputs)
    (got,) = load(compile_graph(gm, inputs, TRITON), executor="python")(*inputs)
    assert len(templates(gm)) == 1
    torch.testing.assert_close(got, biased(*inputs), rtol=1.6e-2, atol=1e-2)


def test_keys_that_a_window_leaves_out_are_not_looked_at():
    q, k, v = operands(1, 1, 384, 16)
    near = sliding(q, k, v)[:, :, 256:]
    k[:, :, :128], v[:, :, :128] = math.nan, math.nan
    gm = traced(sliding, q, k, v)
    (got,) = load(compile_graph(gm, [q, k, v], TRITON), executor="python")(q, k, v)
    torch.testing.assert_close(got[:, :, 256:], near, rtol=0, atol=4e-3)


def test_heads_that_are_repeated_are_read_once():
    """Keys and values as they are given."""
    inputs = operands(2, 4, 40, 16, heads=2)
    (template,) = templates(traced(grouped, *inputs))
    assert [int(template.operands[name].sizes[1]) for name in "qkv"] == [4, 2, 2]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("width", [64, 128])
def test_kernels_compile_for_sm_90(width, dtype):
    inputs = operands(1, 2, 512, width, dtype=dtype)
    gm = traced_on_cuda(sliding, *inputs)
    artifact = compile_graph(gm, [node.meta["val"] for node in gm.graph.find_nodes(op="placeholder")])
    source = artifact.libraries[0].text
    found = [CompileRequest.from_meta(source, kernel.entry, kernel.meta) for kernel in artifact.kernels]
    assert any("attention" in request.entry for request in found)
    assert all(cubin.shared <= H200.shared for cubin in compile_kernels(found))
