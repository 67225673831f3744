"""Attention written out, with its gradients, becomes three templates that equal eager; what reads scores or shares besides keeps the graph."""

from __future__ import annotations

import math

import pytest
import torch
from tracing import traced_on_cuda

pytest.importorskip("triton")

from attending import (
    TRITON,
    additive,
    as_near_as_eager,
    capped,
    distances,
    empty_rows,
    gradients,
    grouped,
    joint,
    kinds,
    marked,
    operands,
    rewritten,
    sliding,
)
from nesting import lowered

from flambeau_inductor import CompileContext, compile_graph
from flambeau_inductor.devices import H200
from flambeau_inductor.ir.evaluate import run_graph
from flambeau_inductor.rewrite.trained_attention import fuse_attention
from flambeau_runtime import load
from flambeau_runtime.artifact import Launch
from flambeau_runtime.triton_kernels import CompileRequest, compile_kernels

aten = torch.ops.aten
KINDS = ["attention", "attention_query_gradient", "attention_key_gradients"]


def slopes(q, k, v):
    """Distances with a slope for each head, added to scores in float32, with an offset of each key that is read."""
    d = distances(q, k)
    slope = torch.exp2(-torch.arange(1, q.shape[1] + 1, device=q.device).float()).view(1, -1, 1, 1)
    scores = (q @ k.mT * 0.3).float() + d * slope + v[:, :1, :, 0].detach().float().unsqueeze(-2)
    return torch.softmax(scores.masked_fill(d > 0, -math.inf), -1).to(q.dtype) @ v


def padded(q, k, v):
    """Rows that keep nothing of a mask of numbers weigh all keys alike, under queries that lie as projections leave them."""
    scores = (q.transpose(1, 2).contiguous().transpose(1, 2) @ k.mT).float()
    scores = scores.masked_fill(distances(q, k) > -5, torch.finfo(torch.float32).min)
    return (torch.softmax(scores, -1).to(q.dtype) @ v).transpose(1, 2)


CASES = {
    "sliding": (sliding, operands(1, 1, 150, 16)),
    "groups": (grouped, operands(2, 4, 40, 16, heads=2)),
    "slopes": (slopes, operands(2, 2, 70, 16, dtype=torch.bfloat16)),
    "capped": (capped, operands(1, 1, 130, 16)),
    "padded": (padded, operands(1, 2, 80, 24)),
    "additive in float32": (additive, operands(1, 1, 70, 16, dtype=torch.float32)),
}


@pytest.mark.parametrize("name", CASES)
def test_results_and_gradients(name):
    """As near to float64 as eager is, with eager's strides, and no tensor of all pairs anywhere."""
    function, inputs = CASES[name]
    shape = function(*inputs).shape
    tangent = torch.randn(shape).to(inputs[0].dtype)
    gm = rewritten(joint(function, *inputs, tangent))
    assert kinds(gm) == KINDS
    given = [*inputs, tangent]
    artifact = compile_graph(gm, given, TRITON)
    assert all(isinstance(step, Launch) or "bmm" not in repr(step) for step in artifact.program.instructions)
    graph = lowered(gm, rewritten=True, **TRITON)
    pairs = inputs[0].shape[1] * inputs[0].shape[2] ** 2
    assert all(math.prod(map(int, buffer.layout.sizes)) < pairs for buffer in graph.buffers.values())
    eager = gradients(function, inputs, tangent)
    exact = gradients(function, inputs, tangent, torch.float64)
    for got in (load(artifact, executor="python")(*given), run_graph(graph, given)):
        as_near_as_eager(got, eager, exact)


def biased(q, k, v):
    """A bias that has a gradient itself."""
    return torch.softmax(q @ k.mT + q.sum((-1, -2), keepdim=True), -1) @ v


def without_a_gradient(q, k, v):
    return torch.softmax(q.detach() @ k.mT, -1) @ v + q


def dropped(q, k, v):
    return aten.native_dropout(torch.softmax(q @ k.mT, -1), 0.5, True)[0] @ v


def shares_returned(q, k, v):
    shares = torch.softmax(q @ k.mT, -1)
    return shares @ v, shares


def summed(q, k, v):
    """Shares that are read twice."""
    shares = torch.softmax(q @ k.mT, -1)
    return shares @ v + shares.sum(-1, keepdim=True)


def shared(q, k, v):
    """Another product of the scores' gradient."""
    scores = q @ k.mT
    return torch.softmax(scores, -1) @ v + scores @ v


SQUARE = operands(1, 2, 32, 32)


@pytest.mark.parametrize(
    "function",
    [biased, without_a_gradient, summed, shared, dropped, shares_returned, empty_rows],
    ids=lambda f: f.__name__,
)
def test_what_stays_as_it_is(function):
    gm = joint(function, *SQUARE, torch.randn(SQUARE[0].shape).half())
    before = [node.target for node in gm.graph.nodes]
    assert not fuse_attention(gm.graph, gm.graph.find_nodes(op="output")[0].all_input_nodes, context())
    assert [node.target for node in gm.graph.nodes] == before


def context(**options):
    return CompileContext(CompileContext().config.with_options({**TRITON, **options}))


@pytest.mark.parametrize(("note", "value"), [("checkpoint", 0), ("policy", True), ("refused", True), ("checks", True)])
def test_what_a_node_says_of_itself_keeps_it(note, value):
    gm = joint(sliding, *SQUARE, torch.randn(SQUARE[0].shape).half())
    next(iter(gm.graph.find_nodes(op="call_function", target=aten._softmax.default))).meta[note] = value
    assert not fuse_attention(gm.graph, [], context())


def test_a_region_that_is_computed_again_is_of_the_node_in_its_place():
    gm = joint(sliding, *SQUARE, torch.randn(SQUARE[0].shape).half())
    for node in gm.graph.nodes:
        if node.op == "call_function" and not node.meta.get("backward"):
            node.meta["checkpoint"] = 3
    assert fuse_attention(gm.graph, [], context())
    forward, backward = (node for node in gm.graph.nodes if "attend" in str(node.target) and node.op == "call_function")
    assert forward.meta["checkpoint"] == 3 and "checkpoint" not in backward.meta and backward.meta["backward"]


def test_results_in_the_midst_and_processors_without_templates():
    """Scores that the caller gets, though no node of the graph reads them."""
    for kept, options in ((aten.where.self, {}), (None, {"cpu_backend": "cpp"})):
        gm = joint(sliding, *SQUARE, torch.randn(SQUARE[0].shape).half())
        results = gm.graph.find_nodes(op="call_function", target=kept)[:1] if kept else []
        assert not fuse_attention(gm.graph, results, context(**options))
        assert fuse_attention(gm.graph, [], context())


def test_kernels_compile_for_sm_90():
    """Three kernels, within shared memory; the graph is that of CUDA tensors."""
    inputs = operands(1, 2, 512, 128, dtype=torch.bfloat16)
    inputs.append(torch.randn_like(inputs[0]))
    gm = joint(sliding, *inputs)
    for node in gm.graph.nodes:
        if "device" in node.kwargs:
            node.update_kwarg("device", "cuda")
    gm.recompile()
    gm = rewritten(marked(traced_on_cuda(gm, *inputs)))
    artifact = compile_graph(gm, [node.meta["val"] for node in gm.graph.find_nodes(op="placeholder")])
    source = artifact.libraries[0].text
    found = [CompileRequest.from_meta(source, k.entry, k.meta) for k in artifact.kernels if "attention" in k.entry]
    assert len(found) == 3
    assert all(cubin.shared <= H200.shared for cubin in compile_kernels(found))
