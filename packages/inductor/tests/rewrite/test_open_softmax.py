"""Softmaxes that the backward reads are taken apart: every bit is as before, and what must stay whole stays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import fx
from tracing import traced

import flambeau_runtime
from flambeau_inductor import CompileContext, compile_graph, rewrite_joint
from flambeau_inductor.rewrite.open_softmax import FOLLOWS, open_softmaxes

aten = torch.ops.aten
#: Kernels of the CPU take longer for a power than for reading one.
LIKE_A_GPU = {"cpu_backend": "triton"}
F32, F64, BF16, F16 = torch.float32, torch.float64, torch.bfloat16, torch.float16


def joint(function: Callable[..., torch.Tensor], *inputs: torch.Tensor, mode: str = "fake") -> fx.GraphModule:
    """Forward and backward in one graph, whose nodes say which half they belong to."""

    def both(*values: torch.Tensor) -> Any:
        leaves = [value.detach().requires_grad_() for value in values]
        with torch.enable_grad():
            result = function(*leaves)
            tangent = torch.linspace(0.5, 1.5, result.numel()).reshape(result.shape).to(result.dtype)
            return result.detach(), *torch.autograd.grad(result, leaves, tangent)

    gm = traced(both, *inputs, mode=mode)
    for node in gm.graph.find_nodes(op="call_function", target=aten.detach.default):
        node.replace_all_uses_with(node.args[0])  # of what autograd saves
    gm.graph.eliminate_dead_code()
    for node in gm.graph.nodes:
        if "backward" in str(node.target):
            node.meta["backward"] = True
    return gm


def names(gm: fx.GraphModule) -> list[str]:
    """What is called."""
    return [str(n.target).removeprefix("aten.").partition(".")[0] for n in gm.graph.nodes if n.op == "call_function"]


def outcome(gm: fx.GraphModule, inputs: tuple[torch.Tensor, ...]) -> list[torch.Tensor]:
    """What the compiled graph gives."""
    artifact = compile_graph(gm, inputs, {"verify": True})
    return list(flambeau_runtime.load(flambeau_runtime.build_libraries(artifact))(*inputs))


CASES: dict[str, tuple[Callable[[torch.Tensor], torch.Tensor], torch.dtype]] = {
    "logarithms": (lambda x: aten._log_softmax(x * 2, 1, False), F32),
    "along rows down": (lambda x: aten._log_softmax(x * 2, 0, False), F32),
    "float64": (lambda x: aten._log_softmax(x * 2, 1, False), F64),
    "bfloat16": (lambda x: aten._log_softmax(x * 2, -1, False), BF16),
    "float16": (lambda x: aten._log_softmax(x * 2, 1, False), F16),
    "of a transpose": (lambda x: aten._log_softmax(x.t() * 2, 1, False), F32),
    "probabilities of converted scores": (lambda x: aten._softmax((x * 2).float(), 1, False), BF16),
    "of a transpose, converted": (lambda x: aten._softmax((x * 2).t().float(), 1, False), F16),
}


@pytest.mark.parametrize("name", CASES)
def test_every_bit_and_stride_is_as_before(name: str) -> None:
    """Result and gradient, of infinite logits too."""
    function, dtype = CASES[name]
    x = torch.randn(5, 7).to(dtype)
    x[1, 2], x[3] = -torch.inf, -torch.inf
    whole, opened = joint(function, x), joint(function, x)
    (output,) = opened.graph.find_nodes(op="output")
    for result, now in rewrite_joint(opened.graph, output.all_input_nodes, LIKE_A_GPU).items():
        output.replace_input_with(result, now)
    opened.recompile()
    assert not {"_softmax", "_log_softmax"} & {*names(opened)} and {"amax", "exp"} <= {*names(opened)}
    for ours, before in zip(outcome(opened, (x,)), outcome(whole, (x,)), strict=True):
        torch.testing.assert_close(ours, before, rtol=0, atol=0, equal_nan=True)
        assert ours.stride() == before.stride()


def test_what_follows_by_subtractions_is_marked() -> None:
    """Not the powers, and nothing of probabilities, which cost more to compute again."""
    gm = joint(lambda x: aten._log_softmax(x * 2, 1, False), torch.randn(3, 4).to(BF16))
    open_softmaxes(gm.graph, CompileContext())
    marked = [str(n.target) for n in gm.graph.nodes if FOLLOWS in n.meta]
    assert marked == ["aten.sub.Tensor", "aten.sub.Tensor", "aten._to_copy.default"]
    gm = joint(lambda x: aten._softmax(x.float(), 1, False), torch.randn(3, 4).to(BF16))
    assert open_softmaxes(gm.graph, CompileContext(CompileContext().config.with_options(LIKE_A_GPU)))
    assert not any(FOLLOWS in n.meta for n in gm.graph.nodes)


def test_softmaxes_that_stay_whole() -> None:
    """Probabilities as large as their scores, what no backward reads, where kernels are off, rows without elements."""
    x, off = torch.randn(3, 4), CompileContext(CompileContext().config.with_options({"cpp_kernels": False}))
    logarithms, on = lambda x: aten._log_softmax(x, 1, False), {"cpp_kernels": True}  # noqa: E731
    cases = [
        (
            joint(lambda x: aten._softmax(x * 2, 1, False), x),
            CompileContext(off.config.with_options({**on, **LIKE_A_GPU})),
        ),
        (joint(lambda x: aten._softmax(x.float(), 1, False), x.to(BF16)), CompileContext()),
        (traced(logarithms, x), CompileContext()),
        (joint(logarithms, x), off),
        (joint(logarithms, torch.randn(3, 0)), CompileContext()),
        (joint(lambda x: aten._log_softmax(x.sum(), 0, False), x), CompileContext()),
    ]
    for gm, context in cases:
        before = names(gm)
        assert not open_softmaxes(gm.graph, context)
        assert names(gm) == before


@pytest.mark.parametrize(
    ("note", "value"), [("checkpoint", 0), ("refused", True), ("checks", True), ("backward", True)]
)
def test_what_a_node_says_of_itself_keeps_it_whole(note: str, value: object) -> None:
    """A region that is computed again asks what of it is saved by the names of its operations."""
    gm = joint(lambda x: aten._log_softmax(x, 1, False), torch.randn(3, 4))
    (node,) = gm.graph.find_nodes(op="call_function", target=aten._log_softmax.default)
    node.meta[note] = value
    assert not open_softmaxes(gm.graph, CompileContext())


def test_sizes_may_be_symbolic() -> None:
    """No guard is added, and the numbers are those of any size."""
    x = torch.randn(5, 7)
    gm = joint(lambda x: aten._log_softmax(x * 2, 1, False), x, mode="symbolic")
    (output,) = gm.graph.find_nodes(op="output")
    for result, now in rewrite_joint(gm.graph, output.all_input_nodes, {}).items():
        output.replace_input_with(result, now)
    gm.recompile()
    assert "amax" in names(gm)
    torch.testing.assert_close(outcome(gm, (x,))[0], (x * 2).log_softmax(1))
