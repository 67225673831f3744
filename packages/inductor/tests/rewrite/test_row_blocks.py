"""Losses in blocks of rows, on joint graphs of inductor alone: which are, and who adds up half precision on a GPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import fx
from tracing import traced, traced_on_cuda

from flambeau_inductor import rewrite_joint
from flambeau_inductor.rewrite import class_pieces, row_blocks
from flambeau_inductor.rewrite.joins import call
from flambeau_inductor.rewrite.loss_region import Region
from flambeau_inductor.rewrite.multiples import incoming, multiples

aten = torch.ops.aten


def calls(gm: fx.GraphModule, op: Any) -> int:
    return len(gm.graph.find_nodes(op="call_function", target=op))


def joint(x: Any, w: Any, t: Any, g: Any) -> Any:
    """A loss and its gradients as autograd traces them."""
    logs = aten._log_softmax(aten.mm(x, aten.t(w)), 1, False)
    loss = aten.gather(logs, 1, aten.unsqueeze(t, 1)).sum()
    slope = aten.nll_loss_backward(g, logs, t, None, 2, -100, aten.full([], 1.0))
    slope = aten._log_softmax_backward_data(slope, logs, 1, x.dtype)
    return loss, aten.mm(slope, w), aten.mm(aten.t(slope), x)


def marked(gm: fx.GraphModule, start: Any) -> fx.GraphModule:
    """With the last input as the gradient that comes in, and everything from ``start`` on in the backward."""
    gm.graph.find_nodes(op="placeholder")[-1].meta["backward"] = True
    late = False
    for node in gm.graph.nodes:
        late |= node.target is start
        if late and node.op == "call_function":
            node.meta["backward"] = True
    return gm


def operands(dtype: torch.dtype) -> tuple[torch.Tensor, ...]:
    return (
        torch.randn(24, 8).to(dtype),
        torch.randn(4096, 8).to(dtype),
        torch.randint(0, 4096, (24,)),
        torch.ones((), dtype=dtype),
    )


def as_torch_2_11(graph: fx.Graph, before: fx.Node, target: Any, *args: Any, **kwargs: Any) -> fx.Node:
    """A call whose fake result that version cannot make."""
    if target is aten.addmm.dtype:
        raise TypeError("unsupported operand type(s) for *: 'torch.dtype' and 'FakeTensor'")
    return call(graph, before, target, *args, **kwargs)


@pytest.mark.parametrize("maker", [call, as_torch_2_11])
def test_half_precision_is_added_up_in_float32_by_the_library_of_a_gpu(
    maker: Callable[..., fx.Node], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a sum that later products are added to, of as few blocks as fit; on the CPU it goes by classes."""
    monkeypatch.setattr(class_pieces, "call", maker)
    monkeypatch.setattr(row_blocks, "ROWS", (8,))
    monkeypatch.setattr(row_blocks, "PART", 1)
    monkeypatch.setattr(row_blocks, "_TILE", 1)
    for tracer, expected in ((traced_on_cuda, (1, 1, 4)), (traced, (0, 0, 17))):
        gm = marked(tracer(joint, *operands(torch.bfloat16)), aten.nll_loss_backward.default)
        (output,) = gm.graph.find_nodes(op="output")
        for result, now in rewrite_joint(gm.graph, output.all_input_nodes, {"blocked_losses": 1}).items():
            output.replace_input_with(result, now)
        assert (calls(gm, aten.mm.dtype), calls(gm, aten.addmm.dtype), calls(gm, aten.mm.default)) == expected


@pytest.mark.parametrize(
    ("rows", "dtype", "expected"),
    [(2048, torch.float32, 0), (4096, torch.float32, 2048), (8192, torch.float32, 2048), (16384, torch.float32, 4096),
     (4096, torch.bfloat16, 0), (8192, torch.bfloat16, 4096), (16384, torch.bfloat16, 5504)],
)  # fmt: skip
def test_how_many_rows_a_block_has(rows: int, dtype: torch.dtype, expected: int) -> None:
    """A quarter of eager's memory where products stay as fast; else less than blocks of classes take, or none."""
    graph, classes, width = fx.Graph(), 128_256, 2048

    def node(op: Any, args: tuple[fx.Node, ...], *sizes: int) -> fx.Node:
        made = graph.call_function(op, args) if args else graph.placeholder(f"x{len(graph.nodes)}")
        made.meta["val"] = torch.empty(sizes, dtype=dtype, device="meta")
        return made

    x, w, scores = node(None, (), rows, width), node(None, (), classes, width), node(None, (), rows, classes)
    ends = [node(aten.mm.default, (scores, w), rows, width), node(aten.mm.default, (x, x), classes, width)]
    assert row_blocks.rows_of_blocks(Region(scores, frozenset(), wide={scores: None}, ends=ends)) == expected


def factors(function: Any) -> list[str | None]:
    """Of the results of ``function(x, g, h)``, which of the gradients ``g`` and ``h`` each is a multiple of."""
    gm = traced(function, torch.randn(4), torch.randn(()), torch.randn(()))
    x, *gradients = gm.graph.find_nodes(op="placeholder")
    for node in gradients:
        node.meta["backward"] = True
    assert incoming(gm.graph) == gradients
    found = multiples(gm.graph)
    (output,) = gm.graph.find_nodes(op="output")
    names = dict(zip(gradients, "gh", strict=True))
    return [names.get(found.get(node)) if node in found else "none" for node in output.args[0]]


def test_multiples_of_a_gradient() -> None:
    """One factor, whatever else is computed; a constant that is not zero is no multiple, nor is a product of two."""

    def linear(x: Any, g: Any, h: Any) -> Any:
        mask = x > 0
        return (
            torch.where(mask, (g / 3).expand(4) * x, 0.0),
            g * x + g,
            torch.sub(h.neg(), h * 2),
            aten.tanh_backward(h.expand(4), x),
            x.exp(),
        )

    def others(x: Any, g: Any, h: Any) -> Any:
        return g * g, g + 1, g * h, g + h, torch.where(g > 0, g, 0.0), x / g, g.exp()

    assert factors(linear) == ["g", "g", "h", "h", "none"]
    assert factors(others) == [None] * 7
