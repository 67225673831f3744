"""Losses in blocks of classes, on graphs of inductor alone: what becomes of a graph without a backward, and of one on a GPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import fx
from tracing import traced, traced_on_cuda

import flambeau_runtime
from flambeau_inductor import CompileContext, compile_graph, rewrite_joint
from flambeau_inductor.rewrite.blocked_losses import blocked_losses

aten = torch.ops.aten
SMALL = {"blocked_losses": 1, "verify": True}


def calls(gm: fx.GraphModule, op: Any) -> int:
    return len(gm.graph.find_nodes(op="call_function", target=op))


def perplexity(x: torch.Tensor, w: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(F.linear(x, w).float(), t).exp()


@pytest.mark.parametrize("backend", ["cpp", "triton"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_without_a_backward(monkeypatch: pytest.MonkeyPatch, backend: str, dtype: torch.dtype) -> None:
    """Eight products, and no tensor of all scores."""
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    inputs = torch.randn(5, 8).to(dtype), torch.randn(4096, 8).to(dtype), torch.randint(0, 4096, (5,))
    gm = traced(perplexity, *inputs)
    context = CompileContext(CompileContext().config.with_options(SMALL))
    assert blocked_losses(gm, context) and calls(gm, aten.mm.default) == 8
    assert not any(5 * 4096 <= n.meta["val"].numel() for n in gm.graph.nodes if n.target is aten.mm.default)
    gm = traced(perplexity, *inputs)
    artifact = compile_graph(gm, inputs, {**SMALL, "cpu_backend": backend})
    (got,) = flambeau_runtime.load(flambeau_runtime.build_libraries(artifact))(*inputs)
    torch.testing.assert_close(got, perplexity(*inputs), rtol=1e-4, atol=1e-4)


def joint(x: Any, w: Any, t: Any, g: Any) -> Any:
    """A loss and its gradients as autograd traces them."""
    scores = aten.mm(x, aten.t(w))
    logs = aten._log_softmax(scores, 1, False)
    keep = t.ne(-100)
    own = aten.squeeze(aten.gather(logs, 1, aten.unsqueeze(torch.where(keep, t, 0), 1)), 1)
    count = keep.sum().to(scores.dtype)
    slope = aten.nll_loss_backward(g, logs, t, None, 1, -100, count)
    slope = aten._log_softmax_backward_data(slope, logs, 1, scores.dtype)
    return torch.where(keep, -own, 0.0).sum() / count, aten.mm(slope, w), aten.mm(aten.t(slope), x)


def rewritten(tracer: Callable[..., fx.GraphModule], *inputs: torch.Tensor) -> fx.GraphModule:
    gm = tracer(joint, *inputs)
    late = False
    for node in gm.graph.nodes:
        late |= node.target is aten.nll_loss_backward.default
        if late and node.op == "call_function":
            node.meta["backward"] = True
    (output,) = gm.graph.find_nodes(op="output")
    for result, now in rewrite_joint(gm.graph, output.all_input_nodes, SMALL).items():
        output.replace_input_with(result, now)
    gm.recompile()
    return gm


def test_half_precision_is_added_up_in_float32_by_the_library_of_a_gpu() -> None:
    """Its products give float32; on the CPU operands are converted first."""
    inputs = torch.randn(5, 8), torch.randn(4096, 8), torch.randint(0, 4096, (5,)), torch.ones(())
    inputs = tuple(v.half() if v.is_floating_point() else v for v in inputs)
    gm = rewritten(traced_on_cuda, *inputs)
    assert calls(gm, aten.mm.dtype) == 8 and calls(gm, aten.addmm.default) == 0
    assert calls(gm, aten.mm.default) == 16
    gm = rewritten(traced, *inputs)
    assert calls(gm, aten.mm.dtype) == 0 and calls(gm, aten.addmm.default) == 7
    wanted = joint(*inputs)
    for got, known in zip(gm(*inputs), wanted, strict=True):
        torch.testing.assert_close(got, known, rtol=2e-2, atol=2e-3)


def test_a_gradient_that_asks_for_the_sum_of_scores_stays_whole() -> None:
    """What is passed through a softmax has to have a known sum over classes: nothing of a graph that is given up is left."""

    def squared(x: Any, w: Any, t: Any, g: Any) -> Any:
        logs = aten._log_softmax(aten.mm(x, aten.t(w)), 1, False)
        own = aten.gather(logs, 1, aten.unsqueeze(t, 1))
        slope = aten._log_softmax_backward_data(logs * logs * g, logs, 1, logs.dtype)
        return own.sum(), aten.mm(slope, w)

    gm = traced(squared, torch.randn(5, 8), torch.randn(4096, 8), torch.randint(0, 4096, (5,)), torch.ones(()))
    for node in list(gm.graph.nodes)[-6:-1]:
        node.meta["backward"] = True
    before = [str(node) for node in gm.graph.nodes]
    (output,) = gm.graph.find_nodes(op="output")
    assert not blocked_losses(gm, CompileContext(CompileContext().config.with_options(SMALL)))
    assert [str(node) for node in gm.graph.nodes] == before and output.all_input_nodes
