"""Attention on the CPU is one kernel of ours, which equals eager: masks, rows without a key, numbers that are none, strides, shared heads."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from attending import distances, grouped, operands, padded, plain, slopes
from nesting import lowered
from tracing import traced

from flambeau_inductor.codegen.cpp import attention
from flambeau_inductor.context import CompileContext
from flambeau_inductor.ir.loops import Template
from flambeau_inductor.ir.templates import MOST_KEPT_KEYS
from flambeau_inductor.kernel_ir.text import kernel_ir_text
from flambeau_inductor.kernel_ir.verify import verify
from flambeau_inductor.pipeline import compile_graph
from flambeau_inductor.rewrite import masked_attention
from flambeau_inductor.rewrite.masked_attention import is_small
from flambeau_runtime import load
from flambeau_runtime.artifact import Launch

F32 = {"dtype": torch.float32}
library = F.scaled_dot_product_attention


def heads(*shape):
    """(batch, heads, rows, width) as a linear layer's result has it."""
    batch, count, rows, width = shape
    return torch.randn(batch, rows, count, width).transpose(1, 2)


def broken(q, k, v):
    """Numbers that are none among queries, keys and values."""
    q, k, v = q.clone(), k.clone(), v.clone()
    q[0, 0, 3, 5], q[0, 1, 7, 1], k[1, 0, 2, 2] = math.inf, math.nan, -math.inf
    v[1, 1, 4, 5], v[1, 1, 6, 3] = math.nan, math.inf
    return q, k, v


def in_part(q, k, v):
    """The first queries see nothing, and the library says 0 there; others see a few keys."""
    d = distances(q, k)
    return library(q, k, v, attn_mask=(d <= -4) & (d > -9))


def masked(q, k, v, bias):
    return library(q, k, v, attn_mask=bias, scale=0.3)


def joined(q, k, v):
    """As a layer goes on with it: the result's rows side by side."""
    return library(q, k, v).transpose(1, 2).reshape(q.shape[0], q.shape[2], -1) + 1.0


torch.manual_seed(0)
BIAS = torch.randn(3, 50, 37)
BIAS[1, 4] = -math.inf
CASES = {
    "plain": (library, (heads(2, 2, 50, 24), heads(2, 2, 37, 24), heads(2, 2, 37, 20))),
    "causal": (lambda q, k, v: library(q, k, v, is_causal=True), operands(1, 2, 40, 32, keys=53, **F32)),
    "more queries": (lambda q, k, v: library(q, k, v, is_causal=True), operands(1, 1, 70, 16, keys=33, **F32)),
    "shared": (lambda q, k, v: library(q, k, v, enable_gqa=True), (heads(2, 4, 30, 16), heads(2, 2, 30, 16), heads(2, 2, 30, 16))),
    "masked": (masked, (heads(2, 3, 50, 16), heads(2, 3, 37, 16), heads(2, 3, 37, 16), BIAS)),
    "joined": (joined, (heads(2, 3, 49, 32), heads(2, 3, 49, 32), heads(2, 3, 49, 32))),
    "in part": (in_part, operands(2, 2, 40, 16, **F32)),
    "no numbers": (library, broken(*operands(2, 2, 30, 16, **F32))),
    "slopes": (slopes, operands(1, 2, 30, 16, **F32)),
    "repeated": (grouped, operands(2, 4, 30, 16, heads=2, **F32)),
    "padded": (padded, operands(1, 2, 40, 16, **F32)),
    "columns apart": (plain, tuple(torch.randn(1, 2, 24, 33).mT for _ in range(3))),
}  # fmt: skip


def all_of(names):
    """Several cases as one program, and its inputs."""
    counts = [len(CASES[name][1]) for name in names]

    def function(*inputs):
        rest = iter(inputs)
        return [CASES[name][0](*(next(rest) for _ in range(count))) for name, count in zip(names, counts, strict=True)]

    return function, [value for name in names for value in CASES[name][1]]


@pytest.mark.parametrize("names", [list(CASES)[:6], list(CASES)[6:]], ids=["library", "written"])
def test_results(names):
    function, inputs = all_of(names)
    gm = traced(function, *inputs)
    context = CompileContext()
    artifact = compile_graph(gm, inputs, context=context)
    kinds = [operation.kind for operation in lowered(gm, rewritten=True).operations if isinstance(operation, Template)]
    assert kinds == ["attention"] * len(names)
    assert not context.library_calls and any(isinstance(step, Launch) for step in artifact.program.instructions)
    eager, exact = function(*inputs), function(*(value.double() for value in inputs))
    for name, got, low, high in zip(names, load(artifact)(*inputs), eager, exact, strict=True):
        assert got.shape == low.shape and got.stride() == low.stride(), name
        for special in (torch.isnan, torch.isinf):
            assert torch.equal(special(got), special(low)), name
        torch.testing.assert_close(got, high.float(), rtol=1e-5, atol=4e-6, equal_nan=True, msg=name)


def test_slices_of_the_extent():
    """Pieces of the queries, and heads that are packed once for several of them, in whatever slices threads have them."""
    inputs = operands(1, 4, 250, 16, heads=2, **F32)
    (template,) = (o for o in lowered(traced(grouped, *inputs), rewritten=True).operations if isinstance(o, Template))
    (kernel,) = attention.generate_templates([template])
    assert int(kernel.extent) == 4 * 6
    (part,) = kernel.kernels
    verify(part)
    text = kernel_ir_text("attention", part)
    assert "copy " in text and "pack keys[16, 250]" in text and "columns 0 below 250" in text
    artifact = compile_graph(traced(grouped, *inputs), inputs)
    run = load(artifact)
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        (got,) = run(*inputs)
    finally:
        torch.set_num_threads(threads)
    torch.testing.assert_close(got, grouped(*inputs), rtol=1e-5, atol=4e-6)


@pytest.mark.parametrize(
    ("function", "inputs"),
    [
        (library, operands(1, 2, 40, 16, dtype=torch.bfloat16)),
        (library, operands(1, 2, 40, 16, dtype=torch.float64)),
        (library, operands(1, 2, 1, 16, keys=40, **F32)),
        (library, operands(1, 1, 40, 16, keys=MOST_KEPT_KEYS + 1, **F32)),
    ],
    ids=["bfloat16", "float64", "one query", "long rows"],
)
def test_what_the_library_keeps(function, inputs):
    graph = lowered(traced(function, *inputs), rewritten=True)
    assert not any(isinstance(operation, Template) for operation in graph.operations)


def test_small_attention_is_left_to_the_library(monkeypatch):
    """What saves less than compiling a kernel costs: BERT's and a vision transformer's for one input, not Whisper's or 512 tokens'."""
    inputs = operands(1, 2, 40, 16, **F32)
    monkeypatch.setattr(masked_attention, "is_small", is_small)
    graph = lowered(traced(library, *inputs), rewritten=True)
    assert not any(isinstance(operation, Template) for operation in graph.operations)
    sizes = {128: True, 197: True, 512: False, 1500: False}
    queries = {length: torch.empty(1, 12, length, 64, device="cpu") for length in sizes}
    assert {length: is_small(query, length, query) for length, query in queries.items()} == sizes
