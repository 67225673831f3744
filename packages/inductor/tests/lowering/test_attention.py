"""Which attentions become templates; the others stay what they were."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("triton")

from flexing import Attention, causal, plain, plain_gradient
from nesting import lowered

from flambeau_inductor.context import CompileContext
from flambeau_inductor.ir.loops import Template
from flambeau_inductor.lowering.trial import declined

hop = torch.ops.higher_order
SIZES = (1, 2, 2, (64, 64), (16, 16))


def reason(gm, target=hop.flex_attention, **options):
    (node,) = gm.graph.find_nodes(op="call_function", target=target)
    config = CompileContext().config.with_options({"cpu_backend": "triton", **options})
    return declined(gm, node, CompileContext(config))


def templates(gm, **options):
    graph = lowered(gm, rewritten=True, cpu_backend="triton", **options)
    return [operation for operation in graph.operations if isinstance(operation, Template)]


def test_one_template_forward_and_two_backward():
    case = Attention(*SIZES, plain, causal, plain_gradient)
    (forward,) = templates(case.forward()[0])
    assert forward.kind == "attention" and set(forward.outs) == {"out", "lse", "peak"}
    kinds = [template.kind for template in templates(case.backward()[0])]
    assert kinds == ["attention_query_gradient", "attention_key_gradients"]


def summed(s, b, h, m, n, t):
    return s + t.sum() + torch.ops.aten.index.Tensor(t.cumsum(0), [n])


@pytest.mark.parametrize(
    ("case", "why"),
    [
        (lambda: Attention(*SIZES, plain, causal, dtype=torch.float32), "16 bits"),
        (lambda: Attention(*SIZES[:4], (320, 16), plain, causal), "too wide"),
        (lambda: Attention(*SIZES, plain, causal, symbolic=True), "known at run time"),
        (lambda: Attention(*SIZES, plain, causal, block=8), "blocks of the mask"),
        (lambda: Attention(*SIZES, summed, causal, buffers=[torch.randn(64)]), "in a kernel"),
    ],
    ids=["float32", "wide", "symbolic", "small blocks", "no scalar"],
)
def test_what_no_kernel_computes_stays_a_scan(case, why):
    gm, _ = case().forward()
    assert why in reason(gm)
    assert not templates(gm)


def test_processors_and_switched_off_kernels():
    gm, _ = Attention(*SIZES, plain, causal).forward()
    assert reason(gm) == ""
    assert "block mask" in reason(gm, cpu_backend="cpp")
    assert "switched off" in reason(gm, cpp_kernels=False)


def test_gradients_of_another_type():
    case = Attention(*SIZES, plain, causal, plain_gradient)
    gm, _, _ = case.backward()
    (node,) = gm.graph.find_nodes(op="call_function", target=hop.flex_attention_backward)
    node.update_arg(5, None)
    assert "another type" in reason(gm, hop.flex_attention_backward)
