"""Attention's kernels under Triton's interpreter equal the formulas in float64, and compile for sm_90."""

from __future__ import annotations

import pytest
import torch
from attrs import astuple, evolve

pytest.importorskip("triton")

from flexing import Attention, causal, plain, plain_gradient
from nesting import lowered

from flambeau_inductor.codegen.triton.templates import generate_templates
from flambeau_inductor.devices import H200, AttentionShapes
from flambeau_inductor.ir.evaluate import run_graph
from flambeau_inductor.ir.loops import Template
from flambeau_inductor.pipeline import compile_graph
from flambeau_runtime import load
from flambeau_runtime.artifact import Alloc, Launch
from flambeau_runtime.triton_kernels import CompileRequest, compile_kernels

TRITON = {"cpu_backend": "triton"}


def sloped(s, b, h, m, n):
    return s * 2 + (m - n) * 0.01 * (h + 1)


def capped(s, b, h, m, n):
    return 5 * torch.tanh(s / 5)


def biased(s, b, h, m, n, table):
    return s + torch.ops.aten.index.Tensor(table, [h, m - n + 149])


def twice(s, b, h, m, n, g):
    return [g * 2, None, None, None, None]


def capped_gradient(s, b, h, m, n, g):
    return [g * (1 - torch.tanh(s / 5) ** 2), None, None, None, None]


def biased_gradient(s, b, h, m, n, g, table):
    return [g, None, None, None, None, None]


def near(b, h, m, n):
    return (m - n).abs() < 50


def not_the_first(b, h, m, n):
    return m > 3


def turned(case):
    """Operands as projections leave them: heads lie behind positions."""
    case.qkv = [x.transpose(1, 2).contiguous().transpose(1, 2) for x in case.qkv]
    return case


def scaled(case, scale):
    case.scale = scale
    return case


CASES = {
    "causal": lambda: Attention(1, 2, 2, (256, 256), (32, 16), plain, causal, plain_gradient),
    "groups": lambda: Attention(2, 4, 2, (130, 300), (20, 16), plain, near, plain_gradient),
    "empty rows": lambda: Attention(1, 2, 1, (70, 200), (16, 32), sloped, not_the_first, twice),
    "shared keys": lambda: Attention(3, 2, 1, (40, 140), (16, 16), capped, causal, capped_gradient, shared=True, block=(32, 64)),
    "a table": lambda: Attention(1, 2, 2, (150, 150), (16, 16), biased, causal, biased_gradient, buffers=[torch.randn(2, 299)]),
    "one block": lambda: Attention(1, 2, 2, (70, 90), (16, 16), plain, near, plain_gradient, block=None),
    "strides": lambda: turned(Attention(2, 2, 2, (70, 70), (24, 24), plain, causal, plain_gradient)),
    "negative": lambda: scaled(Attention(1, 1, 1, (70, 90), (16, 16), plain, near, plain_gradient), -0.2),
    "bfloat16": lambda: Attention(1, 1, 1, (64, 64), (16, 16), plain, causal, plain_gradient, dtype=torch.bfloat16),
}  # fmt: skip


def run(gm, inputs, launches):
    """What the interpreted kernels give, and the loop IR's interpreter."""
    artifact = compile_graph(gm, inputs, TRITON)
    assert launches in (None, sum(isinstance(step, Launch) for step in artifact.program.instructions))
    got = load(artifact, executor="python")(*inputs)
    graph = lowered(gm, rewritten=True, **TRITON)
    assert any(isinstance(operation, Template) for operation in graph.operations)
    return artifact, got, run_graph(graph, inputs)


def close(results, wanted, dtype):
    tolerance = 2e-3 if dtype is torch.float16 else 1.6e-2
    for result, want in zip(results, wanted, strict=True):
        largest = want[want.isfinite()].abs().max().clamp(min=1)
        torch.testing.assert_close(result.double(), want, rtol=0, atol=float(largest) * tolerance)


@pytest.mark.parametrize("name", CASES)
def test_results(name):
    case = CASES[name]()
    gm, inputs = case.forward()
    artifact, got, meant = run(gm, inputs, 1)
    close(got, case.wanted(), case.dtype)
    close(meant, case.wanted(), case.dtype)
    # Nothing is made but the results.
    assert sum(isinstance(step, Alloc) for step in artifact.program.instructions) == 3


@pytest.mark.parametrize("name", CASES)
def test_gradients(name):
    """One kernel for the rows' sums, one for the queries, one for keys and values."""
    case = CASES[name]()
    gm, inputs, grads = case.backward()
    _, got, meant = run(gm, inputs, 3)
    wanted = case.wanted(*grads)
    close(got, wanted, case.dtype)
    close(meant, wanted, case.dtype)


def test_blocks_that_no_table_names_are_not_looked_at():
    """The last block of keys would make every result NaN."""
    case = Attention(1, 1, 1, (128, 384), (16, 16), plain, lambda b, h, m, n: n < 256)
    case.qkv[1][:, :, 256:] = float("nan")
    gm, inputs = case.forward()
    got = load(compile_graph(gm, inputs, TRITON), executor="python")(*inputs)
    assert all(bool(result.isfinite().all()) for result in got)


def test_a_mask_made_for_more_positions():
    """Blocks beyond the end hold nothing."""
    case = Attention(1, 1, 1, (128, 128), (16, 16), plain, causal, plain_gradient, block=64)
    longer = Attention(1, 1, 1, (256, 256), (16, 16), plain, lambda b, h, m, n: n >= 0, block=64)
    case.mask, case.table, case.arrays = longer.mask, longer.table, longer.arrays
    gm, inputs = case.forward()
    close(run(gm, inputs, 1)[1], case.wanted(), case.dtype)
    gm, inputs, grads = case.backward()
    close(run(gm, inputs, 3)[1], case.wanted(*grads), case.dtype)


def requests(gm, inputs):
    artifact = compile_graph(gm, inputs, TRITON)
    source = artifact.libraries[0].text
    return [CompileRequest.from_meta(source, kernel.entry, kernel.meta) for kernel in artifact.kernels]


@pytest.mark.parametrize("width", [64, 128, 256])
def test_kernels_compile_for_sm_90(width):
    """Within the shared memory that there is, products by tensor cores."""
    case = Attention(1, 1, 1, (256, 256), (width, width), sloped, causal, twice, dtype=torch.bfloat16)
    found = [*requests(*case.forward()), *requests(*case.backward()[:2])]
    for request, cubin in zip(found, compile_kernels(found), strict=True):
        assert cubin.name == request.entry and cubin.shared <= H200.shared


@pytest.mark.parametrize("heads", [2, 8])
def test_few_queries_compile_for_sm_90(heads):
    case = Attention(1, heads, 2, (1, 2048), (128, 128), sloped, near_the_end, dtype=torch.bfloat16)
    found = requests(*case.forward())
    assert all(cubin.shared <= H200.shared for cubin in compile_kernels(found))


def test_what_functions_read_has_room():
    """A table of pairs takes shared memory in every stage of the pipeline."""
    sizes = (1, 2, 1, (150, 150), (64, 64))
    case = Attention(*sizes, biased, causal, biased_gradient, buffers=[torch.randn(2, 299)], dtype=torch.bfloat16)
    found = [*requests(*case.forward()), *requests(*case.backward()[:2])]
    assert all(cubin.shared <= H200.shared for cubin in compile_kernels(found))


def test_equal_templates_share_a_kernel():
    """Whatever memory they read, and wherever they come from."""
    graph = lowered(CASES["causal"]().forward()[0], rewritten=True, **TRITON)
    (template,) = (operation for operation in graph.operations if isinstance(operation, Template))
    operands = {name: evolve(ref, buffer=f"other_{ref.buffer}") for name, ref in template.operands.items()}
    other = evolve(template, operands=operands, name="other", stacks=("model.py:7 in forward",))
    scaled = evolve(template, facts={**template.facts, "scale": 2.0}, name="scaled")
    first, second, third = generate_templates([evolve(template, name="first"), other, scaled])
    assert (second.name, second.source) == (first.name, first.source) and third.name != first.name
    assert second.buffers[0] == f"other_{first.buffers[0]}"


def test_every_shape_has_whole_warps():
    for shapes in astuple(AttentionShapes(), recurse=False):
        assert all(shape.rows * shape.step >= 32 * shape.num_warps for _, shape in shapes)


FEW = {
    "one query": lambda: Attention(1, 2, 2, (1, 1100), (32, 16), plain, near_the_end),
    "groups": lambda: Attention(2, 8, 2, (1, 1030), (16, 16), sloped, near_the_end),
    "groups of rows": lambda: Attention(1, 6, 2, (3, 600), (16, 20), sloped, lambda b, h, m, n: (n + h) % 3 <= m, block=None),
    "empty rows": lambda: Attention(1, 4, 1, (2, 700), (16, 16), plain, lambda b, h, m, n: m > 0),
    "shared keys": lambda: Attention(3, 4, 2, (2, 600), (16, 16), sloped, near_the_end, shared=True),
    "few keys": lambda: Attention(1, 4, 2, (2, 70), (16, 16), plain, near),
}  # fmt: skip


def near_the_end(b, h, m, n):
    return n + m > 100


@pytest.mark.parametrize("name", FEW)
def test_few_queries(name):
    """Keys in parts, where there are many, joined by the kernel behind; heads that share keys as rows of one program."""
    case = FEW[name]()
    gm, inputs = case.forward()
    parts = int(name != "few keys")
    _, got, meant = run(gm, inputs, None)
    (template,) = (o for o in lowered(gm, rewritten=True, **TRITON).operations if isinstance(o, Template))
    assert (template.facts.get("parts", 1) > 1) is bool(parts)
    assert template.facts["packed"] is (case.qkv[0].shape[1] > case.qkv[1].shape[1])
    close(got, case.wanted(), case.dtype)
    close(meant, case.wanted(), case.dtype)
