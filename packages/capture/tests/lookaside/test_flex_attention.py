"""`flex_attention` as one operator over bodies: the same numbers as eager, and breaks where eager refuses."""

from __future__ import annotations

import warnings

import pytest
import torch
from both_ways import eager, outcome, strides
from torch.nn.attention.flex_attention import AuxRequest, create_block_mask, flex_attention

from flambeau_capture import GraphBreakError, make_region

BIAS = torch.linspace(-1, 1, 2 * 16 * 16).reshape(2, 16, 16)


def qkv(length=16, heads=2, groups=None, keys=None, dtype=torch.float32):
    torch.manual_seed(0)
    shapes = [(1, heads, length, 8)] + [(1, groups or heads, keys or length, 8)] * 2
    return [torch.randn(shape, dtype=dtype) for shape in shapes]


def causal(b, h, q, kv):
    return q >= kv


MASK = create_block_mask(causal, None, None, 16, 16, device="cpu", BLOCK_SIZE=8)


@pytest.fixture(autouse=True)
def _told_nothing():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


CALLS = [
    (lambda q, k, v: flex_attention(q, k, v), [qkv(), qkv(24), qkv(dtype=torch.float64)]),
    (lambda q, k, v: flex_attention(value=v, query=q, key=k, scale=0.3), [qkv()]),
    (lambda q, k, v: flex_attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)), [qkv()]),
    (lambda q, k, v: flex_attention(q, k, v[..., :4], block_mask=MASK), [qkv()]),
    (lambda q, k, v: flex_attention(q, k, v, enable_gqa=True), [qkv(heads=4, groups=2)]),
    (lambda q, k, v: flex_attention(q, k, v, lambda s, b, h, i, j: s + BIAS[h, i, j]), [qkv()]),
    (lambda q, k, v: flex_attention(q, k, v, lambda s, b, h, i, j: s + BIAS[h][i][j]), [qkv()]),
    (lambda q, k, v: flex_attention(q, k, v, lambda s, b, h, i, j: s * torch.finfo(s.dtype).eps), [qkv()]),
    (lambda q, k, v: flex_attention(q, k, v, lambda s, b, h, i, j: i - j, return_lse=True), [qkv(), qkv(16, keys=24)]),
    (lambda q, k, v: flex_attention(q, k, v, return_aux=AuxRequest(lse=True)), [qkv()]),
    (lambda q, k, v: flex_attention(q, k, v, kernel_options={"BLOCK_M": 32}), [qkv()]),
]


@pytest.mark.parametrize(("function", "calls"), CALLS)
def test_calls_are_one_graph(function, calls):
    """Results and their layout are eager's; no score matrix is a node of the graph."""
    graphs = []

    def backend(graph, inputs):
        graphs.append(graph)
        return graph.forward

    region = make_region(function, backend=backend, fullgraph=True)
    for arguments in calls:
        found, expected = region(*arguments), function(*arguments)
        pairs = zip(torch.utils._pytree.tree_leaves(found), torch.utils._pytree.tree_leaves(expected), strict=True)
        for one, other in pairs:
            assert one is None if other is None else strides(one) == strides(other)
            torch.testing.assert_close(one, other)
    targets = {node.target for graph in graphs for node in graph.graph.nodes}
    assert torch.ops.higher_order.flex_attention in targets
    assert not {"softmax", torch.matmul, torch.softmax} & targets


REFUSED = [
    lambda q, k, v: flex_attention(q, k[..., :4], v),
    lambda q, k, v: flex_attention(q, k[:, :1], v[:, :1]),
    lambda q, k, v: flex_attention(q, k[:, :1].expand(-1, 3, -1, -1), v[:, :1].expand(-1, 3, -1, -1), enable_gqa=True),
    lambda q, k, v: flex_attention(q[:, :, :8], k, v, block_mask=MASK),
    lambda q, k, v: flex_attention(q, k, v, block_mask=MASK[:, :, :1]),
    lambda q, k, v: flex_attention(q, k, v, return_lse=True, return_aux=AuxRequest(lse=True)),
    lambda q, k, v: flex_attention(q, k, v, return_aux=AuxRequest(max_scores=True)),
    lambda q, k, v: flex_attention(q, k, v, kernel_options={"BACKEND": "none"}),
    lambda q, k, v: flex_attention(q, k, v, kernel_options={"OUTPUT_LOGSUMEXP": True}),
    lambda q, k, v: flex_attention(q.requires_grad_(), k, v),
]


#: Torch refuses these while it compiles the operator, after which the process keeps torch.compile's hook on frames.
REFUSED_BODIES = [
    lambda q, k, v: flex_attention(q, k, v, lambda s, b, h, i, j: 1.0),
    lambda q, k, v: flex_attention(q, k, v, lambda s, b, h, i, j: s * BIAS[0, 0]),
    lambda q, k, v: flex_attention(q, k, v, lambda s, b, h, i, j: s * 2 if i > 3 else s),
]


@pytest.mark.parametrize("function", REFUSED_BODIES)
def test_functions_of_other_than_scalars_break(function):
    """What they return, and what they ask of a score."""
    with pytest.raises(GraphBreakError):
        make_region(function, eager, fullgraph=True)(*qkv())


@pytest.mark.parametrize("function", REFUSED)
def test_what_eager_refuses_breaks(function):
    """And raises what eager raises."""
    with pytest.raises(GraphBreakError):
        make_region(function, eager, fullgraph=True)(*qkv())
    found, expected = (outcome(call, *qkv()) for call in (make_region(function, eager), function))
    assert found[0] == expected[0] == "raised"


def within(width):
    def mask(b, h, q, kv):
        return (q - kv).abs() <= width

    return mask


def test_masks_that_each_call_brings():
    """What a mask closes over and its blocks are read of the call's own."""
    region = make_region(lambda q, k, v, mask: flex_attention(q, k, v, block_mask=mask), eager, fullgraph=True)
    places = torch.arange(16)
    for width in (2, 5, 2, 9):
        blocks = create_block_mask(within(width), None, None, 16, 16, device="cpu")
        dense = (places[:, None] - places).abs() <= width
        expected = torch.nn.functional.scaled_dot_product_attention(*qkv(), attn_mask=dense)
        torch.testing.assert_close(region(*qkv(), blocks), expected)


def test_numbers_in_scores_change():
    """A float is the call's own."""

    def function(q, k, v, cap):
        return flex_attention(q, k, v, lambda s, b, h, i, j: cap * torch.tanh(s / cap))

    region = make_region(function, eager, fullgraph=True)
    for cap in (20.0, 5.0, 2.0):
        torch.testing.assert_close(region(*qkv(), cap), function(*qkv(), cap))
