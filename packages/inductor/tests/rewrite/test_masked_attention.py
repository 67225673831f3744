"""The library's attention with a mask that the graph computes becomes templates, in inference and training; what it is better at stays."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from tracing import traced, traced_on_cuda

pytest.importorskip("triton")

from attending import TRITON, as_near_as_eager, distances, gradients, joint, kinds, marked, operands, rewritten
from nesting import lowered

from flambeau_inductor import CompileContext, compile_graph
from flambeau_inductor.ir.evaluate import run_graph
from flambeau_inductor.ir.loops import Extern, Template
from flambeau_inductor.rewrite.masked_attention import fuse_masked
from flambeau_runtime import load

aten = torch.ops.aten
KINDS = ["attention", "attention_query_gradient", "attention_key_gradients"]
LENGTHS = torch.tensor([[70], [40]])


def sliding(q, k, v):
    """Heads lie as projections leave them."""
    d = distances(q, k)
    q, k, v = (x.transpose(1, 2).contiguous().transpose(1, 2) for x in (q, k, v))
    return F.scaled_dot_product_attention(q, k, v, attn_mask=(d <= 0) & (d > -20))


def padded(q, k, v):
    """What is known of each key, beside a causal mask of float numbers with slopes; keys are shared by two heads."""
    k, v = (x[:, :1].expand(-1, 2, -1, -1) for x in (k, v))
    exists = torch.arange(70) < 70 - 30 * torch.arange(2).unsqueeze(-1)
    d = distances(q, k)
    bias = (d * torch.exp2(-torch.arange(1.0, 3.0)).view(-1, 1, 1)).to(q.dtype).masked_fill(d > 0, -math.inf)
    mask = bias.masked_fill(exists[:, None, None, :].logical_not(), -math.inf)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=0.3)


def empty_rows(q, k, v):
    """The first queries see nothing, and give 0."""
    return F.scaled_dot_product_attention(q, k, v, attn_mask=distances(q, k) <= -5)


CASES = {"sliding": (sliding, (-19, 0)), "padded": (padded, (None, 0)), "empty rows": (empty_rows, (None, -5))}
INPUTS = operands(2, 2, 70, 16, dtype=torch.bfloat16)


def templates(gm):
    return [o for o in lowered(gm, rewritten=True, **TRITON).operations if isinstance(o, Template)]


@pytest.mark.parametrize("name", CASES)
def test_results(name):
    function, window = CASES[name]
    gm = traced(function, *INPUTS)
    (template,) = templates(gm)
    assert template.facts["window"] == window
    artifact = compile_graph(gm, INPUTS, TRITON)
    assert "scaled_dot_product" not in artifact.text()
    (got,) = load(artifact, executor="python")(*INPUTS)
    as_near_as_eager([got], [function(*INPUTS)], [function(*(x.double() for x in INPUTS))])


@pytest.mark.parametrize("name", CASES)
def test_gradients(name):
    function, _ = CASES[name]
    given = [*INPUTS, torch.randn(INPUTS[0].shape).bfloat16()]
    gm = rewritten(joint(function, *given))
    assert kinds(gm) == KINDS
    assert not any("aten._scaled_dot_product" in str(node.target) for node in gm.graph.nodes)
    eager, exact = (gradients(function, INPUTS, given[-1], dtype) for dtype in (None, torch.float64))
    graph = lowered(gm, rewritten=True, **TRITON)
    runs = [run_graph(graph, given)]
    if name != "sliding":
        runs.append(load(compile_graph(gm, given, TRITON), executor="python")(*given))
    for got in runs:
        as_near_as_eager(got, eager, exact)


def without(q, k, v):
    return F.scaled_dot_product_attention(q, k, v)


def causal(q, k, v):
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def stored(q, k, v, mask):
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)


def learnt(q, k, v, table):
    """A bias looked up for each pair, as T5 has it."""
    return stored(q, k, v, aten.embedding(table, distances(q, k).abs()).permute(2, 0, 1).unsqueeze(0))


def sums_too(q, k, v):
    """The logarithms of sums, which the library gives besides."""
    mask = torch.where(distances(q, k) <= 0, 0.0, -math.inf).to(q.dtype)
    out, lse = aten._scaled_dot_product_flash_attention_for_cpu(q, k, v, attn_mask=mask)
    return out, lse


@pytest.mark.parametrize(
    ("function", "more"),
    [
        (without, ()),
        (causal, ()),
        (stored, (torch.zeros(70, 70).bfloat16(),)),
        (learnt, (torch.randn(70, 2).bfloat16(),)),
        (sums_too, ()),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_what_the_library_keeps(function, more):
    assert not templates(traced(function, *INPUTS, *more))


def test_training_that_the_library_keeps():
    """Where the program says what is saved, read elsewhere, or where there are no templates."""
    context = CompileContext(CompileContext().config.with_options(TRITON))
    given = [*INPUTS, torch.randn(INPUTS[0].shape).bfloat16()]
    gm = joint(sliding, *given)
    (forward,) = gm.graph.find_nodes(
        op="call_function", target=aten._scaled_dot_product_flash_attention_for_cpu.default
    )
    sums = next(part for part in forward.users if part.args[1] == 1)
    forward.meta["policy"] = True
    assert not fuse_masked(gm.graph, [], context)
    del forward.meta["policy"]
    assert not fuse_masked(gm.graph, [sums], context)
    assert not fuse_masked(gm.graph, [], CompileContext())
    assert fuse_masked(gm.graph, [], context)


def on_cuda(dropped):
    """As torch calls the library on a GPU: the mask is of numbers, with rows of a length that suits it, for all heads."""

    def function(q, k, v, lengths):
        keys = torch.arange(k.shape[2], device=q.device) < lengths
        mask = torch.where((distances(q, k) <= 0) & keys.view(2, 1, 1, 70), 0.0, -math.inf).to(q.dtype)
        mask = aten.slice(aten.constant_pad_nd(mask, [0, 2]), -1, 0, 70).expand(2, 2, 70, 70)
        return aten._scaled_dot_product_efficient_attention(q, k, v, mask, False, dropped)[0]

    return traced_on_cuda(function, *INPUTS, LENGTHS)


def by_cudnn(q, k, v, tangent, bias):
    """cuDNN's attention and its gradients, which torch takes for 16 bits on Hopper."""
    bias = bias.expand(2, 2, 70, 70)
    out, lse, _, _, queries, keys, seed, offset, _ = aten._scaled_dot_product_cudnn_attention(q, k, v, bias, True)
    backward = aten._scaled_dot_product_cudnn_attention_backward
    return out, *backward(tangent, q, k, v, out, lse, seed, offset, bias, None, None, queries, keys, 0.0, False)


def in_a_window(q, k, v, tangent):
    d = distances(q, k)
    return by_cudnn(q, k, v, tangent, torch.where((d <= 0) & (d > -20), 0.0, -math.inf).to(q.dtype))


def test_cudnn():
    given = [*INPUTS, torch.randn(INPUTS[0].shape).bfloat16()]
    gm = rewritten(marked(traced(in_a_window, *given)))
    assert kinds(gm) == KINDS
    eager, exact = (gradients(sliding, INPUTS, given[-1], dtype) for dtype in (None, torch.float64))
    eager = [x.contiguous() for x in eager]
    as_near_as_eager(load(compile_graph(gm, given, TRITON), executor="python")(*given), eager, exact)


@pytest.mark.parametrize("of_queries", [False, True])
@pytest.mark.parametrize("of_gradient", [False, True])
def test_cudnn_is_called_in_a_way_of_its_own(of_queries, of_gradient):
    """torch may have kernels for the same call in which the result's gradient lies otherwise, and would run these: `lowering/cudnn_attention.py`."""
    *qkv, grad = (
        x.transpose(1, 2).contiguous().transpose(1, 2) if turned else x
        for x, turned in zip((*INPUTS, INPUTS[0]), (*(of_queries,) * 3, of_gradient), strict=True)
    )
    gm = traced_on_cuda(by_cudnn, *qkv, grad, torch.zeros(70, 70).bfloat16())
    (call,) = [o for o in lowered(gm, rewritten=True).operations if isinstance(o, Extern) and "backward" in str(o.op)]
    assert call.args[1].layout().is_contiguous is not of_queries
    assert call.args[0].strides == call.args[4].strides == call.args[1].strides
    assert math.copysign(1, call.args[13]) == -1


def test_cudnn_drops_alike_in_both_directions():
    def dropped(q, k, v, tangent):
        out, lse, _, _, queries, keys, seed, offset, _ = aten._scaled_dot_product_cudnn_attention(
            q, k, v, None, True, 0.1
        )
        backward = aten._scaled_dot_product_cudnn_attention_backward
        return out, *backward(tangent, q, k, v, out, lse, seed, offset, None, None, None, queries, keys, 0.1, False)

    graph = lowered(traced_on_cuda(dropped, *INPUTS, INPUTS[0]), rewritten=True)
    forward, backward = (o for o in graph.operations if isinstance(o, Extern))
    assert forward.args[5] == backward.args[13] and 0.1 < forward.args[5] < 0.1 + 1e-7


def test_on_a_gpu():
    assert [template.facts["window"] for template in templates(on_cuda(0.0))] == [(None, 0)]
    assert not templates(on_cuda(0.1))
